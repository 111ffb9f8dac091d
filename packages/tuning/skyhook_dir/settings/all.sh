#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# all.sh reads the parts: one for each key of the configMap.
# shellcheck disable=SC2034,SC2154 # the parts of this package share their variables
set -euo pipefail
for part in host sysctl sysctl_apply limits services kernel; do
  # shellcheck source=/dev/null # each is checked by itself
  . "${BASH_SOURCE[0]%/*}/$part.sh"
done

# read_config reads and judges all keys, before anything is changed.
read_config() {
  local file
  for file in "$config"/*; do
    case ${file##*/} in
    '*' | ..* | sysctl.conf | ulimit.conf | grub.conf | service_*.conf) ;;
    *) warn "configMap key ${file##*/} is not known, and does nothing; the keys are sysctl.conf, ulimit.conf, grub.conf and service_NAME.conf" ;;
    esac
  done
  sysctl_read
  limits_read
  services_read
  kernel_read
  end_with_faults
}
