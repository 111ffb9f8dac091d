// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/internal/dump"
)

// TestImagePullSameText checks that status and why print the same sentence about a pod that cannot pull the image of the
// package or the agent, and do not call it working.
func TestImagePullSameText(t *testing.T) {
	const image, sentence = "registry.example/absent:1", "ImagePull: image registry.example/absent:1 cannot be pulled: no such host"
	for _, container := range []int{0, 1} {
		p, err := readDump("testdata/dumps/stuck.yaml")
		if err != nil {
			t.Fatal(err)
		}
		failImagePull(t, p, "n5", container, image)
		file := writeDump(t, p)
		for _, args := range [][]string{{"status", "base"}, {"why", "n5"}, {"why", "base"}} {
			text := runPlugin(t, append(args, "--from", file)...)
			if !strings.Contains(text, sentence) || strings.Contains(text, "Working") || strings.Contains(text, " runs") {
				t.Errorf("%v, container %d:\n%s\nwant %q", args, container, text, sentence)
			}
		}
	}
}

// failImagePull lets a container of base's pod on a node wait for its image.
func failImagePull(t *testing.T, p *dump.Cluster, node string, container int, image string) {
	t.Helper()
	for _, o := range p.Objects(corev1.SchemeGroupVersion.WithKind(podKind)) {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != node || !strings.HasPrefix(pod.Name, "base-") {
			continue
		}
		status := pod.Status.InitContainerStatuses[:container+1]
		status[container].Image = image
		status[container].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such host"}}
		pod.Status.InitContainerStatuses = status
		return
	}
	t.Fatalf("base has no pod on %s", node)
}

// TestPlanEvictsNoOperator checks that a plan, like the operator, evicts no pod of an operator.
func TestPlanEvictsNoOperator(t *testing.T) {
	for account, want := range map[string]bool{"skyhook-operator": false, "another": true} {
		p, err := readDump("testdata/dumps/stuck.yaml")
		if err != nil {
			t.Fatal(err)
		}
		p.Operator.OwnAccount = "skyhook-operator"
		for _, o := range p.Objects(corev1.SchemeGroupVersion.WithKind(podKind)) {
			if pod, ok := o.(*corev1.Pod); ok && pod.Name == "train" {
				pod.Namespace, pod.Labels, pod.Spec.ServiceAccountName = p.Operator.Namespace, nil, account
			}
		}
		var out, errs bytes.Buffer
		line := cli.Line{Args: []string{"plan", "--from", writeDump(t, p)}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
		if code := cli.Run(t.Context(), line); code != 0 {
			t.Fatalf("exit code %d\n%s", code, errs.String())
		}
		if got := strings.Contains(out.String(), "n2 evicts "+p.Operator.Namespace+"/train"); got != want {
			t.Errorf("a pod of %s is evicted: %v, want %v\n%s", account, got, want, out.String())
		}
	}
}

func writeDump(t *testing.T, p *dump.Cluster) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump.yaml")
	var text bytes.Buffer
	if err := p.Write(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// runPlugin runs the plugin, and returns its output.
func runPlugin(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), cli.Line{Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}); code != 0 {
		t.Fatalf("%v: exit code %d\n%s", args, code, errs.String())
	}
	return out.String()
}
