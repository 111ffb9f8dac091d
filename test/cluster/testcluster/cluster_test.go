// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/cgroup"
)

func TestMain(m *testing.M) {
	Init()
	os.Exit(m.Run())
}

// required names the variable that, when it is 1, makes tests fail that would skip what this machine cannot do.
const required = "SKYHOOK_TEST_CLUSTER_REQUIRED"

// realClusters says that a test brings up real clusters.
func realClusters(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up real clusters, which takes minutes")
	}
	cache, err := build.Open(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if err := (Spec{Name: "test", Nodes: []string{"a", "b"}, Simulated: 1}).Require(cache); err != nil {
		if os.Getenv(required) == "1" {
			t.Fatal(err)
		}
		t.Skipf("brings up real clusters: %v", err)
	}
}

// named makes a name that another run of these tests on this machine does not use.
func named(name string) string { return fmt.Sprintf("test-%s-%d", name, os.Getpid()) }

// up brings a cluster up for this test, and prints its logs if the test fails.
func up(t *testing.T, s Spec) *Cluster {
	t.Helper()
	noTraces(t, s.Name)
	var said bytes.Buffer
	c, err := Up(context.Background(), s, &said)
	t.Log(said.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			var logs bytes.Buffer
			_ = c.Logs(context.Background(), &logs, 30)
			t.Log(logs.String())
		}
		if err := Down(context.Background(), s.Name); err != nil {
			t.Error(err)
		}
		noTraces(t, s.Name)
	})
	if len(traces(t, s.Name)) < 5 {
		t.Errorf("a running cluster leaves only %v: the test for traces looks in the wrong places", traces(t, s.Name))
	}
	return c
}

// Two clusters with the same node names live side by side; what happens to one does not reach the other. One is taken
// down, the supervisor of the other is killed: both times nothing is left.
func TestTwoClusters(t *testing.T) {
	realClusters(t)
	ctx := context.Background()
	one := up(t, Spec{Name: named("one"), Nodes: []string{"gpu-1"}})
	two := up(t, Spec{Name: named("two"), Nodes: []string{"gpu-1"}})
	machines := map[string]bool{}
	for _, c := range []*Cluster{one, two} {
		boot, err := c.BootID(ctx, "gpu-1")
		if err != nil {
			t.Fatal(err)
		}
		machines[boot] = true
	}
	if len(machines) != 2 {
		t.Errorf("two nodes with the same name have the boot ids %v", machines)
	}
	if names, err := Names(); err != nil || !slices.Equal(names, []string{named("one"), named("two")}) {
		t.Errorf("the clusters that are up are %v, %v", names, err)
	}
	if _, err := Up(ctx, Spec{Name: named("one"), Nodes: []string{"other"}}, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "is up already: take it down with `down --name "+named("one")+"`") {
		t.Errorf("bringing up a cluster that is up gave %v", err)
	}
	if err := one.Down(ctx); err != nil {
		t.Fatal(err)
	}
	noTraces(t, named("one"))
	if _, err := two.Exec(ctx, "gpu-1", "systemctl", "is-active", "kubelet"); err != nil {
		t.Errorf("after one cluster went down, on the other: %v", err)
	}
	supervisorKilled(t, two)
}

