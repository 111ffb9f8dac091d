#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# services.sh: the keys service_NAME.conf, drop-ins of systemd. A service takes them when it is restarted, which is what the
# Skyhook's interrupt is for.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail

service_names=()
declare -A service_key=() service_unknown=() # by name

# What the kernel calls a limit of systemd, in /proc/PID/limits.
declare -A limit_title=(
  [NOFILE]='Max open files' [NPROC]='Max processes' [MEMLOCK]='Max locked memory' [STACK]='Max stack size'
  [FSIZE]='Max file size' [CORE]='Max core file size' [DATA]='Max data size' [RSS]='Max resident set'
  [AS]='Max address space' [LOCKS]='Max file locks' [SIGPENDING]='Max pending signals' [MSGQUEUE]='Max msgqueue size'
)

services_read() {
  local file name
  for file in "$config"/service_*.conf; do
    [ -f "$file" ] || continue
    name=${file##*/service_}
    name=${name%.conf}
    name=${name%.service}
    if [ -z "$name" ]; then
      fault "${file##*/} names no service; write service_NAME.conf, such as service_containerd.conf"
      continue
    fi
    if ! grep -qE '^[[:space:]]*\[[A-Za-z]+\]' "$file"; then
      fault "${file##*/} has no section, so systemd would ignore it; begin it with [Service]"
    fi
    if [ -n "${service_key[$name]+x}" ]; then
      fault "${file##*/} and ${service_key[$name]} are about the same service; keep one of them"
    fi
    service_names+=("$name")
    service_key[$name]=${file##*/}
  done
}

service_file() { REPLY=/etc/systemd/system/$1.service.d/$mark.conf; }

# services_left: left_names is the services that have a drop-in of ours, and no key any more.
services_left() {
  local file name
  left_names=()
  for file in /etc/systemd/system/*.service.d/"$mark".conf; do
    [ -e "$file" ] || continue
    name=${file#/etc/systemd/system/}
    name=${name%.service.d/*}
    [ -n "${service_key[$name]+x}" ] || left_names+=("$name")
  done
}

services_apply() {
  local name file
  for name in "${service_names[@]}"; do
    service_file "$name"
    file=$REPLY
    text "$config/${service_key[$name]}"
    if ! cmp -s "$file" - <<<"$REPLY"; then
      remember due "daemon-reload $package"
      put "$file" <<<"$REPLY"
    fi
    service_property "$name" NeedDaemonReload
    [ "$REPLY" != yes ] || remember due "daemon-reload $package"
  done
  services_left
  for name in "${left_names[@]}"; do
    remember due "daemon-reload $package"
    service_file "$name"
    take_away "$REPLY"
  done
  if remembered due "daemon-reload $package"; then
    tidy # an empty folder of drop-ins would be loaded too
    systemctl daemon-reload || {
      fault "systemctl daemon-reload failed, so systemd does not know the change; the next attempt runs it again"
      end_with_faults
    }
    forget due "daemon-reload $package"
  fi
}

# service_property NAME PROPERTY: REPLY is what systemd says; empty where it does not know, and a fault where it cannot be asked.
service_property() {
  if ! REPLY=$(systemctl show -p "$2" "$1.service"); then
    REPLY=
    [ -n "${service_unknown[$1]+x}" ] || fault "systemctl show cannot ask systemd about $1.service"
    service_unknown[$1]=yes
  fi
  REPLY=${REPLY#"$2="}
}

# service_limits NAME: limits is what a drop-in asks for, as LIMIT SOFT HARD. The last one of a kind counts.
service_limits() {
  local line limit text soft
  local -A seen=()
  text "$config/${service_key[$1]}"
  while IFS= read -r line; do
    [[ $line =~ ^[[:space:]]*Limit([A-Z]+)[[:space:]]*=(.*)$ ]] || continue
    limit=${BASH_REMATCH[1]}
    trim "${BASH_REMATCH[2]}"
    text=$REPLY
    [ -n "${limit_title[$limit]+x}" ] || continue
    service_number "${text%%:*}" || continue
    soft=$REPLY
    service_number "${text##*:}" || continue
    seen[$limit]="$soft $REPLY"
  done <<<"$REPLY"
  limits=()
  for limit in "${!limit_title[@]}"; do [ -z "${seen[$limit]+x}" ] || limits+=("$limit ${seen[$limit]}"); done
}

# service_number TEXT: REPLY is the number, or infinity. Sizes count in steps of 1024.
service_number() {
  local n
  case $1 in
  infinity | unlimited | 18446744073709551615) REPLY=infinity ;;
  *)
    [[ $1 =~ ^([0-9]{1,15})([KMGT]?)$ ]] || return 1
    n=$((10#${BASH_REMATCH[1]}))
    case ${BASH_REMATCH[2]} in
    K) n=$((n << 10)) ;; M) n=$((n << 20)) ;; G) n=$((n << 30)) ;; T) n=$((n << 40)) ;;
    esac
    REPLY=$n
    ;;
  esac
}

services_check() {
  local name
  services_check_loaded
  services_left
  for name in "${left_names[@]}"; do
    service_file "$name"
    gone "$REPLY"
  done
}

# services_check_loaded asks systemd whether it has read the drop-ins and whether they win.
services_check_loaded() {
  local name file limit soft hard loaded
  for name in "${service_names[@]}"; do
    service_file "$name"
    file=$REPLY
    text "$config/${service_key[$name]}"
    holds "$file" <<<"$REPLY"
    service_property "$name" LoadState
    if [ "$REPLY" = not-found ]; then
      warn "this host has no $name.service; the drop-in waits for it"
      continue
    fi
    service_property "$name" DropInPaths
    loaded=$REPLY
    if [[ " $loaded " != *" $file "* ]]; then
      fault "systemd has not read $file; run systemctl daemon-reload"
      continue
    fi
    service_property "$name" NeedDaemonReload
    [ "$REPLY" != yes ] || fault "systemd has not read the files of $name.service as they are now; run systemctl daemon-reload"
    service_overridden "$name" "${loaded#*"$file"}"
    service_limits "$name"
    for limit in "${limits[@]}"; do
      read -r limit soft hard <<<"$limit"
      service_configured "$name" "$limit" "$soft" "$hard" "${loaded#*"$file"}"
    done
  done
}

# service_overridden NAME LATER: what drop-ins that are read later set otherwise, but for limits: those are asked of systemd. What can
# be given several times only grows, unless it is emptied.
service_overridden() {
  local line key file other
  local -A value=()
  text "$config/${service_key[$1]}"
  while IFS= read -r line; do
    [[ ! $line =~ ^[[:space:]]*([A-Za-z]+)[[:space:]]*=[[:space:]]*(.*)$ ]] || value[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
  done <<<"$REPLY"
  for file in $2; do
    if ours_too "$file" || [ ! -f "$file" ]; then continue; fi
    while IFS= read -r line; do
      [[ $line =~ ^[[:space:]]*([A-Za-z]+)[[:space:]]*=[[:space:]]*(.*)$ ]] || continue
      key=${BASH_REMATCH[1]} other=${BASH_REMATCH[2]}
      if [ -z "${value[$key]+x}" ] || [ "$other" = "${value[$key]}" ]; then continue; fi
      case $key:$other in
      Limit*) continue ;;
      After:?* | Before:?* | Wants:?* | Requires:?* | BindsTo:?* | PartOf:?* | Conflicts:?* | On[FS]*:?*) continue ;;
      Exec*:?* | *Environment*:?* | Condition*:?* | Assert*:?* | *Paths:?* | *Credential*:?* | Bind*:?* | Supplementary*:?*) continue ;;
      Device*:?* | IO*:?*\ * | IPAddress*:?* | SystemCall*:?* | *Capabilit*:?* | Restrict*:?* | *Director*:?* | Documentation:?*) continue ;;
      esac
      fault "$1.service has $key=$other from $file, which is read later, and should have $key=${value[$key]}; remove it there"
    done <"$file"
  done
}

# service_configured NAME LIMIT SOFT HARD LATER: what the service gets at its next start.
service_configured() {
  local name=$1 limit=$2 file by='' property want
  for file in $5; do
    if grep -qE "^[[:space:]]*Limit${limit}[[:space:]]*=" "$file" 2>/dev/null; then by=$file; fi
  done
  for property in "Limit$limit $4" "Limit${limit}Soft $3"; do
    want=${property#* }
    service_property "$name" "${property% *}"
    [ -n "$REPLY" ] || continue # an older systemd does not tell the soft limit
    service_number "$REPLY" || continue
    [ "$REPLY" != "$want" ] || continue
    fault "$name.service has ${property% *} $REPLY and should have $want${by:+; $by is read later and sets it otherwise}"
  done
}

# services_check_running looks at what the processes were started with.
services_check_running() {
  local name pid limit hard line got
  for name in "${service_names[@]}"; do
    service_property "$name" MainPID
    pid=$REPLY
    if [ "$pid" = 0 ]; then
      say "$name.service does not run"
      continue
    elif [ -z "$pid" ] || [ ! -r "/proc/$pid/limits" ]; then
      fault "what $name.service runs with cannot be read"
      continue
    fi
    service_file "$name"
    if ! service_is_newer "$pid" "$REPLY"; then
      fault "$name.service has not been restarted since its drop-in was written, and goes on with its former settings; let an interrupt restart it"
      continue
    fi
    service_limits "$name"
    for limit in "${limits[@]}"; do
      read -r limit _ hard <<<"$limit"
      [ "$limit $hard" != 'NOFILE infinity' ] || continue # the kernel gives fs.nr_open, as it was then
      line=$(grep -F "${limit_title[$limit]} " "/proc/$pid/limits") || continue
      read -r _ got _ <<<"${line#"${limit_title[$limit]}"}"
      # A process may change its soft limit, and many do; the hard one is as systemd set it.
      [ "${got/unlimited/infinity}" = "$hard" ] || fault "$name.service runs with Limit$limit $got and should run with $hard"
    done
  done
}

# service_is_newer PID FILE compares when a process began with when a file was written, by the seconds.
service_is_newer() {
  local stat boot
  local -a fields
  stat=$(cat "/proc/$1/stat") || return 1
  read -r -a fields <<<"${stat##*) }" # what follows the name; the 20th is the start, in ticks since the boot
  boot=$(grep '^btime ' /proc/stat)
  ((${boot#btime } + fields[19] / $(getconf CLK_TCK 2>/dev/null || echo 100) + 1 >= $(stat -c %Y "$2")))
}
