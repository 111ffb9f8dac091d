#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# When nothing can be done now: another program is at work, or was interrupted. What our own attempt left is put in order.
# shellcheck source=/dev/null disable=SC2154 # it is checked by itself
. /scenario/host.sh
kernel 6.1.0-1-amd64 6.1.1-1
add Debian demo 1.0
add Debian other 1.0
publish
apt-get -q -y install demo other >/dev/null

perl -e 'use Fcntl; open(F, "+<", "/var/lib/dpkg/lock-frontend"); $l = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0); fcntl(F, F_SETLK, $l) or die; sleep 1000' &
holder=$!
sleep 0.5
answers "blocked: perl ($holder) holds /var/lib/dpkg/lock-frontend"
kill $holder

# An update is interrupted while its package is half configured.
add Debian-Security demo 1.1
publish
mkdir -p /build/DEBIAN && printf '#!/bin/sh\n[ ! -e /broken ]\n' >/build/DEBIAN/postinst && chmod +x /build/DEBIAN/postinst
dpkg-deb --root-owner-group -b /build /repo/Debian-Security/demo_1.1.deb >/dev/null
publish
touch /broken
fails update
says "error: the updates were not installed completely"
rm /broken
grep -qx 'demo 1.0' /var/lib/skyhook-packages/os-update/listing
answers "apply: updates are half installed; 0 allowed updates pending"
fails update_check
says "error: updates are half installed; the next attempt goes on"
mv /var/lib/skyhook-packages /kept
look >/tmp/answer
grep -qx "blocked: dpkg was interrupted; run dpkg --configure -a" /tmp/answer
mv /kept /var/lib/skyhook-packages
add Debian-Security other 1.1
publish
succeeds update
has demo 1.1 && has other 1.1
says "demo: 1.0 -> 1.1"

# Lists that nobody refreshes tell nothing.
find /var/lib/apt /var/lib/skyhook-packages -exec touch -d '5 days ago' {} +
answers "reboot: the lists of the repositories are 5 days old, so an update of the kernel cannot be ruled out"
succeeds update
answers "none: no allowed update is pending, and nothing runs with replaced files"
rm -r /repo/Debian
fails update
says "error: apt-get update failed; repair or remove the repository that is named above"
