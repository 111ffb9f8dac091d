#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# update_check.sh: no allowed update is pending. What must restart for them only warns here, the interrupt may be yet to come.
set -euo pipefail
for part in host restart effect; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/update/$part.sh"
done

check_pending
end_with_faults
check_effect warn
