#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# host.sh is read by every step of this package: its name, its files, its memory, and how files of the host are changed.
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
export LC_ALL=C # names sort as systemd, PAM and GRUB sort them
# On request, and only then, what is done is traced: nothing here is a secret.
if [ "${SET_X:-}" = 1 ]; then SET_X='' exec bash -x "$0" "$@"; fi

config=${SKYHOOK_DIR:?is set by the agent}/configmaps

# The package as the Skyhook calls it is part of every name on the host, so that several packages of this image coexist.
package=tuning
if [[ ${SKYHOOK_RESOURCE_ID:-} == *_*_* ]]; then
  package=${SKYHOOK_RESOURCE_ID#*_}
  package=${package%%_*}
fi
case $package in
'' | [!A-Za-z0-9]* | *[!A-Za-z0-9.-]*)
  echo "error: SKYHOOK_RESOURCE_ID names the package \"$package\"; it must be letters, digits, dots and dashes" >&2
  exit 1
  ;;
esac
mark=999-$package-tuning
# Directories of drop-ins are read in the order of their names, and a letter comes after 9. Where somebody's file would
# win for that reason, what it overrides is said once more under this name.
late=zzz-$mark

# What was there before is kept here, for all packages of this image together: they may change the same things.
state=/var/lib/skyhook-packages/tuning
# What uninstall put back is written here, for its check.
undone=$SKYHOOK_DIR/undone

faults=()
changed=false

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*"; }
fault() { faults+=("$*"); }

# end_with_faults ends the step if there was one; all of them are told.
end_with_faults() {
  ((${#faults[@]} == 0)) && return
  printf 'error: %s\n' "${faults[@]}" >&2
  exit 1
}

# only_one lets one package of this image change the host at a time. The lock is on a folder that is always there, so
# that nothing has to be made for it; it ends with this process.
only_one() {
  exec 9</var/lib
  flock -n 9 || {
    say "another package is at work on this host: waiting"
    flock 9
  }
}

# trim TEXT: REPLY is TEXT without blanks at its ends.
trim() {
  REPLY=${1#"${1%%[![:space:]]*}"}
  REPLY=${REPLY%"${REPLY##*[![:space:]]}"}
}

# words TEXT: REPLY is TEXT with single blanks between its words.
words() {
  local -a all=()
  read -r -d '' -a all <<<"$1" || true
  REPLY="${all[*]}"
}

# The state is a few small files of lines.
recall() { [ ! -f "$state/$1" ] || cat "$state/$1"; }

remembered() { [ -f "$state/$1" ] && grep -qxF -e "$2" "$state/$1"; }

remember() {
  ! remembered "$1" "$2" || return 0
  mkdir -p "$state"
  { recall "$1" && printf '%s\n' "$2"; } >"$state/$1.new"
  mv -f "$state/$1.new" "$state/$1"
}

forget() {
  [ -f "$state/$1" ] || return 0
  grep -vxF -e "$2" "$state/$1" >"$state/$1.new" || true
  if [ -s "$state/$1.new" ]; then
    mv -f "$state/$1.new" "$state/$1"
  else
    rm -f "$state/$1" "$state/$1.new"
  fi
}

# make_dir PATH makes a folder and those above it, and remembers which were missing.
make_dir() {
  local dir=$1
  local -a missing=()
  while [ -n "$dir" ] && [ ! -d "$dir" ]; do
    missing=("$dir" "${missing[@]}")
    dir=${dir%/*}
  done
  for dir in "${missing[@]}"; do
    remember dirs "$dir"
    mkdir "$dir"
  done
}

# tidy removes folders that this package made and nobody uses, and the state once it is empty.
tidy() {
  local dir
  recall dirs | sort -r | while IFS= read -r dir; do
    if [ ! -d "$dir" ] || rmdir "$dir" 2>/dev/null; then forget dirs "$dir"; fi
  done
  for dir in "$state" "${state%/*}"; do rmdir "$dir" 2>/dev/null || return 0; done
}

# put PATH makes PATH hold what standard input says, whole or not at all. changed tells whether it had to.
put() {
  local path=$1 new=$1.skyhook-new
  make_dir "${path%/*}"
  cat >"$new"
  if [ ! -L "$path" ] && cmp -s "$new" "$path"; then
    rm -f "$new"
    changed=false
    return
  fi
  chmod 0644 "$new"
  mv -f "$new" "$path"
  changed=true
  say "wrote $path"
}

# take_away PATH removes a file, and what a killed run left of it. changed tells whether it was there.
take_away() {
  changed=false
  rm -f "$1.skyhook-new"
  [ -e "$1" ] || [ -L "$1" ] || return 0
  rm -f "$1"
  changed=true
  say "removed $1"
}

# holds PATH is for checks: a fault unless PATH holds exactly what standard input says.
holds() {
  if [ ! -f "$1" ]; then
    fault "$1 is not there"
  elif ! cmp -s - "$1"; then
    fault "$1 is not as this package writes it: somebody changed it"
  fi
}

# gone PATH is for checks: a fault if PATH is there.
gone() { { [ ! -e "$1" ] && [ ! -L "$1" ]; } || fault "$1 is still there"; }

# ours_too PATH tells whether a drop-in belongs to another package of this image.
ours_too() {
  case ${1##*/} in
  "$mark".* | "$late".*) return 1 ;;
  999-*-tuning.* | zzz-999-*-tuning.*) return 0 ;;
  esac
  return 1
}

# text FILE: REPLY is a key of the configMap with Unix line ends, and none at its end.
text() {
  REPLY=$(cat "$1")
  REPLY=${REPLY//$'\r\n'/$'\n'}
  REPLY=${REPLY%$'\r'}
}
