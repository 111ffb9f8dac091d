#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update_settings_check.sh asks the kernel, systemd, PAM's files and the boot loader whether the configMap is in effect, as
# far as it can be without a restart.
set -euo pipefail
# shellcheck source=/dev/null # settings/ is checked by itself
. "${0%/*}/settings/all.sh"

read_config
sysctl_check
limits_check
services_check
kernel_check
end_with_faults
