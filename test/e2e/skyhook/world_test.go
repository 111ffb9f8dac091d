// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package skyhook tells the stories of a Skyhook on real systemd nodes: services really restart, nodes really reboot.
package skyhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/lab"
)

// The cluster of this run, and the kubectl that goes with it.
var (
	cluster *lab.Cluster
	kubectl string
)

// nodes are the hosts of the cluster.
var nodes = []string{"n1", "n2", "n3"}

// Images the operator is told to use. The cluster's registry plays every registry there is.
const (
	operatorImage = "ghcr.io/skyhook-k8s/operator:e2e"
	agentImage    = "ghcr.io/skyhook-k8s/agent:e2e"
	pauseImage    = "registry.k8s.io/pause:3.10"
	shellscript   = "ghcr.io/nvidia/skyhook-packages/shellscript"
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
		cluster, err = lab.Up(ctx, lab.Spec{Name: "e2e-skyhook", Nodes: nodes}, os.Stderr)
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
		cmd := exec.CommandContext(ctx, "go", "run", "./hack/mkimage", "--only", "operator,agent,pause,packages", "--platform", "linux/amd64", "--out", temp)
		cmd.Dir = root()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building images: %w\n%s", err, out)
		}
		dist = temp
	}
	for file, names := range map[string][]string{
		"operator.tar":             {operatorImage},
		"agent.tar":                {agentImage},
		"pause.tar":                {pauseImage},
		"packages-shellscript.tar": {shellscript + ":1.0.0", shellscript + ":1.1.0", shellscript + ":1.2.0"},
	} {
		for _, name := range names {
			if _, err := cluster.PushArchive(ctx, filepath.Join(dist, file), name); err != nil {
				return err
			}
		}
	}
	return nil
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
	return out.String(), nil
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kube("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
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
	out, err := tryOn(node, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryOn(node, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := cluster.Exec(ctx, node, "/bin/bash", "-c", script)
	return strings.TrimSpace(out), err
}

// patience is how long anything may take that has to happen. It is a bound and no promise: machines are slow at times.
const patience = 6 * time.Minute

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
		CompleteNodes      string
		Conditions         []struct{ Type, Status, Reason, Message string }
	}
}

func look(name string) (s skyhook, err error) {
	out, err := kube("", "get", "skyhook", name, "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

func (s skyhook) condition(typ string) (status, reason, message string) {
	for _, c := range s.Status.Conditions {
		if c.Type == typ {
			return c.Status, c.Reason, c.Message
		}
	}
	return "", "", ""
}

// complete waits until a Skyhook is complete for the generation it has now.
func complete(t *testing.T, name string) {
	t.Helper()
	eventually(t, "Skyhook "+name+" is complete", func() error {
		s, err := look(name)
		if err != nil {
			return err
		}
		if ready, _, message := s.condition("Ready"); s.Status.Status != "complete" || s.Status.ObservedGeneration != s.Metadata.Generation || ready != "True" {
			return fmt.Errorf("status %q at generation %d of %d, Ready=%s: %s", s.Status.Status, s.Status.ObservedGeneration, s.Metadata.Generation, ready, message)
		}
		return nil
	})
}

// label gives nodes the label story=NAME for the time of a test.
func label(t *testing.T, name string, on ...string) {
	t.Helper()
	for _, n := range on {
		must(t, "label", "node", n, "story="+name, "--overwrite")
	}
	t.Cleanup(func() {
		for _, n := range on {
			if out, err := kube("", "label", "node", n, "story-"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
}

// remove deletes a Skyhook and proves that nodes are as they were before.
func remove(t *testing.T, name string) {
	t.Helper()
	must(t, "delete", "skyhook", name, "--timeout="+patience.String())
	for _, n := range nodes {
		clean(t, n, name)
	}
}

// clean proves that a node is schedulable and carries nothing of a Skyhook any more.
func clean(t *testing.T, node, name string) {
	t.Helper()
	var n struct {
		Metadata struct{ Annotations, Labels map[string]string }
		Spec     struct{ Unschedulable bool }
		Status   struct{ Conditions []struct{ Type string } }
	}
	if err := json.Unmarshal([]byte(must(t, "get", "node", node, "-o", "json")), &n); err != nil {
		t.Fatal(err)
	}
	if n.Spec.Unschedulable {
		t.Errorf("node %s was left cordoned by Skyhook %s", node, name)
	}
	for _, keys := range []map[string]string{n.Metadata.Annotations, n.Metadata.Labels} {
		for k := range keys {
			if strings.HasPrefix(k, "skyhook.nvidia.com/") && strings.HasSuffix(k, "_"+name) {
				t.Errorf("node %s still carries %s", node, k)
			}
		}
	}
	for _, c := range n.Status.Conditions {
		if strings.HasPrefix(c.Type, "skyhook.nvidia.com/"+name+"/") {
			t.Errorf("node %s still has the condition %s", node, c.Type)
		}
	}
}

// tell prints what helps to understand a failure.
func tell(to *os.File) {
	for _, args := range [][]string{
		{"get", "skyhooks,deploymentpolicies", "-o", "yaml"},
		{"get", "nodes", "-o", "custom-columns=NAME:.metadata.name,BOOT:.status.nodeInfo.bootID,UNSCHEDULABLE:.spec.unschedulable,ANNOTATIONS:.metadata.annotations"},
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "skyhook", "describe", "pods"},
		{"-n", "skyhook", "logs", "-l", "app=skyhook-operator", "--tail=200"},
	} {
		out, err := kube("", args...)
		_, _ = fmt.Fprintf(to, "\n--- kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			_, _ = fmt.Fprintln(to, err)
		}
	}
}
