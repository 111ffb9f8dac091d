// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packages takes the packages of this repository through their lives on a real systemd node, each through a real
// Skyhook: services really get their limits, the kernel its parameters, TuneD its profile, and an uninstall leaves the
// node as it was.
package packages_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/lab"
)

// node is the host of the stories. The operator may be driven off it, to the other one.
const node, other = "n1", "n2"

// Images the operator is told to use. The cluster's registry plays every registry there is.
const (
	operatorImage = "ghcr.io/skyhook-k8s/operator:e2e"
	agentImage    = "ghcr.io/skyhook-k8s/agent:e2e"
	pauseImage    = "registry.k8s.io/pause:3.10"
	registry      = "ghcr.io/nvidia/skyhook-packages/"
)

// versions are the tags under which each package is there: what differs is how the operator orders them.
var versions = []string{"2.0.0", "2.1.0"}

var (
	cluster *lab.Cluster
	kubectl string
)

func TestMain(m *testing.M) {
	lab.Init()
	if os.Geteuid() != 0 {
		fmt.Println("skipped: real nodes need root; run it as root, for example with make e2e")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute) // the first time everything has to be built
	defer cancel()
	down, err := up(ctx)
	defer down()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bringing up the cluster: %v\n", err)
		return 1
	}
	return m.Run()
}

// up brings up a cluster with the operator on it, or uses the one of ours that SKYHOOK_E2E_CLUSTER names.
func up(ctx context.Context) (down func(), err error) {
	down = func() {}
	if name := os.Getenv("SKYHOOK_E2E_CLUSTER"); name != "" {
		cluster, err = lab.Open(name)
	} else if cluster, err = lab.Up(ctx, lab.Spec{Name: fmt.Sprintf("packages-%d", os.Getpid()), Nodes: []string{node, other}, Tied: true}, os.Stderr); err == nil {
		down = func() {
			if err := cluster.Down(context.Background()); err != nil {
				fmt.Fprintf(os.Stderr, "taking the cluster down: %v\n", err)
			}
		}
	}
	if err != nil {
		return down, err
	}
	cache, err := build.Open(os.Stderr)
	if err != nil {
		return down, err
	}
	dir, err := cache.Kubernetes(ctx)
	if err != nil {
		return down, err
	}
	kubectl = filepath.Join(dir, "kubectl")
	if err := push(ctx); err != nil {
		return down, err
	}
	return down, install()
}

