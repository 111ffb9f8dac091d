#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# apply_tuned_profile.sh gives TuneD the configMap's profiles and scripts, and makes tuned_profile active. What the
# configMap does not have any more goes, and so does the profile when tuned_profile goes.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
for part in host profiles; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/tuned/$part.sh"
done

have_tuned || fail "this host has no TuneD: the apply stage installs it"
read_config
only_one
[ -n "$wanted" ] || warn "the configMap has no tuned_profile, so the active profile is not chosen by this package"
had=$(noted "users/$package")
put_files
must_know
wait_until is_active || fail "the service tuned does not run; see journalctl -u tuned"
if [ -n "$wanted" ]; then
  remember_before
  if [ -f "$state/due/$package" ] || ! has_profile "$wanted" || is_changed; then
    printf '%s\n' "$wanted" | note "users/$package"
    # shellcheck disable=SC2086 # it is a list
    activate $wanted
  elif [ "$had" != "$wanted" ]; then
    printf '%s\n' "$wanted" | note "users/$package"
  fi
elif [ -n "$had" ]; then
  note "users/$package" </dev/null
  go_back
fi
drop_files
forget "due/$package"
tidy
