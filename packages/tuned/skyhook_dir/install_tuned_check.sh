#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# install_tuned_check.sh: TuneD is there, its service runs and begins at boot, and it answers.
set -euo pipefail
# shellcheck source=/dev/null # it is checked by itself
. "${0%/*}/tuned/host.sh"

for program in tuned tuned-adm; do
  command -v "$program" >/dev/null || fault "this host has no $program"
done
end_with_faults
wait_until is_active || fault "the service tuned does not run"
is_enabled || fault "the service tuned is not enabled, so it would not run after a boot"
tuned-adm list >/dev/null || fault "tuned-adm list fails, so TuneD does not answer"
end_with_faults
