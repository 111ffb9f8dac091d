// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// preflight looks whether the host has a file. Before that it tries what a preflight must not be able to do.
const preflight = `#!/bin/bash
answer() { echo "$1" >>"$SKYHOOK_ANSWER"; }
for path in /etc /run /var/tmp /dev/shm /proc/1/root/etc /sys/fs/cgroup; do
  if echo evil >"$path/e2e-evil"; then answer "blocked: it writes $path"; fi
done 2>&1
for knob in /proc/sys/vm/drop_caches /proc/sysrq-trigger /run/initctl /dev/mem; do
  if echo 1 >"$knob"; then answer "blocked: it writes $knob"; fi
done 2>&1
for socket in /run/containerd/containerd.sock /run/systemd/private; do
  if perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un($ARGV[0])) or exit 1' "$socket"; then
    answer "blocked: it connects to $socket"
  fi
done
if systemctl restart cron; then answer "blocked: it restarts services"; fi 2>&1
if unshare --mount true; then answer "blocked: it makes namespaces"; fi 2>&1
if mount -o remount,rw /; then answer "blocked: it mounts"; fi 2>&1
if kill -0 1; then answer "blocked: it signals processes of the host"; fi 2>&1
if chroot /proc/1/root true; then answer "blocked: it leaves its root"; fi 2>&1
grep -q root: /etc/shadow || answer "blocked: it cannot read all files"
grep -q 'Max open files' /proc/1/limits || answer "blocked: it cannot read the limits of processes"
if grep -q new /etc/e2e-least; then answer "none: the file is there"; else answer "reboot: the file is missing"; fi
`

const preflightConfig = `{"schema_version": "v1", "package_name": "least", "package_version": "1.0.0", "expected_config_files": [], "modes": {
  "preflight": [{"name": "look", "path": "preflight.sh", "arguments": [], "returncodes": [0], "on_host": true, "idempotence": true, "upgrade_step": false}],
  "apply": [{"name": "apply", "path": "do.sh", "arguments": ["apply"], "returncodes": [0], "on_host": true, "idempotence": true, "upgrade_step": false}],
  "apply-check": [{"name": "check", "path": "check.sh", "arguments": [], "returncodes": [0], "on_host": true, "idempotence": true, "upgrade_step": false}]
}}`

// TestPreflight: of two nodes one needs nothing. The plan says which, before anybody applies the package; then that node is neither cordoned
// nor rebooted, and the other one reboots once.
func TestPreflight(t *testing.T) {
	const name = "least"
	local, nodes := cluster.LocalCluster(t, "pushes a package"), cluster.ShareInterruptibleNodes(t, 2)
	files, err := registry.Image(map[string]registry.File{
		"skyhook-package/config.json":              {Content: []byte(preflightConfig), Mode: 0o644},
		"skyhook-package/skyhook_dir/preflight.sh": {Content: []byte(preflight), Mode: 0o755},
		"skyhook-package/skyhook_dir/do.sh":        {Content: []byte("#!/bin/sh\necho new > /etc/e2e-least; echo \"$1\" >> /var/log/e2e-least\n"), Mode: 0o755},
		"skyhook-package/skyhook_dir/check.sh":     {Content: []byte("#!/bin/sh\ngrep new /etc/e2e-least\n"), Mode: 0o755},
	})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := files.Layers()
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(cluster.PackageImage(t, "shellscript"), layers...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.Push(context.Background(), suite.PackageRepository+"least:1.0.0", image); err != nil {
		t.Fatal(err)
	}
	selectNodes(t, name, nodes...)
	cluster.Exec(t, nodes[0], "echo new > /etc/e2e-least; rm -f /var/log/e2e-least")
	cluster.Exec(t, nodes[1], "rm -f /etc/e2e-least /var/log/e2e-least")
	manifest := suite.Manifest(name, "\n  preflight: Ask", `
    least:
      version: 1.0.0
      image: `+suite.PackageRepository+`least
      interrupt: {type: reboot}`)
	requireNeeds(t, manifest, nodes)

	watch := watchNodes(t, nodes[0])
	cluster.Apply(t, manifest)
	cluster.WaitComplete(t, name)
	watch.stop()
	if watch.mostCordoned != 0 || len(watch.boots[nodes[0]]) != 1 || len(watch.boots[nodes[1]]) != 2 {
		t.Errorf("%d nodes were cordoned that need nothing, and the nodes had the boots %v", watch.mostCordoned, watch.boots)
	}
	for n, want := range map[string]string{nodes[0]: "", nodes[1]: "apply"} {
		if out := cluster.Exec(t, n, "cat /var/log/e2e-least || true; ls /*/e2e-evil /var/tmp/e2e-evil /dev/shm/e2e-evil || true"); out != want {
			t.Errorf("on node %s there is %q", n, out)
		}
	}
	cluster.RemoveSkyhook(t, name)
}

// requireNeeds checks that the plan of a manifest that is not applied says what nodes need, and leaves nothing behind.
func requireNeeds(t *testing.T, manifest string, nodes []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "least.yaml")
	if err := os.WriteFile(file, []byte(cluster.Localize(manifest)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cluster.Command(suite.BuildPlugin(t), "plan", "least", "-f", file, "--preflight").CombinedOutput()
	want := regexp.MustCompile(`(?s)none +1 node: ` + nodes[0] + ` +least needs nothing: the file is there\n +reboot +1 node: ` + nodes[1] + ` +least needs its stages, and a reboot: the file is missing`)
	if err != nil || !want.Match(out) {
		t.Errorf("the plan is %v\n%s", err, out)
	}
	if out := cluster.Kubectl(t, "get", "pods", "-n", suite.OperatorNamespace, "-l", "skyhook.nvidia.com/plan", "-o", "name"); out != "" {
		t.Errorf("pods of the plan are left: %s", out)
	}
}
