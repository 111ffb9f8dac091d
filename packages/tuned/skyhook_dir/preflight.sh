#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# preflight.sh says whether TuneD runs and the host is as the profile says. With INTERRUPT=true, what is not takes a reboot.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
for part in host profiles; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/tuned/$part.sh"
done

export TUNED_WAIT=0 # what is not so now is an answer
answer=apply
if ! have_tuned; then
  fault "this host has no TuneD"
elif ! is_active || ! is_enabled; then
  fault "the service tuned does not run, or would not after a boot"
else
  answer=config
  read_config
  while IFS= read -r path; do
    [ -z "$path" ] || [ -n "${source_of[$path]+x}" ] || fault "the configMap has nothing for $path any more"
  done <<<"$(noted "files/$package")"
  if [ -z "$wanted" ] && [ -n "$(noted "users/$package")" ]; then fault "the configMap has no tuned_profile any more"; fi
  check_files
  check_profile must
fi
if ((${#faults[@]} == 0)); then
  answer=none
  fault "the host is as the profile ${wanted:-of others} says"
elif [ "${INTERRUPT:-false}" = true ]; then
  answer=reboot
fi
printf '%s: %s\n' "$answer" "${faults[0]%; what was found is above}" | tee -a "$SKYHOOK_ANSWER"
