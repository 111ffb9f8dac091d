// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeop tells the stories of NodeOps on real systemd nodes: nodes really drain, commands really run on hosts,
// hosts really reboot.
package nodeop_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/lab"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

var (
	cluster *lab.Cluster
	kubectl string
)

// nodes are the hosts of the cluster; n1 carries the label of a control plane.
var nodes = []string{"n1", "n2", "n3"}

// The cluster's registry plays every registry there is.
const (
	operatorImage = "ghcr.io/skyhook-k8s/operator:e2e"
	agentImage    = "ghcr.io/skyhook-k8s/agent:e2e"
	pauseImage    = "registry.k8s.io/pause:3.10"
	busybox       = "docker.io/library/busybox:latest"                                                                      // our own shell, which has what the examples need
	private       = "private-registry.example.com/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2-k3sv1.30.11-k3s1" // likewise
	kairos        = "quay.io/kairos/opensuse:leap-15.6-standard-amd64-generic-v3.4.2-k3sv1.30.11-k3s1"
)

// Releases of Kairos, as /etc/kairos-release has them.
const (
	oldRelease = "KAIROS_VERSION=v3.0.0\\n"
	newRelease = "KAIROS_VERSION=v3.4.2\\nKAIROS_SOFTWARE_VERSION_PREFIX=k3s\\nKAIROS_SOFTWARE_VERSION=v1.30.11+k3s1\\n"
	newVersion = "v3.4.2-k3sv1.30.11+k3s1"
)

// patience is how long anything may take on a machine that has other things to do.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	lab.Init()
	if os.Geteuid() != 0 {
		fmt.Println("skipped: real nodes need root; run it as root, for example with make e2e")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	down, err := up(ctx)
	defer down()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bringing up the cluster: %v\n", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		tell(os.Stderr)
	}
	return code
}

