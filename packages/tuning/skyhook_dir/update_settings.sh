#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update_settings.sh makes the host what the configMap says: what is new is set, what is gone is taken back.
set -euo pipefail
# shellcheck source=/dev/null # settings/ is checked by itself
. "${0%/*}/settings/all.sh"

read_config
only_one
sysctl_apply
limits_apply # before fs.nr_open goes back: nobody could log in with a nofile above it
sysctl_undo
services_apply
kernel_apply
tidy
