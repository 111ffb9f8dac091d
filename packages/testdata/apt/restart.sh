#!/bin/bash
# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# A library is replaced under running processes: which services restart is known before, and checked after.
# shellcheck source=/dev/null disable=SC2154 # it is checked by itself
. /scenario/host.sh
kernel 6.1.0-1-amd64 6.1.1-1
library=$(ldd /bin/grep | sed -n 's/.* => \(.*libpcre2[^ ]*\) .*/\1/p')
mkdir -p /files/lib/demo /files/usr/lib/second
cp "$library" /files/lib/demo
cp "$library" /files/usr/lib/second
library=${library##*/}
add Debian libdemo 1.0
publish
apt-get -q -y install libdemo >/dev/null
serve demo /usr/lib/demo grep x
serve second@a.b /usr/lib/second /usr/bin/grep x
serve other '' sleep 1000
serve container.scope/inner /usr/lib/demo grep x
answers "none: no allowed update is pending, and nothing runs with replaced files"
add Debian-Security libdemo 1.1
publish
answers "service demo,second@a.b: 1 allowed update pending: libdemo; services with replaced files: demo, second@a.b"
succeeds update
succeeds update_check
says "^warning: demo.service runs with /usr/lib/demo/$library, which was replaced: restart it"
fails effect_check
says "^error: demo.service runs with /usr/lib/demo/$library, which was replaced: restart it"
says "^error: second@a.b.service"
as_nobody effect_check
says "^warning: demo.service seems to run with /usr/lib/demo/$library, which was replaced: restart it"
answers "service demo,second@a.b: no allowed update is pending; services with replaced files: demo, second@a.b"
stop second@a.b
answers "service demo: no allowed update is pending; services with replaced files: demo"
stop demo
serve demo /usr/lib/demo grep x
succeeds effect_check
silent
answers "none: no allowed update is pending, and nothing runs with replaced files"

# Of an interpreter, of a process with another name than its program, and of one whose program is gone, all libraries count, unless
# maps can be read.
cp /usr/bin/sleep /usr/bin/old
serve script '' perl -e 'sleep 1000'
serve renamed '' bash -c 'exec -a /usr/bin/ls sleep 1000'
serve gone '' /usr/bin/old 1000
answers "none: no allowed update is pending, and nothing runs with replaced files"
add Debian-Security libdemo 1.2
publish
answers "service demo,renamed,script: 1 allowed update pending: libdemo; services with replaced files: demo, renamed, script"
rm /usr/bin/old
succeeds update
answers "service demo,gone,renamed,script: no allowed update is pending; services with replaced files: demo, gone, renamed, script"
succeeds update_check
if grep -E 'script|renamed' /tmp/said; then fail "it names services by a guess"; fi
says "^warning: gone.service runs with /usr/bin/old"
for name in gone renamed script demo; do stop $name; done
serve demo /usr/lib/demo grep x

# A program that was replaced, and one that says more of itself than its name.
cp /usr/bin/sleep /usr/bin/titled
serve titled '' bash -c 'exec -a "titled: /usr/bin/titled [listener]" /usr/bin/titled 1000'
answers "none: no allowed update is pending, and nothing runs with replaced files"
cp /usr/bin/sleep /usr/bin/new && mv /usr/bin/new /usr/bin/titled
answers "service titled: no allowed update is pending; services with replaced files: titled"
stop titled

# Plugins belong to a program that names their folder.
mkdir /usr/lib/plugged && cp "/usr/lib/demo/$library" /usr/lib/plugged/in.so
cp /usr/bin/sleep /usr/bin/plugged && printf '\0/usr/lib/plugged\0' >>/usr/bin/plugged
serve plugged '' /usr/bin/plugged 1000
answers "none: no allowed update is pending, and nothing runs with replaced files"
cp "/usr/lib/demo/$library" /usr/lib/new.so && mv /usr/lib/new.so /usr/lib/plugged/in.so
answers "service plugged: no allowed update is pending; services with replaced files: plugged"
stop plugged

# What a restart of its service does not end waits for a reboot; dbus does not restart at all.
add Debian-Security libdemo 1.3
publish
main=$(head -n 1 "$cgroup/demo.service/cgroup.procs")
printf '#!/bin/sh\necho KillMode=process\necho MainPID=1\n' >/usr/local/sbin/systemctl && chmod +x /usr/local/sbin/systemctl
answers "apply: 1 allowed update pending: libdemo"
printf '#!/bin/sh\necho KillMode=process\necho MainPID=%s\n' "$main" >/usr/local/sbin/systemctl
answers "service demo: 1 allowed update pending: libdemo; services with replaced files: demo"
serve dbus /usr/lib/demo grep x
answers "reboot: 1 allowed update pending: libdemo; only a reboot restarts dbus, which has replaced files"

# Processes that cannot be seen may run with anything.
mount -o remount,hidepid=2 /proc
if look >/tmp/answer; then fail "preflight answers: $(cat /tmp/answer)"; fi
says "the processes of this host cannot be looked at"
succeeds update
for check in update_check effect_check; do
  as_nobody $check
  says "^warning: /proc is mounted with hidepid"
done
