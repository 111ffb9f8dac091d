#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# apt.sh is Debian and Ubuntu. Pins in a file of ours, which apt reads beside those of the host, allow what may be installed.
# shellcheck disable=SC2034,SC2154 # host.sh sets these
set -euo pipefail

list_marks=(/var/lib/apt/lists/partial /var/lib/apt/periodic/update-success-stamp)
allowed=991 # the priority that only our pins give

default_origins() {
  ((${#origins[@]} == 0)) || return 0
  case $distribution in
  debian) origins=('o=Debian,l=Debian-Security') ;;
  ubuntu) origins=("o=Ubuntu,a=$codename-security" "o=UbuntuESM,a=$codename-infra-security" "o=UbuntuESMApps,a=$codename-apps-security") ;;
  *) fail "the security origin of \"$distribution\" is not known; name it in the configMap key origins, as apt-cache policy shows it" ;;
  esac
}

pin() { printf 'Package: %s\nPin: %s\nPin-Priority: %s\n\n' "$@"; }

# write_pins NAME… allows the origins and nothing else. Held packages and the names are to stay as they are.
write_pins() {
  local text
  {
    for text in "${origins[@]}"; do pin '*' "release $text" "$allowed"; done
    forbid_others
    for text in "${held[@]}" "$@"; do pin "$text" 'release a=now' 1000; done
    [ ! -f /etc/apt/preferences ] || cat /etc/apt/preferences
  } >"$scratch/preferences"
}

forbid_others() {
  pin '*' 'release o=*' -1
  pin '*' 'origin "*"' -1
}

# look PROGRAM… asks apt: no lock is taken, nothing is fetched, and no cache is written.
look() {
  "$1" -o Debug::NoLocking=1 -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o "Dir::Etc::preferences=$scratch/preferences" "${@:2}"
}

# Services are left alone after an installation: which of them restart is the interrupt's part.
debs() {
  DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l \
    apt-get -y -o DPkg::Lock::Timeout=300 -o APT::Keep-Downloaded-Packages=false --no-install-recommends \
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" 9<&- # what is started on the way must not keep the lock
}

refresh() {
  debs -o APT::Update::Error-Mode=any update || fail "apt-get update failed; repair or remove the repository that is named above"
}

installed() { dpkg-query -W -f '${binary:Package} ${Version} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort; }

# find_pending: pending is what would be installed, as NAME VERSION. What apt would choose from elsewhere is pinned and asked again.
find_pending() {
  local plan name round kept_back
  local -a others=() wrong
  local -A is_allowed
  for round in 1 2 3 4 5; do
    write_pins "${others[@]}"
    plan=$(look apt-get -s --with-new-pkgs --no-install-recommends upgrade) || fail "apt cannot tell what is pending, see above"
    mapfile -t pending <<<"$(sed -nE 's/^Inst ([^ ]+) (\[[^]]*\] )?\(([^ ]+) .*/\1 \3/p' <<<"$plan")"
    if [ -z "${pending[0]}" ]; then pending=() && break; fi
    find_allowed "${pending[@]% *}"
    wrong=()
    for name in "${pending[@]}"; do
      if [ -z "${is_allowed[$name]+x}" ] || is_held "${name% *}"; then wrong+=("${name% *}"); fi
    done
    ((${#wrong[@]} > 0)) || break
    ((round < 5)) || fail "apt would install ${wrong[*]}, which no allowed origin has or which is held; see /etc/apt/preferences.d"
    others+=("${wrong[@]}")
  done
  kept_back=$(sed -n '/ kept back:$/,/^[^ ]/{/^ /p}' <<<"$plan" | tr -s '\n ' ' ')
  [ -z "${kept_back// /}" ] || warn "apt keeps back${kept_back% }: see apt-mark showhold, or which origin has what they need"
}

# find_allowed NAME…: is_allowed has each NAME VERSION that an allowed origin has.
find_allowed() {
  local a b name='' version=''
  is_allowed=()
  while read -r a b; do
    case "$a $b" in
    *': ') name=${a%:} ;;
    *': '*) ;;
    '*** '*) version=${b% *} ;;
    "$allowed "*/*) is_allowed["$name $version"]=yes ;;
    *' '*/*) ;;
    *) version=$a ;;
    esac
  done <<<"$(look apt-cache policy "$@")"
}

install_pending() { debs -o "Dir::Etc::preferences=$scratch/preferences" --with-new-pkgs upgrade; }

is_kernel() { [[ $1 == linux-image-* ]]; }

# files_of NAME… prints what packages have installed.
files_of() { dpkg-query -L "$@" 2>/dev/null || true; }

# kernel_package RELEASE: REPLY is the version of its package.
kernel_package() { REPLY=$(dpkg-query -W -f '${Version}' "linux-image-$1" 2>/dev/null); }

is_interrupted() {
  compgen -G '/var/lib/dpkg/updates/[0-9]*' >/dev/null || dpkg-query -W -f '${db:Status-Status}\n' | grep -E '^(half-|unpacked)' >/dev/null
}

# find_block: REPLY is why updates cannot be installed now. What an attempt of ours has left is no reason.
find_block() {
  local lock
  for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock; do
    if lock_holder "$lock"; then
      REPLY="$REPLY holds $lock"
      return
    fi
  done
  REPLY="dpkg was interrupted; run dpkg --configure -a"
  is_interrupted && [ ! -f "$state/listing" ]
}

repair() { ! is_interrupted || dpkg --force-confdef --force-confold --configure -a 9<&-; }

# undo_debs ARGUMENT… is for ways back: of what is not pinned here, nothing is installed, whatever the host's pins say.
undo_debs() { debs -o "Dir::Etc::preferences=$scratch/preferences" -o Dir::Etc::preferencesparts=/dev/null "$@"; }

# put_back NAME VERSION… goes back to versions that a repository still has; nothing else changes.
put_back() {
  { forbid_others && while (($# > 0)); do pin "$1" "version $2" 1001 && shift 2; done; } >"$scratch/preferences"
  undo_debs --allow-downgrades --fix-missing upgrade
}

# exact NAME VERSION: REPLY is what to call it when it is removed.
exact() { REPLY=$1; }

# remove_new NAME… removes what updates have brought, unless something else needs it by now.
remove_new() {
  local others
  forbid_others >"$scratch/preferences"
  others=$(undo_debs -s remove "$@" | sed -nE 's/^(Inst|Remv) ([^ ]+) .*/\2/p' | grep -vxF "$(printf '%s\n' "$@")" | tr '\n' ' ') || true
  if [ -n "$others" ]; then warn "$* stays: ${others% } would go with it"; else undo_debs remove "$@"; fi
}
