#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# install_tuned.sh makes sure that TuneD is installed and runs. In an upgrade, a TuneD that this package installed is
# brought to what the host's repositories have.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
for part in host install; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/tuned/$part.sh"
done

only_one
if ! have_tuned || [ -f "$state/listing" ]; then
  find_family
  install_tuned
elif [ -f "$state/packages" ]; then
  if [ -n "${PREVIOUS_VERSION:-}" ]; then
    find_family
    upgrade_tuned
  fi
elif [ ! -f "$state/service" ]; then
  {
    if is_enabled; then echo enabled; else echo disabled; fi
    if is_active; then echo active; else echo inactive; fi
  } | note service
fi
[ -f "$state/users/$package" ] || note "users/$package" </dev/null

is_enabled || systemctl enable tuned
is_active || systemctl start tuned
wait_until is_active || fail "the service tuned does not start; see journalctl -u tuned"
