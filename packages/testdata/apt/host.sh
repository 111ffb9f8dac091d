#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# host.sh is read by the scenarios: repositories of packages, services with processes, the steps of the package, and what is expected.
# shellcheck disable=SC2034 # scenarios use it
set -euo pipefail
export SKYHOOK_DIR=/package DEBIAN_FRONTEND=noninteractive
trap 'echo "${BASH_SOURCE[0]} line $LINENO failed"' ERR
cgroup=/cgroup/skyhook-os-update-$RANDOM
trap 'find "$cgroup" -depth -type d 2>/dev/null | while read -r leaf; do kill_all "$leaf" && rmdir "$leaf"; done || true' EXIT

# kill_all CGROUP ends its processes.
kill_all() {
  local pid
  while read -r pid; do kill -9 "$pid"; done <<<"$(cat "$1/cgroup.procs" 2>/dev/null)" 2>/dev/null || true
  sleep 0.2
}

# add REPOSITORY NAME VERSION [DEPENDS] puts a package there, with the files of /files.
add() {
  local dir=/repo/$1
  mkdir -p "$dir" /files
  rm -rf /build && mkdir -p /build/DEBIAN && cp -r /files/. /build
  printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: T <t@example.com>\nDepends: %s\nDescription: test\n' \
    "$2" "$3" "${4:-base-files}" >/build/DEBIAN/control
  dpkg-deb --root-owner-group -b /build "$dir/$2_${3//:/_}.deb" >/dev/null
}

# withdraw REPOSITORY NAME VERSION takes it away again.
withdraw() { rm "/repo/$1/$2_$3.deb"; }

# publish writes the lists of the repositories: NAME is the label, and its first word the origin.
publish() {
  local dir deb
  for dir in /repo/*; do
    for deb in "$dir"/*.deb; do
      [ -f "$deb" ] || continue
      dpkg-deb -f "$deb"
      printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "${deb##*/}" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
    done >"$dir/Packages"
    [ "${dir##*/}" = Unnamed ] || printf 'Origin: %s\nLabel: %s\nSuite: stable\nSHA256:\n %s %s Packages\n' "$(basename "${dir%%-*}")" "${dir##*/}" \
      "$(sha256sum "$dir/Packages" | cut -d ' ' -f 1)" "$(stat -c %s "$dir/Packages")" >"$dir/Release"
    echo "deb [trusted=yes] file:$dir ./"
  done >/etc/apt/sources.list
  apt-get update -q >/tmp/update.log 2>&1 || { cat /tmp/update.log && return 1; }
}

key() { mkdir -p "$SKYHOOK_DIR/configmaps" && cat >"$SKYHOOK_DIR/configmaps/$1"; }

kernel() {
  echo "Linux version $1 (builder@example) (gcc-12) #1 SMP PREEMPT_DYNAMIC Debian $2 (2026-01-01)" >/version
  mountpoint -q /proc/version || mount --bind /version /proc/version
}

# serve SERVICE FOLDER COMMAND… starts a process of a service, with the libraries of a folder. A grep of it waits for its input.
serve() {
  local leaf=$cgroup/$1.service
  mkdir -p "$leaf"
  [ -p /input ] || mkfifo /input
  sleep 0.2 # what changes at the same moment counts as later
  LD_LIBRARY_PATH=$2 "${@:3}" <>/input >/dev/null 2>&1 &
  echo $! >"$leaf/cgroup.procs"
  disown
  sleep 0.3
}

stop() { kill_all "$cgroup/$1.service"; }

# step FILE runs a step on the host, as in a new admission.
step() {
  rm -f "$SKYHOOK_DIR/refreshed"
  bash "$SKYHOOK_DIR/skyhook_dir/$1.sh" >/tmp/said 2>&1
}

# as_nobody CHECK runs it as the agent does in a pod with few rights.
as_nobody() {
  setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all,+dac_read_search --inh-caps=-all,+dac_read_search \
    --ambient-caps=-all,+dac_read_search --no-new-privs bash "$SKYHOOK_DIR/skyhook_dir/$1.sh" >/tmp/said 2>&1 || fail "$1 failed as nobody"
}

# look lets the agent ask the package as in its pod: the root of the host is read-only but for a private /tmp, and the namespaces are others.
# It prints the answer, and then what was said.
# shellcheck disable=SC2016 # the inner shell expands it
look() {
  mkdir -p /pod
  rm -f /tmp/message
  unshare --mount --net --ipc --pid --fork --kill-child bash -euc '
    mount --rbind / /pod
    while read -r _ _ _ _ at _; do
      case $at in /pod | /pod/*) mount -o remount,bind,ro "$at" ;; esac
    done </proc/self/mountinfo
    mount -t tmpfs -o mode=1777 tmpfs /pod/tmp
    export SKYHOOK_DATA_DIR=/package SKYHOOK_RESOURCE_ID=demo-uid-1_os-update_1.0.0 SKYHOOK_TERMINATION_LOG=/tmp/message
    setpriv --no-new-privs --bounding-set=-all,+dac_read_search,+kill,+setgid,+setuid,+sys_chroot --inh-caps=-all \
      /scenario/skyhook-agent preflight /pod /tmp/skyhook/os-update' >/tmp/said 2>&1 || return
  sed -nE 's/.*"preflight":\{"answer":"([^"]*)"(,"services":\[([^]]*)\])?,"reason":"([^"]*)"(,"wrong":(true))?.*/\1 \3: \4\6/p' /tmp/message |
    sed 's/"//g; s/ : /: /; s/true$/, and this is wrong/'
}

fail() {
  echo "${BASH_SOURCE[-1]##*/} line ${BASH_LINENO[1]}: $*"
  sed 's/^/  /' /tmp/said
  exit 1
}

# answers LINE… compares what preflight answers.
answers() {
  local got
  got=$(look) || fail "preflight failed"
  [ "$got" = "$(printf '%s\n' "$@")" ] || fail "preflight answers: $got"
}

succeeds() { step "$1" || fail "$1 failed"; }
fails() { ! step "$1" || fail "$1 did not fail"; }
says() { grep -qE -- "$1" /tmp/said || fail "it does not say $1"; }
silent() { [ ! -s /tmp/said ] || fail "it says something"; }

# has NAME VERSION, or has NAME: what is installed.
has() {
  local got
  got=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null) || got=
  [ "$got" = "${2:+installed $2}" ] || fail "$1 is $got"
}