// up brings up a cluster with the operator on it, or uses the one of ours that SKYHOOK_E2E_CLUSTER names and leaves it up.
func up(ctx context.Context) (down func(), err error) {
	down = func() {}
	if name := os.Getenv("SKYHOOK_E2E_CLUSTER"); name != "" {
		cluster, err = lab.Open(name)
	} else {
		cluster, err = lab.Up(ctx, lab.Spec{Name: "e2e-nodeop", Nodes: nodes, APIServerProxy: true}, os.Stderr)
		if err == nil {
			down = func() {
				if err := cluster.Down(context.Background()); err != nil {
					fmt.Fprintf(os.Stderr, "taking the cluster down: %v\n", err)
				}
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

// push puts the images where manifests in the wild expect them. They are built from this tree, unless
// SKYHOOK_E2E_IMAGES names a folder that make image filled.
func push(ctx context.Context) error {
	dist := os.Getenv("SKYHOOK_E2E_IMAGES")
	if dist == "" {
		temp, err := os.MkdirTemp("", "e2e-images-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		cmd := exec.CommandContext(ctx, "go", "run", "./hack/mkimage", "--only", "operator,agent,pause,shell", "--platform", "linux/amd64", "--out", temp)
		cmd.Dir = root()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building images: %w\n%s", err, out)
		}
		dist = temp
	}
	for name, file := range map[string]string{operatorImage: "operator.tar", agentImage: "agent.tar", pauseImage: "pause.tar", busybox: "shell.tar", private: "shell.tar"} {
		if _, err := cluster.PushArchive(ctx, filepath.Join(dist, file), name); err != nil {
			return err
		}
	}
	return pushKairos(ctx, filepath.Join(dist, "shell.tar"))
}

// pushKairos makes an image that looks like Kairos to an upgrade: its agent writes down how it was called, and puts its
// own release file on the host.
func pushKairos(ctx context.Context, shell string) error {
	content, remove, err := registry.Open(shell)
	if err != nil {
		return err
	}
	defer remove()
	base, err := amd64(content)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	t := tar.NewWriter(&layer)
	for name, text := range map[string]string{
		"etc/kairos-release": strings.ReplaceAll(newRelease, "\\n", "\n"),
		"bin/kairos-agent":   "#!/bin/sh\nif [ \"$2\" = --help ]; then echo --exclude-path; exit 0; fi\necho \"$@\" >> /host/var/log/kairos-agent\ncp /etc/kairos-release /host/etc/kairos-release\n",
		"bin/mount":          "#!/bin/sh\ntrue\n",
		"bin/grep":           "#!/bin/sh\ncat > /dev/null\n",
	} {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := io.WriteString(t, text); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	added, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(base, added)
	if err != nil {
		return err
	}
	_, err = cluster.Push(ctx, kairos, image)
	return err
}

// amd64 finds the image for this machine in what an archive holds.
func amd64(content any) (v1.Image, error) {
	switch c := content.(type) {
	case v1.Image:
		return c, nil
	case v1.ImageIndex:
		list, err := c.IndexManifest()
		if err != nil {
			return nil, err
		}
		for _, d := range list.Manifests {
			if d.MediaType.IsIndex() {
				inner, err := c.ImageIndex(d.Digest)
				if err != nil {
					return nil, err
				}
				return amd64(inner)
			}
			if d.Platform == nil || d.Platform.Architecture == "amd64" {
				return c.Image(d.Digest)
			}
		}
	}
	return nil, fmt.Errorf("%T holds no image for amd64", content)
}

// install puts the CRDs and the operator onto the cluster and waits for it.
func install() error {
	manifest, err := os.ReadFile("testdata/operator.yaml")
	if err != nil {
		return err
	}
	text := strings.NewReplacer("OPERATOR_IMAGE", operatorImage, "AGENT_IMAGE_VALUE", agentImage, "PAUSE_IMAGE_VALUE", pauseImage).Replace(string(manifest))
	for _, step := range []struct {
		input string
		args  []string
	}{
		{args: []string{"apply", "--server-side", "-f", filepath.Join(root(), "chart", "files", "crds")}},
		{args: []string{"wait", "--for=condition=Established", "crd/nodeops.operator.kairos.io", "--timeout=120s"}},
		{input: text, args: []string{"apply", "-f", "-"}},
		{args: []string{"-n", "skyhook", "rollout", "status", "deployment/skyhook-operator", "--timeout=240s"}},
		{args: []string{"label", "node", "n1", "node-role.kubernetes.io/control-plane=true", "--overwrite"}},
	} {
		if _, err := kube(step.input, step.args...); err != nil {
			return err
		}
	}
	return nil
}

func root() string {
	dir, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return dir
}

// kube runs kubectl.
func kube(input string, args ...string) (string, error) {
	cmd := exec.Command(kubectl, append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kube("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := kube(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// on runs a shell script on a node, as root of the host.
func on(t *testing.T, node, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := cluster.Exec(ctx, node, "/bin/bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// eventually tries until f has nothing to complain about any more.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(250 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s: %s: %v", patience, what, err)
		}
	}
}

// status is what stories look at.
type status struct {
	Phase                             string
	Total, Completed, Failed, Skipped int
	Message                           string
	NodeStatuses                      map[string]struct {
		Phase, JobName, Message, RebootStatus, Output, CurrentVersion, TargetVersion string
		ExitCode                                                                     *int
		StartTime, CompletionTime                                                    time.Time
	}
}

// ends waits until an operation has a final phase, and wants it to be this one.
func ends(t *testing.T, kind, name, phase string) status {
	t.Helper()
	var last status
	eventually(t, kind+" "+name+" ends", func() error {
		out, err := kube("", "get", kind, name, "-o", "json")
		if err != nil {
			return err
		}
		var o struct{ Status status }
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			return err
		}
		if last = o.Status; last.Phase != "Completed" && last.Phase != "Failed" {
			return fmt.Errorf("it is %+v", last)
		}
		return nil
	})
	if last.Phase != phase {
		t.Fatalf("it ended as %+v", last)
	}
	return last
}

// boot is the id of a node's boot, as the API server has it.
func boot(t *testing.T, node string) string {
	t.Helper()
	return must(t, "get", "node", node, "-o", "jsonpath={.status.nodeInfo.bootID}")
}

// runsKairos makes hosts look like Kairos of a version for the time of a test, and waits until the operator has found out.
func runsKairos(t *testing.T, release string, hosts ...string) {
	t.Helper()
	say := func(n, script, managed string) {
		// The operator looks once for each boot. It has to have done so: what it is still looking at is the host of before.
		eventually(t, n+" was looked at since it booted", func() error {
			out, err := kube("", "get", "node", n, "-o", `jsonpath={.metadata.annotations.operator\.kairos\.io/looked-at}`)
			if id := boot(t, n); err == nil && !strings.HasPrefix(out, id+" ") {
				err = fmt.Errorf("it was looked at as %q, and its boot is %s", out, id)
			}
			return err
		})
		on(t, n, script)
		must(t, "annotate", "node", n, "operator.kairos.io/looked-at=before kairos", "--overwrite")
		eventually(t, n+" is looked at", func() error {
			out, err := kube("", "get", "node", n, "-o", `jsonpath={.metadata.labels.kairos\.io/managed}|{.metadata.annotations.operator\.kairos\.io/looked-at}`)
			if err == nil && (!strings.HasPrefix(out, managed+"|") || strings.Contains(out, "before")) {
				err = fmt.Errorf("%s", out)
			}
			return err
		})
	}
	for _, n := range hosts {
		say(n, "printf '"+release+"' > /etc/kairos-release; rm -f /var/log/kairos-agent", "true")
	}
	t.Cleanup(func() {
		for _, n := range hosts {
			say(n, "rm -f /etc/kairos-release", "")
		}
	})
}

// clean proves that a node is schedulable and carries nothing of a NodeOp any more.
func clean(t *testing.T, on ...string) {
	t.Helper()
	for _, n := range on {
		eventually(t, n+" is given back", func() error {
			out, err := kube("", "get", "node", n, "-o", "jsonpath={.spec.unschedulable} {.metadata.annotations}")
			if err == nil && (strings.HasPrefix(out, "true") || strings.Contains(out, "operator.kairos.io/record-") || strings.Contains(out, "operator.kairos.io/cordoned-by")) {
				err = fmt.Errorf("%s", out)
			}
			return err
		})
	}
}

// tell prints what helps to understand a failure.
func tell(to *os.File) {
	for _, args := range [][]string{
		{"get", "nodeops,nodeopupgrades", "-A", "-o", "yaml"},
		{"get", "nodes", "-o", "custom-columns=NAME:.metadata.name,BOOT:.status.nodeInfo.bootID,UNSCHEDULABLE:.spec.unschedulable,ANNOTATIONS:.metadata.annotations"},
		{"get", "pods,jobs", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "skyhook", "logs", "-l", "app=skyhook-operator", "--tail=200"},
	} {
		out, err := kube("", args...)
		_, _ = fmt.Fprintf(to, "\n--- kubectl %s\n%s\n", strings.Join(args, " "), out)
		if err != nil {
			_, _ = fmt.Fprintln(to, err)
		}
	}
}
