// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package install_test takes installations through their life on real systemd nodes, as people do it: with Helm, with kubectl
// alone, and with make demo on a cluster that is there.
package install_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/lab"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// The cluster of this run, and the programs that people have.
var (
	cluster       *lab.Cluster
	kubectl, helm string
)

var nodes = []string{"n1", "n2"}

// images are where the chart and the examples look for them: the cluster's registry plays every registry there is.
var images = map[string]string{
	"operator.tar":             "ghcr.io/skyhook-k8s/skyhook/operator:v0.1.0",
	"agent.tar":                "ghcr.io/skyhook-k8s/skyhook/agent:v0.1.0",
	"pause.tar":                "registry.k8s.io/pause:3.10",
	"packages-shellscript.tar": "ghcr.io/nvidia/skyhook-packages/shellscript:1.1.0",
}

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

// up brings up a cluster, or uses the one of ours that SKYHOOK_E2E_CLUSTER names and leaves it up.
func up(ctx context.Context) (down func(), err error) {
	down = func() {}
	if name := os.Getenv("SKYHOOK_E2E_CLUSTER"); name != "" {
		cluster, err = lab.Open(name)
	} else {
		cluster, err = lab.Up(ctx, lab.Spec{Name: "e2e-install", Nodes: nodes}, os.Stderr)
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
	programs, err := cache.Kubernetes(ctx)
	if err != nil {
		return down, err
	}
	kubectl = filepath.Join(programs, "kubectl")
	if helm, err = output(exec.CommandContext(ctx, "go", "tool", "-C", filepath.Join(root(), "test", "chart"), "-n", "helm.sh/helm/v4/cmd/helm")); err != nil {
		return down, err
	}
	return down, push(ctx)
}

// push puts the images where the chart expects them. They are built from this tree, unless SKYHOOK_E2E_IMAGES names a folder
// that make image filled.
func push(ctx context.Context) error {
	dist := os.Getenv("SKYHOOK_E2E_IMAGES")
	if dist == "" {
		temp, err := os.MkdirTemp("", "e2e-images-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		cmd := exec.CommandContext(ctx, "go", "run", "./hack/mkimage", "--only", "operator,agent,pause,packages/shellscript", "--platform", "linux/amd64", "--out", temp)
		cmd.Dir = root()
		if _, err := output(cmd); err != nil {
			return err
		}
		dist = temp
	}
	for file, name := range images {
		if _, err := cluster.PushArchive(ctx, filepath.Join(dist, file), name); err != nil {
			return err
		}
	}
	tools, err := registry.Tools() // the sample of a NodeOp needs a shell
	if err != nil {
		return err
	}
	_, err = cluster.Push(ctx, "docker.io/library/busybox:1.36", tools)
	return err
}

func root() string {
	dir, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return dir
}

// output runs a program and returns what it printed; what it said besides is part of the error.
func output(cmd *exec.Cmd) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// person runs a program in the repository, as somebody who looks after the cluster.
func person(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	return output(cmd)
}

func must(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := person(program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply creates or changes an object.
func apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, kubectl, "apply", "-f", file)
}

// on runs a shell script on a node, as root of the host.
func on(t *testing.T, node, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := cluster.Exec(ctx, node, "/bin/bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
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

// tell prints what helps to understand a failure.
func tell(to *os.File) {
	for _, args := range [][]string{
		{"get", "skyhooks,nodeops", "-A", "-o", "yaml"}, {"get", "pods,jobs", "-A", "-o", "wide"}, {"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "skyhook", "describe", "pods"}, {"-n", "skyhook", "logs", "-l", "control-plane=controller-manager", "--tail=200"},
	} {
		out, err := person(kubectl, args...)
		_, _ = fmt.Fprintf(to, "\n--- kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			_, _ = fmt.Fprintln(to, err)
		}
	}
}
