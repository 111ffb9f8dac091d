#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# What is allowed is installed, and nothing else: neither what is held nor what others have. An undo goes back as far as it can.
# shellcheck source=/dev/null disable=SC2154 # it is checked by itself
. /scenario/host.sh
kernel 6.1.0-1-amd64 6.1.1-1
for name in demo kept pinned old; do add Debian $name 1.0; done
add Foreign foreign 1.0
mkdir -p /files/usr/share/demo && echo 1 >/files/usr/share/demo/text
add Debian texts 1.0
rm -r /files
publish
apt-get -q -y install demo kept pinned old foreign texts >/dev/null
apt-mark -q auto demo >/dev/null
answers "none: no allowed update is pending, and nothing runs with replaced files"
for check in update_check effect_check; do succeeds $check && silent; done

# A newer one of the distribution itself is no security update; others have higher versions, one repository has no name at all.
add Debian demo 1.5
add Foreign demo 9.0
add Unnamed demo 9.1
add Foreign foreign 2.0
add Debian-Security demo 1.1 added
add Debian-Security added 1.1
add Debian-Security kept 1.1
add Debian-Security pinned 1.1
add Debian-Security old 1.1
add Debian-Security needy 1.1 foreign-only
add Debian-Security texts 1.1 foreign-only
add Foreign foreign-only 1.0
printf 'Package: pinned\nPin: release o=Foreign\nPin-Priority: 995\n' >/etc/apt/preferences.d/pinned
add Foreign pinned 5.0
publish
key held <<<'kep*'
chmod 600 /etc/apt/sources.list /etc/apt/preferences.d/pinned /var/lib/apt/lists/*Packages /var/lib/dpkg/status
answers "apply: 3 allowed updates pending: added, demo, old"
says "warning: apt keeps back texts"
fails update_check
says "error: the update demo to 1.1 is not installed"
step update || fail "update failed"
says "demo: 1.0 -> 1.1"
says "installed added 1.1"
has demo 1.1 && has added 1.1 && has old 1.1
has kept 1.0 && has foreign 1.0 && has pinned 1.0 && has texts 1.0 && has foreign-only
apt-mark showauto | grep -x demo >/dev/null
for check in update_check effect_check; do succeeds $check; done
answers "none: no allowed update is pending, and nothing runs with replaced files"
cp -r /var/lib/skyhook-packages /kept
succeeds update
diff -r /kept /var/lib/skyhook-packages

# A further update does not make the versions from before forgotten.
add Debian-Security demo 1.2 added
add Debian-Security added 1.2
publish
succeeds update
diff - /var/lib/skyhook-packages/os-update/versions <<'END'
added - 1.2
demo 1.0 1.2
old 1.0 1.1
END

# The configMap names another origin, and errors name the key and the remedy.
key origins <<<'o=Foreign'
answers "apply: 3 allowed updates pending: demo, foreign, pinned"
key origins <<<'security please'
fails update
says 'error: origins line 1, "security please": write a release as apt-cache policy shows it'
key held <<<'a,b'
fails update_check
says 'error: held line 1, "a,b": write the name of a package'

# An undo does not read the keys. What no repository has any more stays, and is named.
withdraw Debian old 1.0
succeeds undo
says "demo is back at 1.0"
says "warning: old stays as it is: no repository of this host has 1.0 any more"
has demo 1.0 && has old 1.1 && has added
has kept 1.0 && has foreign 1.0 && has pinned 1.0 && has texts 1.0
apt-mark showauto | grep -x demo >/dev/null
succeeds undo_check
succeeds undo
[ ! -e /var/lib/skyhook-packages ]
