// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// acts are what a package without the privilege full must not be able to do as root, each with the only class that may, if any: reboot may
// what services may. All of them
// are harmless where they succeed.
const acts = `
write the host's settings        : echo evil >/etc/e2e-evil
write its programs               : echo evil >/usr/local/bin/e2e-evil
write into /run                  : echo evil >/run/systemd/e2e-evil
write into /var/tmp              : echo evil >/var/tmp/e2e-evil
write into shared memory         : echo evil >/dev/shm/e2e-evil
add a timed job                  : echo '# evil' >/etc/cron.d/e2e-evil
add a static pod                 : mkdir -p /etc/kubernetes/manifests && echo >/etc/kubernetes/manifests/.e2e-evil
add a unit                       : echo evil >/etc/systemd/system/e2e-evil.service
write another Skyhook's state    : mkdir -p /var/lib/skyhook/e2e-evil
change what others may read      : chmod 755 /etc
give a file to somebody          : chown root:root /etc/hostname
make a group of processes        : mkdir /sys/fs/cgroup/e2e-evil
see the kubelet's environment    : cat /proc/$(pgrep -xo kubelet)/environ
write by the kubelet's root      : echo evil >/proc/$(pgrep -xo kubelet)/root/etc/e2e-evil
leave its root by process 1      : chroot /proc/1/root true
go where the kubelet is          : nsenter -t $(pgrep -xo kubelet) -m true
look into the kubelet            : perl -e 'exit syscall($ENV{PTRACE}, 0x4206, $ARGV[0], 0, 0) != 0' $(pgrep -xo kubelet)
make mounts writable             : mount -o remount,rw /
mount                            : mount -t tmpfs none /mnt && umount /mnt
make a mount namespace           : unshare --mount true
make a process namespace         : unshare --pid --fork true
make a device                    : rm -f /tmp/e2e-evil; mknod /tmp/e2e-evil b 8 0 && rm /tmp/e2e-evil
open files by number             : perl -e 'my $x = ""; exit syscall($ENV{OPEN_BY_HANDLE}, -100, $x, 0) < 0 && $! =~ /permitted/'
ask the kernel past filters      : perl -e 'my $x = "\0" x 120; exit syscall($ENV{IO_URING}, 1, $x) < 0'
add a network interface          : ip link add e2e-evil type dummy && ip link delete e2e-evil
read the packet filter           : iptables -L -n
listen to all packets            : perl -MSocket -e 'socket(S, 17, SOCK_RAW, 768) or exit 1'
rename the host                  : hostname "$(cat /proc/sys/kernel/hostname)"
set the clock                    : date -s "$(date +%FT%T)"
forbid a reboot by keys          : perl -e 'exit syscall($ENV{REBOOT}, 0xfee1dead, 672274793, 0) != 0'
stop the kubelet       [services]: kill -0 $(pgrep -xo kubelet)
get before all others            : chrt -f 1 true
take a process' place in memory  : echo -1000 >/proc/$(pgrep -xo kubelet)/oom_score_adj
give a program rights            : cp /bin/true /tmp/e2e-true && perl -e 'my @x = ("/tmp/e2e-true", "security.capability", pack("VVVVV", 0x2000001, 1 << 13, 0, 0, 0)); exit syscall($ENV{SETXATTR}, $x[0], $x[1], $x[2], 20, 0) != 0'
ask containerd                   : perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("/run/containerd/containerd.sock")) or exit 1'
change the network       [sysctl]: cat /proc/sys/net/ipv4/tcp_fin_timeout >/tmp/e2e-old && cat /tmp/e2e-old >/proc/sys/net/ipv4/tcp_fin_timeout
ask systemd            [services]: perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("/run/systemd/private")) or exit 1'
restart a service      [services]: systemctl restart cron
run a program elsewhere[services]: systemd-run --quiet --service-type=oneshot true
`

// tryActs runs each act by itself, and prints which it could do. Then it does what a package is for: it writes where it may, under a new name
// and over what is there, and reads what only root may read.
const tryActs = `#!/bin/bash
arch=$(uname -m)
declare -A number=([x86_64]="101 304 425 169 188" [aarch64]="117 265 425 142 5")
read -r PTRACE OPEN_BY_HANDLE IO_URING REBOOT SETXATTR <<<"${number[$arch]}"
export PTRACE OPEN_BY_HANDLE IO_URING REBOOT SETXATTR
while IFS=: read -r name act; do
  if timeout 20 bash -c "$act" >/dev/null 2>&1 </dev/null; then echo "$name"; fi
done <"$SKYHOOK_DIR/configmaps/acts" | sed 's/ *\(\[.*\)\?$//' >/var/log/e2e-privileges/%[1]s.new
mv /var/log/e2e-privileges/%[1]s.new /var/log/e2e-privileges/%[1]s
grep -q root: /etc/shadow && echo new >/tmp/e2e-tmp && [ "$(id -u)" = 0 ]
`

