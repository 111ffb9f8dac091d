#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# effect.sh is what the checks have in common.
# shellcheck disable=SC2154 # the parts of this package share their variables
set -euo pipefail

check_pending() {
  local update
  read_config
  make_scratch
  if is_unfinished; then fault "updates are half installed; the next attempt goes on"; fi
  find_pending
  for update in "${pending[@]}"; do fault "the update ${update% *} to ${update#* } is not installed"; done
}

# check_effect warn|fault. Who is not root cannot read the maps of processes, and a guess may name a service too many, so it only warns.
# The step of the stage post-interrupt, which is root, is what fails for services.
check_effect() {
  local name tell=$1 runs=runs
  if find_old_kernel; then "$1" "$REPLY: restart the node; if it did, see which kernel its boot loader starts"; fi
  if ! maps_are_readable; then
    tell=warn runs='seems to run'
    if ! { : </proc/1/cgroup; } 2>/dev/null; then
      warn "/proc is mounted with hidepid, so that only root can tell what runs with replaced files"
      return
    fi
  fi
  find_stale
  for name in "${!services[@]}"; do "$tell" "$name.service $runs with ${services[$name]}, which was replaced: restart it"; done
  for name in "${!boot_services[@]}"; do "$tell" "$name.service $runs with ${boot_services[$name]}, which was replaced: restart the node"; done
}
