#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# uninstall_tuned_check.sh finds what is left of this package.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
# shellcheck source=/dev/null # it is checked by itself
. "${0%/*}/tuned/host.sh"

for kind in users files due; do
  [ ! -f "$state/$kind/$package" ] || fault "$state/$kind/$package is still there: uninstall did not run to its end"
done
if [ -z "$(other_users)" ]; then
  for left in packages listing folders before service; do
    [ ! -f "$state/$left" ] || fault "$state/$left is still there: uninstall did not run to its end"
  done
fi
if [ -f "$SKYHOOK_DIR/undone" ] && have_tuned && is_active; then
  profile=$(cat "$SKYHOOK_DIR/undone")
  wait_until has_profile "$profile" || fault "the active profile is \"$REPLY\" and should be back at \"$profile\""
fi
end_with_faults
