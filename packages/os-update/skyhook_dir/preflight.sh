#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# preflight.sh says what the node needs: which updates are pending, and whether the kernel or services run with what is no more.
# It only looks, with the lists as they are.
# shellcheck disable=SC2154 # the parts set these
set -euo pipefail
for part in host restart; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${0%/*}/update/$part.sh"
done

answer() { printf '%s: %s\n' "$1" "$2" | tee -a "$SKYHOOK_ANSWER"; }

# need_space FOLDER MIB
need_space() {
  local free size
  read -r free size <<<"$(stat -f -c '%a %S' "$1")"
  free=$((free * size >> 20))
  ((free >= $2)) || answer blocked "$1 has $free MiB free, and updates need $2 MiB"
}

# answer_services REASON says which services restart, or that the node does. An answer holds few names.
answer_services() {
  local names
  names=$(printf '%s\n' "${!services[@]}" | sort | paste -sd ,)
  if ((${#boot_services[@]} > 0)); then
    answer reboot "$1 only a reboot restarts ${!boot_services[*]}, which has replaced files"
  elif ((${#names} + 2 * ${#services[@]} > 198)); then
    answer reboot "$1 ${#services[@]} services have replaced files, which is most of the host"
  elif [ -n "$names" ]; then
    answer "service $names" "$1 services with replaced files: ${names//,/, }"
  else
    return 1
  fi
}

read_config
make_scratch
if find_block; then answer blocked "$REPLY"; fi
find_pending
kernel=''
for update in "${pending[@]}"; do
  if is_kernel "${update% *}"; then kernel=${update% *}; fi
done
count="${#pending[@]} allowed updates pending"
((${#pending[@]} != 1)) || count="1 allowed update pending"
all=$(printf '%s, ' "${pending[@]% *}")
all="$count: ${all%, }"
if is_unfinished; then all="updates are half installed; $count"; fi
if ((${#pending[@]} > 0)); then
  need_space /var 500
  need_space /usr 500
  [ -z "$kernel" ] || need_space /boot 200
fi

list_age
age=$REPLY
if find_old_kernel; then
  answer reboot "$REPLY"
elif [ -n "$kernel" ]; then
  answer reboot "$count, among them $kernel: the kernel restarts with the node"
elif ((age > 2)); then
  answer reboot "the lists of the repositories are $age days old, so an update of the kernel cannot be ruled out"
elif ((${#pending[@]} > 0)) || is_unfinished; then
  find_stale
  ((${#pending[@]} == 0)) || find_future "${pending[@]% *}"
  answer_services "$all;" || answer apply "$all"
else
  find_stale
  answer_services "no allowed update is pending;" || answer none "no allowed update is pending, and nothing runs with replaced files"
fi
