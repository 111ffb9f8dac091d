// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// tried is the rollout that `make try` shows.
//
//go:embed try.yaml
var tried []byte

// brokenNode is the number of the node on which no package succeeds.
const brokenNode = 17

// prepareToTry sets what -try means: few nodes, and stages that a person can follow.
func (r *run) prepareToTry() {
	r.nodes, r.stageDuration, r.heartbeat, r.layout, r.defaults = 50, 3*time.Second, 10*time.Second, "", "Recommended"
}

// show installs and rolls out, and serves the page of the plugin until it is interrupted.
func (f *simulation) show(ctx context.Context, o *operator) error {
	installed, err := os.ReadFile("config/default/install.yaml") // the plugin reads settings from the Deployment, which nothing runs here
	if err != nil {
		return err
	}
	if err := f.apply(ctx, slices.Concat(installed, []byte("\n---\n"), tried)); err != nil {
		return err
	}
	plugin := filepath.Join(o.dir, "kubectl-skyhook")
	if err := f.build(ctx, plugin, "./cmd/kubectl-skyhook"); err != nil {
		return err
	}
	fmt.Printf(tryText, o.dir, o.kubeconfigPath(), newNode(brokenNode).Name)
	page := exec.CommandContext(ctx, plugin, "--kubeconfig", o.kubeconfigPath(), "ui", "--allow-changes")
	page.Cancel = func() error { return page.Process.Signal(os.Interrupt) }
	page.Stdout, page.Stderr = os.Stdout, os.Stderr
	if err := page.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("showing the page: %w", err)
	}
	return nil
}

// apply creates the objects of a manifest, or changes them.
func (f *simulation) apply(ctx context.Context, manifest []byte) error {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a manifest: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if err := f.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("try"), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

const tryText = `
Fifty simulated nodes in three zones, and the operator. A Skyhook begins with one canary in each zone. The others wait for your approval:
use the page below, or another terminal:

  export PATH=%s:$PATH KUBECONFIG=%s
  kubectl skyhook status tuning
  kubectl skyhook why tuning
  kubectl skyhook approve tuning default
  kubectl skyhook why %s      # this node is broken

Nothing runs on your machine but these processes. Ctrl-C ends and removes everything.

`

// failStage fails a container of a pod again and again, as on a host whose disk is read-only, until the operator deletes the pod.
func (f *simulation) failStage(ctx context.Context, p *corev1.Pod, container int) {
	exit := 1
	message := string(pack.Message{
		Mode: pack.ModeApply, Outcome: pack.Failed, Class: pack.StepFailed, Reason: "step apply.sh exited with 1", Step: "apply.sh", Exit: &exit, Ran: 1,
		Lines: []string{"apply.sh: line 2: /etc/sysctl.d/90-tuning.conf: Read-only file system"},
	}.Encode())
	for pause := 10 * time.Second; f.updatePod(ctx, p, func(p *corev1.Pod) { f.endContainer(p, container, 1, message) }); pause *= 2 {
		now := &corev1.Pod{}
		if sleep(ctx, pause) != nil || f.client.Get(ctx, client.ObjectKeyFromObject(p), now) != nil || now.UID != p.UID {
			return // another goroutine runs the next pod of this name
		}
	}
}

// endContainer ends a container. With -try it reports the digest of its image: until the operator knows that, it mounts no image.
func (f *simulation) endContainer(p *corev1.Pod, i int, code int32, message string) {
	kubelet.End(p, i, code, message, time.Now())
	if s := kubelet.Status(p, i); f.try {
		s.ImageID = fmt.Sprintf("%s@sha256:%x", s.Image[:strings.LastIndex(s.Image, ":")], sha256.Sum256([]byte(s.Image)))
	}
}
