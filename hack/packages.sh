#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages of Debian or Ubuntu that the tests need and that are missing. It needs root only if one is missing.
set -euo pipefail

want=(make git gcc libc6-dev shellcheck mmdebstrap debian-archive-keyring systemd-container busybox-static iproute2 iptables procps strace chromium yamllint jq)
missing=()
for p in "${want[@]}"; do
  # Ubuntu's chromium is a snap, which does not run everywhere; its images for CI have Chrome.
  [ "$p" = chromium ] && command -v google-chrome >/dev/null && continue
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} = 0 ] && exit
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
