#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# sysctl.sh: the key sysctl.conf. Values are set at once and at every boot; a key that goes gets its former value back.
# A parameter is known by its path below /proc/sys.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail

sysctl_own=/etc/sysctl.d/$mark.conf
sysctl_late=/etc/sysctl.d/$late.conf

sysctl_paths=()                                       # wanted, in order
sysctl_unseen=()                                      # wanted, and not to be seen here
declare -A sysctl_wanted=() sysctl_optional=()        # by path
declare -A boot_value=() boot_file=() boot_others=()  # what files say, by path
boot_patterns=() boot_pattern_values=() boot_pattern_files=()

# sysctl_path NAME: REPLY is the path. Whichever of . and / comes first separates; the other one is a dot in a name.
sysctl_path() {
  local name=$1 first=${1%%[./]*}
  case $name in '' | *[!A-Za-z0-9_.,/*?@:+-]*) return 1 ;; esac
  if [ "${name:${#first}:1}" = . ]; then
    name=${name//\//$'\n'}
    name=${name//./\/}
    name=${name//$'\n'/.}
  fi
  case /$name/ in *//* | */./* | */../*) return 1 ;; esac
  REPLY=$name
}

# sysctl_name PATH: REPLY is what people call it.
sysctl_name() {
  REPLY=${1//./$'\n'}
  REPLY=${REPLY//\//.}
  REPLY=${REPLY//$'\n'//}
}

# sysctl_is_hidden PATH: a preflight has processes of its own, and network and IPC too until it is known what this package declares. It would
# see their value and not the host's.
sysctl_is_hidden() {
  [ "${SKYHOOK_PREFLIGHT:-}" = true ] || return 1
  case $1 in
  net/* | kernel/sem* | kernel/shm* | kernel/msg* | kernel/auto_msgmni | fs/mqueue/*) [[ ,${SKYHOOK_PRIVILEGES:-}, != *,sysctl,* ]] ;;
  kernel/hostname | kernel/domainname | kernel/pid_max | kernel/ns_last_pid | vm/memfd_noexec) ;;
  *) [[ ${1%%/*} == *[*?]* ]] ;; # it may stand for one of them
  esac
}

# sysctl_running PATH: REPLY is the kernel's value; fails if it cannot be read. Some are of a process namespace, and a check has its own,
# which the numbers in the host's /proc show.
sysctl_running() {
  local value pid
  case $1 in
  kernel/pid_max | kernel/ns_last_pid | vm/memfd_noexec)
    if { read -r pid _ </proc/self/stat; } 2>/dev/null && [ "$pid" != "$BASHPID" ]; then return 1; fi
    ;;
  esac
  value=$(cat "/proc/sys/$1" 2>/dev/null) || return 1
  words "$value"
}

# sysctl_write PATH VALUE: fails with the kernel's reason in REPLY.
sysctl_write() {
  REPLY=$({ printf '%s\n' "$2" >"/proc/sys/$1"; } 2>&1) && return
  REPLY=${REPLY##*: }
  return 1
}

# sysctl_same A B: the kernel shows some numbers otherwise than they were written.
sysctl_same() {
  local -a a b
  local i
  read -r -a a <<<"$1"
  read -r -a b <<<"$2"
  [ "${#a[@]}" = "${#b[@]}" ] || return 1
  for i in "${!a[@]}"; do
    [ "${a[i]}" != "${b[i]}" ] || continue
    [[ ${a[i]} =~ ^(0|[1-9][0-9]{0,17}|0x[0-9a-fA-F]{1,15})$ && ${b[i]} =~ ^(0|[1-9][0-9]{0,17}|0x[0-9a-fA-F]{1,15})$ ]] || return 1
    ((a[i] == b[i])) || return 1
  done
}

# sysctl_lines FILE reads the lines of a file of sysctl.d into line_path, line_value, line_optional and line_number; a line
# that is none goes to line_wrong.
sysctl_lines() {
  local line name optional number=0
  line_path=() line_value=() line_optional=() line_number=() line_wrong=()
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    trim "${line%$'\r'}"
    line=$REPLY
    case $line in '' | '#'* | ';'*) continue ;; esac
    optional=false
    if [[ $line == -* ]]; then
      optional=true
      line=${line#-}
    fi
    trim "${line%%=*}"
    name=$REPLY
    if [[ $line != *=* ]] || ! sysctl_path "$name"; then
      line_wrong+=("line $number, \"${line:0:60}\"")
      continue
    fi
    line_path+=("$REPLY")
    words "${line#*=}"
    line_value+=("$REPLY")
    line_optional+=("$optional")
    line_number+=("$number")
  done <"$1"
}

# sysctl_read reads the configMap. Nothing is changed before every line has proved to be possible here.
sysctl_read() {
  local i path found text
  [ -f "$config/sysctl.conf" ] || return 0
  sysctl_lines "$config/sysctl.conf"
  for text in "${line_wrong[@]}"; do
    fault "sysctl.conf $text: write NAME = VALUE, such as net.core.somaxconn = 4096"
  done
  for pass in patterns names; do # a name beats a pattern, wherever it stands
    for i in "${!line_path[@]}"; do
      path=${line_path[i]}
      case $pass:$path in patterns:*[*?]*) ;; names:*[*?]*) continue ;; patterns:*) continue ;; esac
      found=false
      while IFS= read -r path; do
        if sysctl_is_hidden "$path"; then
          sysctl_unseen+=("$path") found=true
          continue
        fi
        [ -f "/proc/sys/$path" ] || continue
        found=true
        [ -n "${sysctl_wanted[$path]+x}" ] || sysctl_paths+=("$path")
        sysctl_wanted[$path]=${line_value[i]} sysctl_optional[$path]=${line_optional[i]}
      done <<<"$(sysctl_matches "${line_path[i]}")"
      if [ "$found" = false ] && [ "${line_optional[i]}" = false ]; then
        sysctl_name "${line_path[i]}"
        fault "sysctl.conf line ${line_number[i]}: this kernel has no $REPLY; correct the name, load the module that brings it, or write - in front to do without it"
      fi
    done
  done
}

# sysctl_matches PATTERN prints the paths that a path with * and ? stands for.
sysctl_matches() {
  if sysctl_is_hidden "$1"; then
    printf '%s\n' "$1"
    return
  fi
  case $1 in
  *[*?]*) (cd /proc/sys && compgen -G "$1") || true ;;
  *) printf '%s\n' "$1" ;;
  esac
}

# sysctl_scan LEFT_OUT… reads what is set at boot, file by file as systemd does, as if the files named were not there.
# boot_others has the paths that other packages of this image set.
sysctl_scan() {
  local dir file i path out
  local -A files=()
  boot_value=() boot_file=() boot_others=() boot_patterns=() boot_pattern_values=() boot_pattern_files=()
  for dir in /lib /usr/lib /usr/local/lib /run /etc; do
    for file in "$dir"/sysctl.d/*.conf; do files[${file##*/}]=$file; done
  done
  while IFS= read -r file; do
    file=${files[$file]}
    for out in "$@"; do [ "$file" != "$out" ] || continue 2; done
    [ -f "$file" ] || continue
    sysctl_lines "$file"
    for i in "${!line_path[@]}"; do
      path=${line_path[i]}
      case $path in
      *[*?]*)
        boot_patterns+=("$path") boot_pattern_values+=("${line_value[i]}") boot_pattern_files+=("$file")
        ;;
      *)
        boot_value[$path]=${line_value[i]} boot_file[$path]=$file
        if ours_too "$file"; then boot_others[$path]=$file; fi
        ;;
      esac
    done
  done <<<"$(printf '%s\n' "${!files[@]}" | sort)"
}

# boot_of PATH: REPLY is what the files that were scanned make of it at boot, and boot_by the file that decides.
boot_of() {
  local i
  if [ -n "${boot_value[$1]+x}" ]; then
    REPLY=${boot_value[$1]} boot_by=${boot_file[$1]}
    return
  fi
  for ((i = ${#boot_patterns[@]} - 1; i >= 0; i--)); do
    # shellcheck disable=SC2053 # it is a pattern
    if [[ $1 == ${boot_patterns[i]} ]]; then
      REPLY=${boot_pattern_values[i]} boot_by=${boot_pattern_files[i]}
      return
    fi
  done
  return 1
}
