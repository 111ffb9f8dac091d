#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# profiles.sh: the configMap's profiles and scripts, and which profile is active.
# shellcheck disable=SC2154 # host.sh sets these
set -euo pipefail

scripts=/etc/tuned/scripts

wanted=''              # the profiles that are to be active
paths=()               # files that are to be there
declare -A source_of=() # the key of each

# read_config reads and judges the configMap.
read_config() {
  local file key
  local -a words=()
  profile_dir
  profiles=$REPLY
  for file in "$config"/*; do
    [ -f "$file" ] || continue
    key=${file##*/}
    case $key in
    tuned_profile)
      read -r -d '' -a words <"$file" || true
      wanted="${words[*]}"
      ;;
    ..* | _script) fault "configMap key $key: it names no script; write NAME_script" ;;
    *_script)
      want "$scripts/${key%_script}" "$key"
      # The name as it is worked before too.
      want "$scripts/$key" "$key"
      ;;
    *) read_profile "$file" "$key" ;;
    esac
  done
  end_with_faults
}

read_profile() {
  if ! grep -qE '^[[:space:]]*\[[^]]+\]' "$1"; then
    warn "configMap key $2 is no profile, it has no [section]; it is not given to TuneD"
    return
  fi
  case $2 in
  scripts | profiles | recommend.d) fault "configMap key $2: a profile cannot have this name, it is a folder of TuneD's; choose another" ;;
  *)
    if [ -e "$profiles/$2" ] && [ ! -d "$profiles/$2" ]; then
      fault "configMap key $2: a profile cannot have this name, it is a file of TuneD's; choose another"
    fi
    ;;
  esac
  want "$profiles/$2/tuned.conf" "$2"
}

want() {
  if [ -n "${source_of[$1]+x}" ]; then fault "configMap keys $2 and ${source_of[$1]} are both about $1; keep one of them"; fi
  paths+=("$1")
  source_of[$1]=$2
}

# content PATH: REPLY is what a file is to hold, with Unix line ends.
content() {
  REPLY=$(cat "$config/${source_of[$1]}")
  REPLY=${REPLY//$'\r\n'/$'\n'}
}

# mode PATH: REPLY is its mode.
mode() { case $1 in "$scripts"/*) REPLY=0755 ;; *) REPLY=0644 ;; esac; }

# as_wanted PATH tells whether a file is as it is to be.
as_wanted() {
  local want
  content "$1"
  cmp -s "$1" - <<<"$REPLY" || return 1
  mode "$1"
  want=${REPLY#0}
  [ "$(stat -c %a "$1")" = "$want" ]
}

# put_files (had is what this package wanted so far) makes the files be as wanted. An active profile is stopped by the scripts that started it, so before one of them
# changes TuneD is switched off.
put_files() {
  local path file
  local -A mine=()
  while IFS= read -r path; do [ -z "$path" ] || mine[$path]=yes; done <<<"$(noted "files/$package")"
  for path in "${paths[@]}"; do
    [ -n "$had" ] || break
    if [[ -n ${mine[$path]+x} && $path == "$scripts"/* ]] && ! as_wanted "$path" && is_active; then
      note "due/$package" </dev/null
      say "tuned-adm off, because $path changes"
      tuned-adm off || fail "TuneD could not be switched off: see /var/log/tuned/tuned.log"
      break
    fi
  done
  for path in "${paths[@]}"; do
    if [ -z "${mine[$path]+x}" ]; then
      keep "$path"
      { noted "files/$package" && printf '%s\n' "$path"; } | note "files/$package"
      mine[$path]=yes
    fi
    ! as_wanted "$path" || continue
    note "due/$package" </dev/null
    mkdir -p "${path%/*}"
    content "$path"
    file=$path.skyhook-new
    printf '%s\n' "$REPLY" >"$file"
    mode "$path"
    chmod "$REPLY" "$file"
    mv -f "$file" "$path"
    say "wrote $path"
  done
}

# drop_files takes away what this package put there and does not want any more. No active profile needs it by now.
drop_files() {
  local path
  noted "files/$package" | while IFS= read -r path; do
    [ -n "${source_of[$path]+x}" ] || printf '%s\n' "$path"
  done | sort | while IFS= read -r path; do take_file "$path"; done
}

# keep PATH keeps a file that is somebody else's, before ours takes its place.
keep() {
  if [ ! -f "$1" ] || [ -f "$state/kept$1" ]; then return 0; fi
  mkdir -p "$state/kept${1%/*}"
  cp -p "$1" "$state/kept$1.new"
  mv -f "$state/kept$1.new" "$state/kept$1"
}

# take_file PATH removes a file of ours and puts back what it replaced.
take_file() {
  rm -f "$1" "$1.skyhook-new"
  if [ -f "$state/kept$1" ]; then
    cp -p "$state/kept$1" "$1.skyhook-new"
    mv -f "$1.skyhook-new" "$1"
    forget "kept$1"
    say "put back $1"
  else
    say "removed $1"
    # Folders that were made for it go with it, those that TuneD itself has do not.
    case $1 in
    "$scripts"/*) rmdir "$scripts" 2>/dev/null || true ;;
    */tuned.conf) rmdir "${1%/*}" 2>/dev/null || true ;;
    esac
  fi
  noted "files/$package" | grep -vxF -e "$1" | note "files/$package" || true
  [ -s "$state/files/$package" ] || forget "files/$package"
}

