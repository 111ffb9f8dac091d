#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# apply_tuned_profile_check.sh: the files are there, the profile is active, and the host is as it says. Some of it may need
# the interrupt that follows: with INTERRUPT=true that is no failure here.
set -euo pipefail
for part in host profiles; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/tuned/$part.sh"
done

verify=must
[ "${INTERRUPT:-false}" != true ] || verify=may
read_config
check_files
check_profile "$verify"
end_with_faults
