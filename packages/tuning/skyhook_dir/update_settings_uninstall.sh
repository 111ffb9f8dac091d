#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update_settings_uninstall.sh makes the host what it would be for an empty configMap.
# shellcheck disable=SC2154 # settings/ is checked by itself
set -euo pipefail
# shellcheck source=/dev/null
. "${0%/*}/settings/all.sh"

only_one
[ -f "$undone" ] || : >"$undone"
sysctl_apply
limits_apply # before fs.nr_open goes back: nobody could log in with a nofile above it
sysctl_undo
services_apply
kernel_apply
tidy
