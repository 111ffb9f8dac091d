#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# host.sh is read by every step of this package: its configMap, its memory, and the host's package manager.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  echo "error: the package needs bash 4.4 or later; this host has $BASH_VERSION" >&2
  exit 1
fi
# shellcheck source=/dev/null # it is checked by itself
. "${BASH_SOURCE[0]%/*}/on_host.sh"
shopt -s inherit_errexit
# What fails without a word of its own is named.
set -E
trap 'status=$?; echo "error: ${BASH_SOURCE[0]##*/}, line $LINENO: $BASH_COMMAND ended with $status" >&2' ERR
export LC_ALL=C

config=${SKYHOOK_DIR:?is set by the agent}/configmaps

# What is needed for an undo is kept here:
#   listing    while updates are installed: what was installed before, as NAME VERSION
#   versions   what was changed since the package came, as NAME BEFORE AFTER; BEFORE is - for what is new
#   refreshed  when the lists of the repositories were fetched last
state=/var/lib/skyhook-packages/os-update
# What uninstall put back is written here, for its check.
undone=$SKYHOOK_DIR/undone

faults=()
origins=() held=() # the keys of the configMap

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*"; }
fault() { faults+=("$*"); }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

end_with_faults() {
  ((${#faults[@]} == 0)) && return
  printf 'error: %s\n' "${faults[@]}" >&2
  exit 1
}

# only_one lets one package of this image change the host at a time. The lock is on a folder that is always there.
only_one() {
  exec 9</var/lib
  flock -n 9 || {
    say "another package is at work on this host: waiting"
    flock 9
  }
}

# keep NAME keeps standard input in the state, whole or not at all.
keep() {
  mkdir -p "$state"
  cat >"$state/$1.new"
  mv -f "$state/$1.new" "$state/$1"
}

# kept NAME prints what was kept.
kept() { [ ! -f "$state/$1" ] || cat "$state/$1"; }

# make_scratch: scratch is a folder below /tmp, which a preflight can write too. It goes when the step ends.
make_scratch() {
  scratch=$(mktemp -d /tmp/os-update.XXXXXX)
  trap 'rm -rf "${scratch:?}"' EXIT
}

# find_family: family is apt, dnf or zypper, and its part is read.
find_family() {
  local ID='' ID_LIKE='' VERSION_CODENAME='' word
  if [ -f /etc/os-release ]; then
    # shellcheck source=/dev/null
    . /etc/os-release
  fi
  family='' distribution=$ID codename=$VERSION_CODENAME
  for word in $ID $ID_LIKE; do
    case $word in
    debian | ubuntu) family=apt ;;
    rhel | rocky | almalinux | centos | fedora | amzn | ol) family=dnf ;;
    sles | suse | opensuse*) family=zypper ;;
    *) continue ;;
    esac
    break
  done
  case $family in
  apt) part=apt ;;
  dnf | zypper) part=rpm ;;
  *) fail "this host is \"${ID:-unknown}\", and updates can be installed on Debian, Ubuntu, the RHEL family and SUSE; select only such nodes" ;;
  esac
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/update/$part.sh"
}

# read_config reads and judges the keys, and finds the host's family.
read_config() {
  local file
  for file in "$config"/*; do
    case ${file##*/} in
    '*' | ..* | origins | held) ;;
    *) warn "configMap key ${file##*/} is not known, and does nothing; the keys are origins and held" ;;
    esac
  done
  find_family
  read_lines held '^[A-Za-z0-9.+_:*?-]+$' 'write the name of a package; * and ? match any letters'
  held=("${lines[@]}")
  read_lines origins '^([a-z]=[^,=]+(,[a-z]=[^,=]+)*|[A-Za-z0-9._:@-]+)$' \
    'write a release as apt-cache policy shows it, such as o=Debian,l=Debian-Security, or the name of a repository of dnf or zypper'
  for line in "${lines[@]}"; do # a fleet of several families has one configMap
    case $family:$line in apt:*=*) origins+=("$line") ;; apt:* | *:*=*) ;; *) origins+=("$line") ;; esac
  done
  end_with_faults
  default_origins
}

# read_lines KEY PATTERN FIX: lines is what a key says, without comments.
read_lines() {
  local line number=0
  lines=()
  [ -f "$config/$1" ] || return 0
  while read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%$'\r'}
    case $line in '' | '#'*) continue ;; esac
    if [[ $line =~ $2 ]]; then lines+=("$line"); else fault "$1 line $number, \"${line:0:60}\": $3"; fi
  done <"$config/$1"
}

# is_held NAME tells whether a package is to stay as it is.
is_held() {
  local pattern
  for pattern in "${held[@]}"; do
    # shellcheck disable=SC2053 # it is a pattern
    [[ $1 != $pattern ]] || return 0
  done
  return 1
}

# record_changes works out what has changed since the listing was made.
record_changes() {
  local name before after
  local -A added=() first=() last=()
  [ -f "$state/listing" ] || return 0
  installed >"$scratch/now"
  comm -23 "$state/listing" "$scratch/now" >"$scratch/before"
  comm -13 "$state/listing" "$scratch/now" | join -a 2 -e - -o 0,1.2,2.2 "$scratch/before" - >"$scratch/changes"
  sed 's/^\([^ ]*\) - \(.*\)/installed \1 \2/; t; s/^\([^ ]*\) \([^ ]*\) \(.*\)/\1: \2 -> \3/' "$scratch/changes"
  while read -r name before after; do
    if [ -z "$name" ]; then continue; fi
    if [ "$before" = - ]; then
      added["$name - $after"]=yes
    elif [ -n "${added["$name - $before"]+x}" ]; then
      unset "added[$name - $before]"
      added["$name - $after"]=yes
    else
      first[$name]=${first[$name]-$before} last[$name]=$after
    fi
  done <<<"$(kept versions && cat "$scratch/changes")"
  {
    ((${#added[@]} == 0)) || printf '%s\n' "${!added[@]}"
    for name in "${!first[@]}"; do printf '%s\n' "$name ${first[$name]} ${last[$name]}"; done
  } | sort | keep versions
  rm -f "$state/listing"
}

# is_unfinished tells whether an attempt of ours was cut short.
is_unfinished() { [ -f "$state/listing" ] && is_interrupted; }

# list_age: REPLY is how many days ago the lists of the repositories were fetched, as far as the host tells.
list_age() {
  local newest
  newest=$(stat -c %Y "$state/refreshed" "${list_marks[@]}" 2>/dev/null | sort -n | tail -n 1) || true
  REPLY=$((($(date +%s) - ${newest:-0}) / 86400))
}

# lock_holder FILE: REPLY is the process that has locked it.
lock_holder() {
  local inode
  inode=$(stat -c %i "$1" 2>/dev/null) || return 1
  REPLY=$(sed -nE "s/^[0-9]+: POSIX +ADVISORY +WRITE +([0-9]+) [^ ]*:$inode .*/\1/p" /proc/locks 2>/dev/null | head -n 1)
  [ -n "$REPLY" ] || return 1
  REPLY="$(cat "/proc/$REPLY/comm" 2>/dev/null || echo a process) ($REPLY)"
}