// supervisorKilled kills the supervisor as an out-of-memory killer would. The kernel takes the cluster with it: what remains is
// files and empty control groups, and Down, or the next Up, removes those.
func supervisorKilled(t *testing.T, c *Cluster) {
	t.Helper()
	group, err := cgroup.Open(c.paths.supervisorGroup())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range group.Processes() {
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(environment, []byte(supervisorVariable+"=")) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := c.paths.openGroup()
	if err != nil {
		t.Fatal(err)
	}
	err = pollUntil(context.Background(), "the cluster of a killed supervisor is gone", stepTimeout, func(context.Context) (bool, string) {
		return len(all.Processes()) == 0, fmt.Sprint(all.Processes())
	})
	if err != nil {
		t.Error(err)
	}
	if left := append(processesOf(t, c.paths), append(mountsOf(t, c.paths), networkOf(t, c.paths)...)...); len(left) > 0 {
		t.Errorf("a killed supervisor left %v", left)
	}
	if _, err := Open(c.Name); err == nil || !strings.Contains(err.Error(), "is not up") {
		t.Errorf("opening a cluster whose supervisor was killed gave %v", err)
	}
}

// A control plane on a node of its own goes away and comes back with the node, and knows what it knew.
func TestControlPlaneNode(t *testing.T) {
	realClusters(t)
	ctx := context.Background()
	c := up(t, Spec{Name: named("plane"), Nodes: []string{"worker"}, ControlPlane: "cp", Labels: []Label{{Key: "pool", Value: "gpu"}, {Node: "worker", Key: "zone", Value: "b"}}})
	n, err := c.Client.CoreV1().Nodes().Get(ctx, "cp", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, labelled := n.Labels["node-role.kubernetes.io/control-plane"]; !labelled || n.Labels["pool"] != "gpu" || len(n.Spec.Taints) != 1 {
		t.Errorf("the control plane's node has labels %v and taints %v", n.Labels, n.Spec.Taints)
	}
	before := n.Status.NodeInfo.BootID
	if err := c.Reboot(ctx, "cp"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitBoot(ctx, "cp", before); err != nil {
		t.Fatal(err)
	}
	worker, err := c.Client.CoreV1().Nodes().Get(ctx, "worker", metav1.GetOptions{})
	if err != nil || worker.Labels["zone"] != "b" {
		t.Errorf("after its reboot the control plane knows the worker as %v, %v", worker.Labels, err)
	}
	if err := c.Crash(ctx, "cp"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.CoreV1().Nodes().Get(ctx, "worker", metav1.GetOptions{}); err == nil {
		t.Error("the API server answers while its node is off")
	}
	if err := c.Start(ctx, "cp"); err != nil {
		t.Fatal(err)
	}
	if err := c.waitAPI(ctx); err != nil {
		t.Error(err)
	}
}

// What cannot work is said in one sentence, and leaves nothing.
func TestCannotComeUp(t *testing.T) {
	realClusters(t)
	ctx := context.Background()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	port := busy.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: named("bad"), Nodes: []string{"a"}, APIPort: port}, fmt.Sprintf("opening port %d of 127.0.0.1 for the API server: another program uses it; choose another --api-port", port)},
		{Spec{Name: named("bad"), Nodes: []string{"a"}, RegistryPort: port}, "another program uses it; choose another --registry-port"},
	} {
		if _, err := Up(ctx, c.spec, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.spec, err, c.want)
		}
		noTraces(t, named("bad"))
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Up(canceled, Spec{Name: named("bad"), Nodes: []string{"a"}}, new(bytes.Buffer)); err == nil {
		t.Error("a cluster came up although ^C was pressed")
	}
	noTraces(t, named("bad"))
}

func TestFullDisk(t *testing.T) {
	realClusters(t)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(small, 0) }()
	t.Setenv("XDG_STATE_HOME", small)
	_, err := Up(context.Background(), Spec{Name: named("full"), Nodes: []string{"a"}}, new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "free some space or set XDG_STATE_HOME to a directory with more") {
		t.Errorf("the error is %v", err)
	}
	noTraces(t, named("full"))
	if entries, err := os.ReadDir(small); err != nil || len(entries) > 0 {
		t.Errorf("on the full disk are %v, %v", entries, err)
	}
}

func TestMissingPrograms(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // with no root file system made, which takes mmdebstrap
	cache, err := build.Open(new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	keys := debianKeys
	debianKeys = []string{filepath.Join(t.TempDir(), "*")}
	t.Cleanup(func() { debianKeys = keys })
	err = Spec{Nodes: []string{"a"}}.requirePrograms(cache)
	if err == nil || !strings.Contains(err.Error(), "systemd-nspawn and ip and nsenter and mmdebstrap and the keys of the Debian archive cannot be found: "+
		"apt-get install -y systemd-container iproute2 util-linux mmdebstrap debian-archive-keyring") {
		t.Errorf("without any programs the error is %v", err)
	}
	if err := (Spec{Simulated: 3}).requirePrograms(cache); err == nil || !strings.Contains(err.Error(), "ip cannot be found: apt-get install -y iproute2") {
		t.Errorf("simulated nodes alone need ip alone; the error is %v", err)
	}
	if err := os.Symlink("/bin/true", filepath.Join(os.Getenv("PATH"), "ip")); err != nil {
		t.Fatal(err)
	}
	if err := (Spec{Simulated: 3}).requirePrograms(cache); err != nil {
		t.Errorf("with ip there the error is %v", err)
	}
}
