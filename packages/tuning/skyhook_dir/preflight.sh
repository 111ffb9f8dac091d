#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# preflight.sh says what of the configMap is not in effect, and what makes it so.
# shellcheck disable=SC2154 # settings/ is checked by itself
set -euo pipefail
# shellcheck source=/dev/null
. "${0%/*}/settings/all.sh"

# answer_faults ANSWER gives the first fault that the checks before have found as the reason.
answer_faults() {
  ((${#faults[@]} > 0)) || return 0
  printf '%s: %s\n' "$1" "${faults[0]}" >>"$SKYHOOK_ANSWER"
  printf "needs $1: %s\n" "${faults[@]}"
  faults=()
}

# answer_service NAME: one that does not run takes its settings when it starts.
answer_service() {
  service_property "$1" MainPID
  if [ "$REPLY" = 0 ]; then answer_faults config; else answer_faults "service $1"; fi
}

read_config
for path in "${sysctl_unseen[@]}"; do
  sysctl_name "$path"
  fault "a preflight cannot see $REPLY of the host, only its own"
done
answer_faults reboot
sysctl_check
limits_check
answer_faults config
wanted=("${service_names[@]}")
services_left
for name in "${left_names[@]}"; do
  fault "the configMap has no service_$name.conf any more"
  answer_service "$name"
done
for name in "${wanted[@]}"; do
  service_names=("$name")
  services_check_loaded
  ((${#faults[@]} > 0)) || services_check_running
  answer_service "$name"
done
kernel_check
kernel_check_running
answer_faults reboot
[ -s "$SKYHOOK_ANSWER" ] || printf 'none: all settings are in effect\n' >>"$SKYHOOK_ANSWER"
