#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update_settings_uninstall_check.sh finds what is left of this package.
# shellcheck disable=SC2154 # settings/ is checked by itself
set -euo pipefail
# shellcheck source=/dev/null
. "${0%/*}/settings/all.sh"

sysctl_check
limits_check
services_check
kernel_check
gone "$state/$kernel_state"
for work in daemon-reload update-grub; do
  ! remembered due "$work $package" || fault "$work did not run to its end"
done

# What was put back is still so, unless another package of this image has set it since.
sysctl_scan
if [ -f "$undone" ]; then
  while IFS=$'\t' read -r kind what value; do
    case $kind in
    sysctl)
      if [ -z "${boot_others[$what]+x}" ] && sysctl_running "$what" && ! sysctl_same "$REPLY" "$value"; then
        now=$REPLY
        sysctl_name "$what"
        fault "$REPLY is $now and should be back at $value"
      fi
      ;;
    kernel) ! kernel_has "$(kernel_next)" "$what" || fault "the next boot still has the kernel argument $what" ;;
    esac
  done <"$undone"
fi
end_with_faults
