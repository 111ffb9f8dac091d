#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# effect_check.sh: the updates are in effect. The newest kernel runs, and no service runs with files that were replaced.
set -euo pipefail
for part in host restart effect; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/update/$part.sh"
done

check_pending
check_effect fault
end_with_faults
