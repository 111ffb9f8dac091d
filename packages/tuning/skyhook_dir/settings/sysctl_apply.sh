#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# sysctl_apply.sh: sets what sysctl.sh read, takes back what is not wanted any more, and checks both.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail

declare -A sysctl_had=()                        # paths that this package's files set until now
declare -A sysctl_before=() sysctl_boot_then=() # the values before this image changed them: running, and at boot

# sysctl_history finds out what was set so far, and what was there before that.
sysctl_history() {
  local file i path value
  for file in "$sysctl_own" "$sysctl_late"; do
    [ -f "$file" ] || continue
    sysctl_lines "$file"
    for i in "${!line_path[@]}"; do
      while IFS= read -r path; do sysctl_had[$path]=yes; done <<<"$(sysctl_matches "${line_path[i]}")"
    done
  done
  while IFS=$'\t' read -r path value; do [ -z "$path" ] || sysctl_before[$path]=$value; done <<<"$(recall sysctl)"
  while IFS=$'\t' read -r path value; do [ -z "$path" ] || sysctl_boot_then[$path]=$value; done <<<"$(recall sysctl-boot)"
}

# sysctl_remember keeps the value that a path has before it is set for the first time.
sysctl_remember() {
  local path=$1
  [ -z "${sysctl_before[$path]+x}${sysctl_had[$path]+x}${boot_others[$path]+x}" ] || return 0
  sysctl_running "$path" || return 0
  sysctl_before[$path]=$REPLY
  remember sysctl "$path"$'\t'"$REPLY"
  boot_of "$path" || return 0
  sysctl_boot_then[$path]=$REPLY
  remember sysctl-boot "$path"$'\t'"$REPLY"
}

# sysctl_part_back PATH WAS: of several numbers the kernel takes those before the one it refuses. They go back.
sysctl_part_back() {
  if sysctl_running "$1" && [ "$REPLY" != "$2" ]; then sysctl_write "$1" "$2" || true; fi
}