// push puts the images where manifests expect them. They are built from this tree, unless SKYHOOK_E2E_IMAGES names a folder
// that make image filled.
func push(ctx context.Context) error {
	dist := os.Getenv("SKYHOOK_E2E_IMAGES")
	if dist == "" {
		temp, err := os.MkdirTemp("", "e2e-images-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		cmd := exec.CommandContext(ctx, "go", "run", "./hack/mkimage", "--only", "operator,agent,pause,packages", "--platform", "linux/amd64", "--out", temp)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building images: %w\n%s", err, out)
		}
		dist = temp
	}
	names := map[string][]string{"operator": {operatorImage}, "agent": {agentImage}, "pause": {pauseImage}}
	for _, name := range []string{"shellscript", "tuning", "tuned"} {
		for _, v := range versions {
			names["packages-"+name] = append(names["packages-"+name], registry+name+":"+v)
		}
	}
	for file, refs := range names {
		for _, ref := range refs {
			if _, err := cluster.PushArchive(ctx, filepath.Join(dist, file+".tar"), ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// install puts the CRDs and the operator onto the cluster and waits for it.
func install() error {
	manifest, err := os.ReadFile("../skyhook/testdata/operator.yaml")
	if err != nil {
		return err
	}
	text := strings.NewReplacer("OPERATOR_IMAGE", operatorImage, "AGENT_IMAGE_VALUE", agentImage, "PAUSE_IMAGE_VALUE", pauseImage).Replace(string(manifest))
	for _, step := range []struct {
		input string
		args  []string
	}{
		{args: []string{"apply", "--server-side", "-f", "../../../chart/files/crds"}},
		{args: []string{"wait", "--for=condition=Established", "crd/skyhooks.skyhook.nvidia.com", "--timeout=300s"}},
		{input: text, args: []string{"apply", "-f", "-"}},
		{args: []string{"-n", "skyhook", "rollout", "status", "deployment/skyhook-operator", "--timeout=300s"}},
	} {
		if _, err := kube(step.input, step.args...); err != nil {
			return err
		}
	}
	return nil
}

func kube(input string, args ...string) (string, error) {
	cmd := exec.Command(kubectl, append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := kube(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// on runs a shell script on the node, as root of the host.
func on(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := cluster.Exec(ctx, node, "/bin/bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// into unpacks a folder of this machine into one of the node.
func into(t *testing.T, from, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	argv, err := cluster.Inside(ctx, node, "/bin/bash", "-c", "mkdir -p "+to+" && tar -C "+to+" -x")
	if err != nil {
		t.Fatal(err)
	}
	pack := exec.CommandContext(ctx, "tar", "-C", from, "-c", ".")
	unpack := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if unpack.Stdin, err = pack.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := pack.Start(); err != nil {
		t.Fatal(err)
	}
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("copying %s to %s on the node: %v: %s", from, to, err, out)
	}
	if err := pack.Wait(); err != nil {
		t.Fatal(err)
	}
}

// patience is how long is waited for anything. It is for machines that are slow, not for what is.
const patience = 8 * time.Minute

// eventually tries until f has nothing to complain about any more.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tell(t)
			t.Fatalf("after %s: %s: %v", patience, what, err)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// A skyhook is what stories look at in a Skyhook.
type skyhook struct {
	Metadata struct{ Generation int64 }
	Status   struct {
		Status             string
		ObservedGeneration int64
		Conditions         []struct{ Type, Status, Reason, Message string }
	}
}

func look(name string) (s skyhook, err error) {
	out, err := kube("", "get", "skyhook", name, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	return s, err
}

func (s skyhook) ready() (status, message string) {
	for _, c := range s.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status, c.Message
		}
	}
	return "", ""
}

// complete waits until a Skyhook is complete for the generation it has now.
func complete(t *testing.T, name string) {
	t.Helper()
	eventually(t, "Skyhook "+name+" is complete", func() error {
		s, err := look(name)
		if err != nil {
			return err
		}
		if ready, message := s.ready(); s.Status.Status != "complete" || s.Status.ObservedGeneration != s.Metadata.Generation || ready != "True" {
			return fmt.Errorf("status %q at generation %d of %d, Ready=%s: %s", s.Status.Status, s.Status.ObservedGeneration, s.Metadata.Generation, ready, message)
		}
		return nil
	})
}

// erroring waits until a Skyhook says why it failed.
func erroring(t *testing.T, name, why string) {
	t.Helper()
	eventually(t, "Skyhook "+name+" fails", func() error {
		s, err := look(name)
		if err != nil {
			return err
		}
		if _, message := s.ready(); s.Status.Status != "erroring" || !strings.Contains(message, why) {
			return fmt.Errorf("status %q: %s; want erroring and %q", s.Status.Status, message, why)
		}
		return nil
	})
}

// remove takes the package out of the Skyhook, so that it is uninstalled, and then the Skyhook away.
func remove(t *testing.T, name string) {
	t.Helper()
	apply(t, resource(name, "{}"))
	complete(t, name)
	if _, err := kube("", "delete", "skyhook", name, "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
}

func resource(name, packages string) string {
	return fmt.Sprintf(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: %s}
spec:
  nodeSelectors: {matchLabels: {kubernetes.io/hostname: %s}}
  packages: %s
`, name, node, packages)
}

// tell prints what helps to understand a failure.
func tell(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "skyhooks", "-o", "yaml"},
		{"-n", "skyhook", "get", "pods", "-o", "wide"},
		{"-n", "skyhook", "logs", "-l", "app=skyhook-operator", "--tail=60"},
	} {
		out, err := kube("", args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := cluster.Exec(ctx, node, "/bin/bash", "-c", "for f in $(ls -t $(find /var/log/skyhook -name '*.log') | head -n 6); do echo \"== $f\"; tail -n 40 $f; done; journalctl -n 40 --no-pager")
	t.Logf("logs of the node: %v\n%s", err, out)
}

// look at everything on the node that a package could have left behind: files with their owners, modes and contents, the
// parameters of the kernel that are the node's own, what systemd has loaded and enabled, and what is installed. Left out is
// what the node itself keeps writing.
const everything = `
cd /
find etc usr boot root home opt srv var tmp run/systemd/system -xdev \( -path var/lib/skyhook -o -path var/log -o -path var/cache -o -path var/tmp \
  -o -path var/lib/containerd -o -path var/lib/kubelet -o -path var/lib/cni -o -path var/lib/dpkg -o -path var/lib/apt -o -path var/lib/systemd \
  -o -path opt/kubernetes -o -path opt/containerd -o -path tmp -o -name __pycache__ \) -prune -o -printf '%p %y %m %u:%g %l\n'
find etc -xdev -type f ! -name 'passwd*' ! -name 'group*' ! -name 'shadow*' ! -name 'gshadow*' -exec sha256sum {} +
grep '' etc/passwd etc/group etc/shadow etc/gshadow
find proc/sys/net/core proc/sys/net/ipv4 -maxdepth 1 -type f | while read -r f; do echo "$f $(cat $f 2>/dev/null | tr '\t\n' '  ')"; done
dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n'
systemctl list-unit-files --no-legend --no-pager
for u in cron containerd kubelet; do systemctl show -p DropInPaths -p LimitNOFILE $u; done
`

func see(t *testing.T) []string {
	t.Helper()
	lines := strings.Split(on(t, everything), "\n")
	slices.Sort(lines)
	return slices.Compact(lines)
}

// same proves that the node is as it was. A line that differs is allowed if one of the reasons is part of it.
func same(t *testing.T, was []string, reasons ...string) {
	t.Helper()
	now := see(t)
	for _, line := range now {
		if _, found := slices.BinarySearch(was, line); !found && !allowed(line, reasons) {
			t.Errorf("came: %s", line)
		}
	}
	for _, line := range was {
		if _, found := slices.BinarySearch(now, line); !found && !allowed(line, reasons) {
			t.Errorf("went: %s", line)
		}
	}
}

func allowed(line string, reasons []string) bool {
	return slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(line, r) })
}
