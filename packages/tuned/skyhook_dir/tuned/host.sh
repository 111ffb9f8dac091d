#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# host.sh is read by every step of this package: its name, its memory, and how TuneD and its service are talked to.
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

# Several packages of this image can be on one host. They share TuneD, and each is known by its name in the Skyhook.
package=tuned
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

# What was there before is kept here, for all packages of this image together:
#   packages     what was installed along with TuneD, when this image installed it
#   listing      while it is being installed: what was there before
#   folders      what was in TuneD's folders before it was installed; etc-tuned is a copy of /etc/tuned then
#   service      how its service was, when TuneD was there before
#   before       the mode and the profile that were there before
#   users/NAME   a package that uses TuneD, and the profiles it wants
#   files/NAME   the files a package has put into TuneD's folders
#   kept/PATH    what a file of ours has replaced
#   due/NAME     files were changed, and the profile is yet to be loaded
state=/var/lib/skyhook-packages/tuned

faults=()

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

# note NAME keeps standard input in the state, whole or not at all.
note() {
  mkdir -p "$(dirname "$state/$1")"
  cat >"$state/$1.new"
  mv -f "$state/$1.new" "$state/$1"
}

# noted NAME prints what was kept.
noted() { [ ! -f "$state/$1" ] || cat "$state/$1"; }

forget() { rm -f "${state:?}/$1"; }

# tidy removes folders of the state that are empty.
tidy() {
  local dir
  [ -d "$state" ] || return 0
  find "$state" -depth -type d | while IFS= read -r dir; do rmdir "$dir" 2>/dev/null || true; done
  rmdir "${state%/*}" 2>/dev/null || true
}

# other_users prints the other packages that use TuneD.
other_users() {
  local file
  for file in "$state"/users/*; do
    if [ -f "$file" ] && [ "${file##*/}" != "$package" ]; then printf '%s\n' "${file##*/}"; fi
  done
}

have_tuned() { command -v tuned >/dev/null && command -v tuned-adm >/dev/null; }

is_active() { systemctl is-active --quiet tuned; }
is_enabled() { systemctl is-enabled --quiet tuned 2>/dev/null; }

# wait_until COMMAND… waits for TuneD, which loads its profile after its service has started.
wait_until() {
  local patience=${TUNED_WAIT:-30}
  case $patience in '' | *[!0-9]* | ?????*) fail "TUNED_WAIT is \"${patience:0:20}\"; write a number of seconds" ;; esac
  until "$@"; do
    ((patience-- > 0)) || return 1
    sleep 1
  done
}

# active_profile: REPLY is the profiles that are active, with single blanks; empty when none is.
active_profile() {
  local line posted=''
  REPLY=
  while IFS= read -r line; do
    case $line in
    'Current active profile: '*) REPLY=${line#*: } ;;
    'Current post-loaded profile: '*) posted=${line#*: } ;;
    esac
  done <<<"$(tuned-adm active 2>/dev/null || true)"
  [ -z "$posted" ] || REPLY=${REPLY%" $posted"} # it is active besides, and not asked for
}

has_profile() {
  active_profile
  [ "$REPLY" = "$1" ]
}

# profile_dir: REPLY is where this TuneD looks for profiles that are not its own.
profile_dir() {
  local dirs
  dirs=$(sed -n 's/^[[:space:]]*profile_dirs[[:space:]]*=[[:space:]]*//p' /etc/tuned/tuned-main.conf 2>/dev/null | tail -n 1) || true
  dirs=${dirs//[[:space:]]/}
  if [ -n "$dirs" ]; then
    REPLY=${dirs##*,}
  elif [ -d /usr/lib/tuned/profiles ]; then
    REPLY=/etc/tuned/profiles
  else
    REPLY=/etc/tuned
  fi
}
