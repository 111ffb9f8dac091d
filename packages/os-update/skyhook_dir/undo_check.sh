#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# undo_check.sh: nothing is left of this package, and what went back is still so.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
# shellcheck source=/dev/null # it is checked by itself
. "${0%/*}/update/host.sh"

find_family
[ ! -e "$state" ] || fault "$state is still there: uninstall did not run to its end"
if [ -f "$undone" ]; then
  all=$(installed)
  while IFS= read -r line; do
    grep -qxF -e "$line" <<<"$all" || fault "${line% *} is not at ${line#* } any more"
  done <"$undone"
fi
end_with_faults
