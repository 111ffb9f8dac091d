#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# A library is replaced under running processes: which services restart is known before, and checked after.
# shellcheck source=/dev/null disable=SC2154 # it is checked by itself
. /scenario/host.sh
kernel 6.1.0-1-amd64 6.1.1-1
mkdir -p /files/lib/demo /files/usr/lib/second
cp "$(ldd /bin/ls | sed -n 's/.* => \(.*libpcre2[^ ]*\) .*/\1/p')" /files/lib/demo/libdemo.so
cp /files/lib/demo/libdemo.so /files/usr/lib/second
add Debian libdemo 1.0
publish
apt-get -q -y install libdemo >/dev/null
serve demo /usr/lib/demo/libdemo.so
serve second@a.b /usr/lib/second/libdemo.so
serve other
serve container.scope/inner /usr/lib/demo/libdemo.so
answers "none: no allowed update is pending, and nothing runs with replaced files"
add Debian-Security libdemo 1.1
publish
answers "service demo,second@a.b: 1 allowed update pending: libdemo; services with replaced files: demo, second@a.b"
succeeds update
succeeds update_check
says "^warning: demo.service runs with /usr/lib/demo/libdemo.so, which was replaced: restart it"
fails effect_check
says "^error: demo.service runs with /usr/lib/demo/libdemo.so, which was replaced: restart it"
says "^error: second@a.b.service"
answers "service demo,second@a.b: no allowed update is pending; services with replaced files: demo, second@a.b"
stop second@a.b
stop demo
serve demo /usr/lib/demo/libdemo.so
succeeds effect_check
silent

# What a restart of its service does not end waits for a reboot; dbus does not restart at all.
add Debian-Security libdemo 1.2
publish
main=$(head -n 1 "$cgroup/demo.service/cgroup.procs")
printf '#!/bin/sh\necho KillMode=process\necho MainPID=1\n' >/usr/local/sbin/systemctl && chmod +x /usr/local/sbin/systemctl
answers "apply: 1 allowed update pending: libdemo"
printf '#!/bin/sh\necho KillMode=process\necho MainPID=%s\n' "$main" >/usr/local/sbin/systemctl
answers "service demo: 1 allowed update pending: libdemo; services with replaced files: demo"
serve dbus /usr/lib/demo/libdemo.so
answers "reboot: 1 allowed update pending: libdemo; only a reboot restarts dbus, which has replaced files"