// checkActs: a check reads as much, and writes nothing.
const checkActs = `#!/bin/bash
[ "$(id -u)" = 65534 ] || { echo "it runs as user $(id -u)"; exit 1; }
grep -q root: /etc/shadow && test -e /var/log/e2e-privileges/%[1]s || exit 1
if echo evil >/var/log/e2e-privileges/evil || echo evil >"$SKYHOOK_DIR/evil"; then exit 1; fi 2>&1
`

// TestPrivileges: a package with few privileges can do what these say, and nothing of what the same package can do without them. Its
// interrupt works all the same: no step of it runs there.
func TestPrivileges(t *testing.T) {
	const name = "privileges"
	node := cluster.ShareInterruptibleNodes(t, 1)[0]
	selectNodes(t, name, node)
	cluster.Exec(t, node, "mkdir -p /var/log/e2e-privileges; rm -f /var/log/e2e-privileges/*")
	classes := map[string]string{
		"files": "[/var/log/e2e-privileges]", "sysctl": "[sysctl, /var/log/e2e-privileges]", "services": "[services, /var/log/e2e-privileges]",
		"reboot": "[reboot, /var/log/e2e-privileges]",
	}
	packages, before := "", ""
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		packages += packageOf(class, classes[class], before, "\n      interrupt: {type: service, services: [cron]}")
		before = fmt.Sprintf("\n      dependsOn: {%s: 1.2.0}", class)
	}
	cron := cluster.Exec(t, node, "systemctl show -p ExecMainStartTimestampMonotonic cron")
	cluster.Apply(t, suite.Manifest(name, "", packages))
	cluster.WaitComplete(t, name)
	for class := range classes {
		var want []string
		mark := "[" + strings.Replace(class, "reboot", "services", 1) + "]"
		for line := range strings.Lines(acts) {
			name, _, _ := strings.Cut(line, ":")
			if name, may := strings.CutSuffix(strings.TrimSpace(name), mark); may {
				want = append(want, strings.TrimSpace(name))
			}
		}
		if got := cluster.Exec(t, node, "cat /var/log/e2e-privileges/"+class); got != strings.Join(want, "\n") {
			t.Errorf("with privileges %s a package could do\n%s\nand should\n%s", classes[class], got, strings.Join(want, "\n"))
		}
	}
	if cluster.Exec(t, node, "systemctl show -p ExecMainStartTimestampMonotonic cron") == cron {
		t.Error("the interrupt did not restart cron")
	}
	cluster.RemoveSkyhook(t, name)

	selectNodes(t, name, node)
	cluster.Apply(t, suite.Manifest(name, "", strings.ReplaceAll(packageOf("full", "[full]", "", ""), "apply_check.sh", "unused")))
	cluster.WaitComplete(t, name)
	got := strings.Split(cluster.Exec(t, node, "cat /var/log/e2e-privileges/full; rm -rf /var/log/e2e-privileges; "+
		"find /etc /usr/local/bin /run/systemd /var/tmp /dev/shm /var/lib/skyhook /sys/fs/cgroup -maxdepth 3 -name '*e2e-evil*' -exec rm -rf {} + 2>/dev/null; rmdir /sys/fs/cgroup/e2e-evil || true"), "\n")
	if len(got) < 30 {
		t.Errorf("without limits only these %d of %d acts succeed, so the others show nothing:\n%s", len(got), strings.Count(strings.TrimSpace(acts), "\n")+1, strings.Join(got, "\n"))
	}
	cluster.RemoveSkyhook(t, name)
}

func packageOf(class, privileges, before, more string) string {
	return fmt.Sprintf(`
    %[1]s:
      version: 1.2.0
      image: %[2]s
      privileges: %[3]s%[4]s%[5]s
      configMap:
        acts: %[6]q
        apply.sh: %[7]q
        apply_check.sh: %[8]q`, class, shellscript, privileges, before, more, strings.TrimPrefix(acts, "\n"), fmt.Sprintf(tryActs, class), fmt.Sprintf(checkActs, class))
}
