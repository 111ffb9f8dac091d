#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# limits.sh: the key ulimit.conf. Sessions that begin later have these limits, root's too; services have none of this, they
# take theirs from systemd.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail

limits_own=/etc/security/limits.d/$mark.conf
limits_late=/etc/security/limits.d/$late.conf
limits_line='session required pam_limits.so'

limit_items=()
declare -A limit_wanted=()                       # by item
declare -A limit_effective=() limit_decided_by=() # by "DOMAIN TYPE ITEM"

limits_read() {
  local line item value number=0 most
  [ -f "$config/ulimit.conf" ] || return 0
  text "$config/ulimit.conf"
  while IFS= read -r line; do
    number=$((number + 1))
    trim "$line"
    line=$REPLY
    case $line in '' | '#'*) continue ;; esac
    trim "${line%%=*}"
    item=$REPLY
    trim "${line#*=}"
    value=$REPLY
    if [[ $line != *=* ]]; then
      fault "ulimit.conf line $number, \"${line:0:60}\": write NAME=VALUE, such as nofile=1048576"
      continue
    fi
    case $item in
    memlock | nofile | fsize | stack | nproc | core | data | rss | cpu | as | locks | sigpending | msgqueue | nice | rtprio) ;;
    *)
      fault "ulimit.conf line $number: \"${item:0:60}\" is no limit; use memlock, nofile, fsize, stack, nproc or another item of limits.conf(5)"
      continue
      ;;
    esac
    case $value in
    unlimited | infinity | -1) ;;
    '' | *[!0-9-]* | ?*-*) fault "ulimit.conf line $number: $item is \"${value:0:60}\"; write a number, or unlimited" ;;
    esac
    [ -n "${limit_wanted[$item]+x}" ] || limit_items+=("$item")
    limit_wanted[$item]=$value
  done <<<"$REPLY"
  # A session whose nofile is more than the kernel allows cannot begin at all: nobody could log in any more.
  [ -n "${limit_wanted[nofile]+x}" ] || return 0
  most=${sysctl_wanted[fs/nr_open]-}
  [ -n "$most" ] || most=$(cat /proc/sys/fs/nr_open 2>/dev/null) || return 0
  value=${limit_wanted[nofile]}
  if ! [[ $value =~ ^[0-9]{1,18}$ ]] || ((10#$value > most)); then
    fault "ulimit.conf: nofile is $value, and nobody could log in with more than fs.nr_open, which is $most; write a number up to that, or raise fs.nr_open in sysctl.conf"
  fi
}

# limits_all: REPLY is what the drop-in says, line by line. A line for * does not hold for root.
limits_all() {
  local domain item
  REPLY=
  for domain in '*' root; do
    for item in "${limit_items[@]}"; do
      REPLY+=${REPLY:+$'\n'}"$domain soft $item ${limit_wanted[$item]}"$'\n'"$domain hard $item ${limit_wanted[$item]}"
    done
  done
}

# limits_scan LEFT_OUT… works out which value pam_limits takes: the last one it reads.
limits_scan() {
  local file out line domain type item value t
  limit_effective=() limit_decided_by=()
  for file in /etc/security/limits.conf /etc/security/limits.d/*.conf; do
    for out in "$@"; do [ "$file" != "$out" ] || continue 2; done
    [ -f "$file" ] || continue
    while IFS= read -r line || [ -n "$line" ]; do
      read -r domain type item value _ <<<"${line%%#*}" || true
      case $domain in '*' | root) ;; *) continue ;; esac
      for t in soft hard; do
        [ "$type" = "$t" ] || [ "$type" = - ] || continue
        limit_effective["$domain $t $item"]=$value
        limit_decided_by["$domain $t $item"]=$file
      done
    done <"$file"
  done
}

# limits_overridden finds the lines for which somebody else's file decides. Another package of this image is not fought.
limits_overridden() {
  local domain type item value
  overridden=()
  limits_all
  while read -r domain type item value; do
    [ "${limit_effective["$domain $type $item"]-}" != "$value" ] || continue
    if ours_too "${limit_decided_by["$domain $type $item"]-}"; then # before our file is there, nobody may decide
      warn "${limit_decided_by["$domain $type $item"]} sets $domain $type $item too, and wins; let one package set it"
    else
      overridden+=("$domain $type $item $value")
    fi
  done <<<"$REPLY"
}

limits_apply() {
  local file
  if ((${#limit_items[@]} == 0)); then
    take_away "$limits_own"
    take_away "$limits_late"
    limits_leave_sessions
    return
  fi
  limits_join_sessions
  limits_all
  put "$limits_own" <<<"# Made by Skyhook package $package; changes are overwritten."$'\n'"$REPLY"
  limits_scan "$limits_late"
  limits_overridden
  if ((${#overridden[@]} == 0)); then
    take_away "$limits_late"
  else
    put "$limits_late" <<<"# What files after ${limits_own##*/} say otherwise."$'\n'"$(printf '%s\n' "${overridden[@]}")"
  fi
}

# limits_in_force FILE: sessions of this kind have limits.
limits_in_force() { grep -qE '^[[:space:]]*-?session[[:space:]].*pam_limits\.so' "$1"; }

# limits_join_sessions: Debian's sessions have limits only where each program's own file says so.
limits_join_sessions() {
  local file
  for file in /etc/pam.d/common-session /etc/pam.d/common-session-noninteractive; do
    if [ -f "$file" ] && ! limits_in_force "$file"; then
      remember pam "$file"
      [ -z "$(tail -c 1 "$file")" ] || printf '\n' >>"$file"
      printf '%s\n' "$limits_line" >>"$file"
      say "added \"$limits_line\" to $file"
    fi
  done
}

# limits_leave_sessions takes that back when no package of this image has limits any more.
limits_leave_sessions() {
  local file
  for file in /etc/security/limits.d/*.conf; do
    if [ -f "$file" ] && ours_too "$file"; then return 0; fi
  done
  while IFS= read -r file; do
    [ -n "$file" ] || continue
    if [ -f "$file" ] && grep -qxF "$limits_line" "$file"; then
      cp -p "$file" "$file.skyhook-new"
      grep -vxF "$limits_line" "$file" >"$file.skyhook-new" || true
      mv -f "$file.skyhook-new" "$file"
      say "removed \"$limits_line\" from $file"
    fi
    forget pam "$file"
  done <<<"$(recall pam)"
}

# limits_check works out what a new session gets. To begin one would leave its traces on the host.
limits_check() {
  local line key file found=false # of sessions that have limits
  if ((${#limit_items[@]} == 0)); then
    gone "$limits_own"
    gone "$limits_late"
    return
  fi
  limits_all
  holds "$limits_own" <<<"# Made by Skyhook package $package; changes are overwritten."$'\n'"$REPLY"
  limits_scan
  limits_overridden
  for line in "${overridden[@]}"; do
    key=${line% *}
    if [ -n "${limit_effective[$key]+x}" ]; then
      fault "${limit_decided_by[$key]} sets $key to ${limit_effective[$key]} and is read last, so it wins over ${line##* }; remove it there"
    fi
  done
  for file in /etc/pam.d/*; do
    if [ -f "$file" ] && limits_in_force "$file"; then found=true; fi
  done
  [ "$found" = true ] || warn "no file of /etc/pam.d asks for pam_limits.so, so these limits reach no session"
}
