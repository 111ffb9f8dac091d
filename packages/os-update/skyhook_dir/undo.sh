#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# undo.sh goes back to the versions that were there before, as far as the host's repositories still have them.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
# shellcheck source=/dev/null # it is checked by itself
. "${0%/*}/update/host.sh"

find_family
make_scratch
only_one
repair
record_changes
read -r _ _ running _ </proc/version
installed >"$scratch/now"
is_installed() { grep -qxF -e "$1" "$scratch/now"; }

back=() new=()
while read -r name before after; do
  if [ -z "$name" ] || ! is_installed "$name $after"; then continue; fi # somebody else has changed it since
  exact "$name" "$after"
  if [ "$before" != - ]; then
    back+=("$name" "$before")
  elif [[ $REPLY == *"$running"* ]]; then
    warn "$REPLY stays: it is the kernel that runs"
  else
    new+=("$REPLY")
  fi
done <<<"$(kept versions)"

if ((${#back[@]} > 0)); then
  (refresh) || warn "the lists that are there are used"
  put_back "${back[@]}" || warn "not everything could go back, see above"
  installed >"$scratch/now"
  for ((i = 0; i < ${#back[@]}; i += 2)); do
    name=${back[i]} before=${back[i + 1]}
    if is_installed "$name $before"; then
      say "$name is back at $before"
      printf '%s\n' "$name $before" >>"$undone"
    else
      warn "$name stays as it is: no repository of this host has $before any more, or something else needs what is there"
    fi
  done
fi
((${#new[@]} == 0)) || remove_new "${new[@]}"
rm -rf "${state:?}"
rmdir "${state%/*}" 2>/dev/null || true
