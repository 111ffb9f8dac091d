#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update.sh installs the allowed updates, and records which versions were there before.
# shellcheck disable=SC2154 # host.sh sets these
set -euo pipefail
# shellcheck source=/dev/null # it is checked by itself
. "${0%/*}/update/host.sh"

read_config
make_scratch
only_one
repair
# Config follows apply in one admission: the lists are fetched once.
if [ ! -f "$SKYHOOK_DIR/refreshed" ]; then
  refresh
  keep refreshed </dev/null
fi
find_pending
if ((${#pending[@]} > 0)); then
  # What an attempt that was cut short has recorded is older, so it counts.
  [ -f "$state/listing" ] || installed | keep listing
  install_pending || fail "the updates were not installed completely; the next attempt goes on"
fi
record_changes
touch "$SKYHOOK_DIR/refreshed"
