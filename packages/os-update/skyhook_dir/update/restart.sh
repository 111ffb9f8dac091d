#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# restart.sh finds what runs with a kernel or with files that have been replaced, by what needrestart goes by.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail
# shellcheck source=/dev/null # it is checked by itself
. "${0%/*}/update/guess.sh"

# Nothing but a reboot restarts these without harm.
boot_only='^(dbus|dbus-.*|NetworkManager|networking|wpa_supplicant|frr|bird)$'

# flavor RELEASE: REPLY is the end that tells kernels of one series from others: -amd64, -cloud-amd64, .x86_64.
flavor() {
  REPLY=
  [[ ! $1 =~ [.-][a-z][a-z0-9_+-]*$ ]] || REPLY=${BASH_REMATCH[0]}
}

# find_old_kernel: REPLY is how the running kernel is not the newest that is installed; fails if it is.
find_old_kernel() {
  local text release own file newest
  text=$(cat /proc/version)
  read -r _ _ release _ <<<"$text"
  flavor "$release"
  own=$REPLY
  newest=$(for file in /boot/vmlinuz-[1-9]*; do
    file=${file#/boot/vmlinuz-}
    flavor "$file"
    [ "$REPLY" != "$own" ] || printf '%s\n' "$file"
  done | sort -V | tail -n 1)
  case $newest in
  '' | '[1-9]*') return 1 ;; # it came from elsewhere
  "$release") ;;
  *)
    REPLY="kernel $release runs and $newest is installed"
    return
    ;;
  esac
  kernel_package "$release" || return 1
  newest=$REPLY
  if [[ $text =~ \ Debian\ ([^ ]+) ]]; then
    [ "${BASH_REMATCH[1]}" != "$newest" ] || return 1
  elif [[ $text =~ \#([0-9][^ ]*)-Ubuntu\  ]]; then
    [[ $newest != *".${BASH_REMATCH[1]}" ]] || return 1
  else
    return 1
  fi
  REPLY="kernel $release runs as it was before $newest of its package was installed"
}

maps_are_readable() { { : </proc/1/maps; } 2>/dev/null; }

# find_mapped writes PID FILE to the file mapped, for the programs and libraries that processes run; FILE ends with " (deleted)" if it was
# replaced.
find_mapped() {
  [ ! -f "$scratch/mapped" ] || return 0
  if maps_are_readable; then
    { grep -HE '^[^ ]+ ..x' /proc/[0-9]*/maps 2>/dev/null || true; } | sed -E 's#^/proc/([0-9]+)/maps:[^/]* /#\1 /#'
  else
    guess_mapped
  fi | sed -nE '/^[0-9]+ \/(usr|lib|lib64|bin|sbin|opt)\//p' | sort -u >"$scratch/mapped"
}

# service_of PID: REPLY is the system service that a process belongs to; fails for sessions and containers.
service_of() {
  local line
  while IFS= read -r line; do
    case $line in 0::* | *:name=systemd:*) line=${line#*:*:} ;; *) continue ;; esac
    if [[ $line != *user.slice/* && $line != *.scope/* && $line =~ /([^/]+)\.service(/|$) ]]; then
      REPLY=${BASH_REMATCH[1]}
      return
    fi
  done <<<"$(cat "/proc/$1/cgroup" 2>/dev/null || true)"
  return 1
}

# is_restarted SERVICE PID: a restart of the service ends the process. Those that outlive it, such as containers, wait for a reboot.
is_restarted() {
  local shown
  shown=$(systemctl show -p KillMode -p MainPID "$1.service" 2>/dev/null) || return 0
  case $shown in *KillMode=process* | *KillMode=none*) [[ $'\n'$shown$'\n' == *$'\n'"MainPID=$2"$'\n'* ]] ;; esac
}

# find_services reads lines of the file mapped: services is which have them open, with one of the files, and boot_services those that need a reboot.
find_services() {
  local pid file
  while read -r pid file; do
    if [ -z "$pid" ] || ! service_of "$pid"; then continue; fi
    if [[ $REPLY =~ $boot_only ]]; then
      boot_services[$REPLY]=$file
    elif [ -z "${services[$REPLY]+x}" ] && is_restarted "$REPLY" "$pid"; then
      services[$REPLY]=$file
    fi
  done
}

declare -A services=() boot_services=()

# find_stale finds the services that run with files that were replaced.
find_stale() {
  find_mapped
  find_services <<<"$(sed -n 's/ (deleted)$//p' "$scratch/mapped")"
}

# find_future NAME… finds the services that will, once the packages are installed. Hosts link / and /usr, so that /usr is left out.
find_future() {
  find_mapped
  files_of "$@" | sed 's#^/usr/#/#' | sort -u >"$scratch/files"
  sed -E 's#^([0-9]+) (/usr)?(/.*)$#\3\t\1#' "$scratch/mapped" | sort -u >"$scratch/files_mapped"
  find_services <<<"$(join -t $'\t' "$scratch/files" "$scratch/files_mapped" | sed -E 's/^(.*)\t(.*)$/\2 \1/')"
}
