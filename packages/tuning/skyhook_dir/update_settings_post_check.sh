#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update_settings_post_check.sh: as update_settings_check.sh, and whether restarted services and the booted kernel have what
# they were restarted for.
set -euo pipefail
# shellcheck source=/dev/null # settings/ is checked by itself
. "${0%/*}/settings/all.sh"

read_config
sysctl_check
limits_check
services_check
services_check_running
kernel_check
kernel_check_running
end_with_faults
