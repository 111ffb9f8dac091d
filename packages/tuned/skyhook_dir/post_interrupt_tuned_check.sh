#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# post_interrupt_tuned_check.sh: as apply_tuned_profile_check.sh, and now the host has to be as the profile says.
set -euo pipefail
for part in host profiles; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/tuned/$part.sh"
done

read_config
check_files
check_profile must
end_with_faults
