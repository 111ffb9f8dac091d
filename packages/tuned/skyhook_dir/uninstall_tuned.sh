#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# uninstall_tuned.sh gives the host back the profile it had, removes the profiles and scripts of this package, and TuneD
# itself if this image installed it and no other package uses it.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
for part in host install profiles; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/tuned/$part.sh"
done

only_one
last=false
[ -n "$(other_users)" ] || last=true
removes=false
if [ "$last" = true ] && { [ -f "$state/packages" ] || [ -f "$state/listing" ]; }; then
  find_family
  [ -f "$state/packages" ] || installed | except_listed | note packages
  if plan_removal; then
    removes=true
  else
    warn "TuneD stays, because something else needs it by now"
  fi
fi

# The profile goes first: TuneD takes back all it has set, the boot loader's arguments too.
if ! have_tuned; then
  :
elif [ "$removes" = true ]; then
  if is_active; then
    tuned-adm off || warn "TuneD could not be switched off; its service is stopped instead"
    systemctl stop tuned
  fi
elif [ -n "$(noted "users/$package")" ]; then
  is_active || systemctl start tuned
  go_back
fi
while IFS= read -r path; do
  [ -z "$path" ] || take_file "$path"
done <<<"$(noted "files/$package")"

[ "$removes" = false ] || remove_tuned
if [ "$last" = true ]; then
  if have_tuned && [ -f "$state/service" ]; then
    if grep -qx inactive "$state/service"; then systemctl stop tuned; fi
    if grep -qx disabled "$state/service"; then systemctl disable tuned; fi
  fi
  rm -rf "${state:?}/etc-tuned"
  for left in packages listing folders before service; do forget "$left"; done
fi
forget "users/$package"
forget "due/$package"
tidy