# sysctl_set sets all values. If the kernel refuses one, it and those set so far get their former value back.
sysctl_set() {
  local path name was why
  local -a set=() former=()
  for path in "${sysctl_paths[@]}"; do
    sysctl_name "$path"
    name=$REPLY
    was=
    if sysctl_running "$path"; then
      was=$REPLY
      ! sysctl_same "$was" "${sysctl_wanted[$path]}" || continue
    fi
    if sysctl_write "$path" "${sysctl_wanted[$path]}"; then
      say "$name = ${sysctl_wanted[$path]} (was $was)"
      set+=("$path") former+=("$was")
      continue
    fi
    why=$REPLY
    sysctl_part_back "$path" "$was"
    if [ "${sysctl_optional[$path]}" = true ]; then
      warn "$name = ${sysctl_wanted[$path]} was refused: $why"
    else
      fault "$name = ${sysctl_wanted[$path]} was refused: $why; nothing was changed"
      for ((; ${#set[@]} > 0; )); do
        sysctl_write "${set[-1]}" "${former[-1]}" || true
        unset 'set[-1]' 'former[-1]'
      done
      return
    fi
  done
}

# sysctl_write_files puts the drop-in, and a second one where a file of somebody else is read later and says otherwise.
sysctl_write_files() {
  local path extra=''
  if [ ! -f "$config/sysctl.conf" ] || ((${#sysctl_paths[@]} == 0)); then
    take_away "$sysctl_own"
    take_away "$sysctl_late"
    return
  fi
  text "$config/sysctl.conf"
  put "$sysctl_own" <<<"$REPLY"
  sysctl_scan "$sysctl_late"
  sysctl_overridden
  for path in "${overridden[@]}"; do
    sysctl_name "$path"
    extra+="$REPLY = ${sysctl_wanted[$path]}"$'\n'
  done
  if [ -z "$extra" ]; then
    take_away "$sysctl_late"
  else
    put "$sysctl_late" <<<"# What files after ${sysctl_own##*/} say otherwise."$'\n'"${extra%$'\n'}"
  fi
}

# sysctl_overridden finds the wanted paths for which the files that were scanned decide otherwise. Another package of this
# image is not fought.
sysctl_overridden() {
  local path
  overridden=()
  for path in "${sysctl_paths[@]}"; do
    if ! boot_of "$path" || sysctl_same "$REPLY" "${sysctl_wanted[$path]}"; then continue; fi
    if ours_too "$boot_by"; then
      sysctl_name "$path"
      warn "$boot_by sets $REPLY too, and at boot it wins; let one package set it"
    else
      overridden+=("$path")
    fi
  done
}

# sysctl_undo takes back what was set and is not wanted any more, after sysctl_apply. A record without a file is that of a
# killed run.
sysctl_undo() {
  local path target
  sysctl_scan "$sysctl_own" "$sysctl_late"
  while IFS= read -r path; do
    if [ -z "$path" ] || [ -n "${sysctl_wanted[$path]+x}" ]; then continue; fi
    if [ -z "${sysctl_had[$path]+x}" ] && [ -n "${boot_others[$path]+x}" ]; then continue; fi
    if sysctl_target "$path"; then
      target=$REPLY
      sysctl_restore "$path" "$target"
    fi
    [ -z "${boot_others[$path]+x}" ] || continue
    forget sysctl "$path"$'\t'"${sysctl_before[$path]-}"
    forget sysctl-boot "$path"$'\t'"${sysctl_boot_then[$path]-}"
  done <<<"$(printf '%s\n' "${!sysctl_had[@]}" "${!sysctl_before[@]}" | sort -u)"
}

# sysctl_target PATH: REPLY is the value a path goes back to: the one it had, unless the host's files say something else by now.
sysctl_target() {
  local path=$1
  if boot_of "$path" && { [ -z "${sysctl_before[$path]+x}" ] || [ "$REPLY" != "${sysctl_boot_then[$path]-}" ]; }; then
    return
  fi
  if [ -n "${sysctl_before[$path]+x}" ]; then
    REPLY=${sysctl_before[$path]}
    return
  fi
  sysctl_running "$path" || return 1
  local value=$REPLY
  sysctl_name "$path"
  warn "$REPLY stays $value until the next boot: what it was before is not known"
  return 1
}

sysctl_restore() {
  local path=$1 target=$2 name now
  sysctl_running "$path" || return 0 # the kernel has it no more
  now=$REPLY
  sysctl_name "$path"
  name=$REPLY
  if sysctl_same "$now" "$target"; then
    :
  elif sysctl_write "$path" "$target"; then
    say "$name = $target (back from $now)"
  else
    warn "$name stays $now until the next boot: the kernel refuses $target: $REPLY"
    return 0
  fi
  printf 'sysctl\t%s\t%s\n' "$path" "$target" >>"$undone"
}

sysctl_apply() {
  local path
  sysctl_history
  sysctl_scan "$sysctl_own" "$sysctl_late"
  for path in "${sysctl_paths[@]}"; do sysctl_remember "$path"; done
  sysctl_set
  end_with_faults
  sysctl_write_files
}

# sysctl_check asks the kernel, and works out who wins at boot.
sysctl_check() {
  local path name
  if ((${#sysctl_paths[@]} == 0)); then
    gone "$sysctl_own"
    gone "$sysctl_late"
    return
  fi
  text "$config/sysctl.conf"
  holds "$sysctl_own" <<<"$REPLY"
  for path in "${sysctl_paths[@]}"; do
    sysctl_running "$path" || continue # some can only be written
    [ "${sysctl_optional[$path]}" = false ] || continue
    sysctl_same "$REPLY" "${sysctl_wanted[$path]}" && continue
    local value=$REPLY
    sysctl_name "$path"
    fault "$REPLY is $value and should be ${sysctl_wanted[$path]}"
  done
  sysctl_scan
  sysctl_overridden
  for path in "${overridden[@]}"; do
    boot_of "$path"
    sysctl_name "$path"
    fault "$boot_by sets $REPLY otherwise and is read after this package's files, so it wins at boot; remove it there"
  done
}