# known PROFILE tells whether TuneD has it. What follows the name in the list is its summary.
known() {
  local line
  while IFS= read -r line; do
    line=${line#- }
    [ "${line%%[[:space:]]*}" != "$1" ] || return 0
  done <<<"$all"
  return 1
}

# must_know ends the step if a wanted profile does not exist.
must_know() {
  local profile all
  all=$(tuned-adm list | grep '^- ') || true
  for profile in $wanted; do
    known "$profile" || fault "tuned_profile names $profile, which TuneD does not have; tuned-adm list shows those it has, and a key $profile of the configMap makes another"
  done
  end_with_faults
}

# remember_before keeps the mode and the profile that are there before a package of this image changes them for the first
# time. Without a mode, TuneD chooses by itself when no profile is named.
remember_before() {
  local mode profile
  [ ! -f "$state/before" ] || return 0
  mode=$(cat /etc/tuned/profile_mode 2>/dev/null) || true
  profile=$(cat /etc/tuned/active_profile 2>/dev/null) || true
  if [ -z "$mode" ] && [ -z "$profile" ]; then mode=auto; fi
  printf '%s\n%s\n' "${mode:-manual}" "$profile" | note before
}

# activate PROFILES… makes TuneD load them, again if they are active already.
activate() {
  say "tuned-adm profile $*"
  tuned-adm profile "$@" || fail "TuneD could not switch to the profile $*: see /var/log/tuned/tuned.log"
}

# is_changed tells whether somebody has changed what the active profile sets. Before a reboot that cannot be told.
is_changed() { [ "${INTERRUPT:-false}" != true ] && ! tuned-adm verify >/dev/null 2>&1; }

# go_back makes active what another package of this image wants, or else what was there before.
go_back() {
  local user profile mode
  while IFS= read -r user; do
    [ -n "$user" ] || continue
    profile=$(noted "users/$user")
    [ -n "$profile" ] || continue
    say "back to the profile of package $user"
    # shellcheck disable=SC2086 # it is a list
    if ! has_profile "$profile"; then activate $profile; fi
    printf '%s\n' "$profile" >"$SKYHOOK_DIR/undone"
    return
  done <<<"$(other_users)"
  [ -f "$state/before" ] || return 0
  mode=$(sed -n 1p "$state/before")
  profile=$(sed -n 2p "$state/before")
  if [ "$mode" = auto ]; then
    say "tuned-adm auto_profile"
    tuned-adm auto_profile || fail "TuneD could not go back to the profile it recommends: see /var/log/tuned/tuned.log"
  elif [ -n "$profile" ]; then
    # shellcheck disable=SC2086 # it is a list
    activate $profile
    printf '%s\n' "$profile" >"$SKYHOOK_DIR/undone"
  else
    say "tuned-adm off"
    tuned-adm off || fail "TuneD could not be switched off: see /var/log/tuned/tuned.log"
  fi
  forget before
}

# check_files and check_profile find what is not as wanted.
check_files() {
  local path
  for path in "${paths[@]}"; do
    if [ ! -f "$path" ]; then
      fault "$path is not there"
    else
      as_wanted "$path" || fault "$path is not as the configMap has it: somebody changed it"
    fi
  done
}

# check_profile VERIFY: with VERIFY=must the host has to be as the profile says, with may only a warning says if not.
check_profile() {
  local said log=/var/log/tuned/tuned.log size
  if ! wait_until is_active; then
    fault "the service tuned does not run"
    return
  fi
  [ -n "$wanted" ] || return 0
  if ! wait_until has_profile "$wanted"; then
    fault "the active profile is \"$REPLY\" and should be \"$wanted\""
    return
  fi
  size=$(stat -c %s "$log" 2>/dev/null) || size=0
  if said=$(tuned-adm verify 2>&1); then return; fi
  say "$said"
  { tail -c "+$((size + 1))" "$log" 2>/dev/null | grep -F 'verify: failed' || true; } | tail -n 20
  if [ "$1" = must ]; then
    fault "the host is not as the profile $wanted says; what was found is above"
  else
    warn "the host is not yet as the profile $wanted says; INTERRUPT is true, so the interrupt is awaited"
  fi
}
