// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// runPod runs the init containers of a pod one after the other, or the containers of a compact pod, which wait for each other. As kubelets
// do, it updates the status when it accepts the pod, and again when a container ends.
func (f *simulation) runPod(ctx context.Context, p *corev1.Pod) {
	defer f.ended.Add(1)
	isCompact := podstate.IsCompact(p)
	if len(p.Spec.InitContainers) == 0 && !isCompact {
		f.runCheck(ctx, p)
		return
	}
	if !f.updatePod(ctx, p, acceptPod) {
		return
	}
	containers := p.Spec.InitContainers
	took := f.randomize(f.stageDuration) / time.Duration(max(1, len(containers)))
	if isCompact { // each container is a stage, and takes what the pod of a stage takes otherwise
		containers = p.Spec.Containers
	}
	for i := range containers {
		if isCompact {
			took = f.randomize(f.stageDuration)
		}
		if sleep(ctx, took) != nil {
			return
		}
		if isStage := isCompact || i > 0; f.try && isStage && p.Spec.NodeName == newNode(brokenNode).Name {
			f.failStage(ctx, p, i)
			return
		}
		message, err := f.carryOut(ctx, p, &containers[i])
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "scale: running pod %s: %v\n", p.Name, err)
			}
			return
		}
		if !f.updatePod(ctx, p, func(p *corev1.Pod) { f.endContainer(p, i, 0, message) }) {
			return
		}
	}
}

// updatePod changes the status of a pod, and reports whether the pod still exists.
func (f *simulation) updatePod(ctx context.Context, p *corev1.Pod, change func(*corev1.Pod)) bool {
	before := p.DeepCopy()
	change(p)
	err := f.client.Status().Patch(ctx, p, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "scale: updating the status of pod %s: %v\n", before.Name, err)
	}
	return err == nil
}

// acceptPod sets the status that a kubelet reports first.
func acceptPod(p *corev1.Pod) {
	kubelet.Create(p)
	now := metav1.Now()
	p.Status.StartTime, p.Status.HostIP = &now, "10.0.0.1"
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: "ContainersNotInitialized", LastTransitionTime: now}
		if t == corev1.PodReadyToStartContainers || t == corev1.PodScheduled {
			c.Status, c.Reason = corev1.ConditionTrue, ""
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	kubelet.Begin(p, 0, now.Time)
}

// carryOut does what a container does to its host, and returns the message it leaves: a reboot, if it is asked for one.
func (f *simulation) carryOut(ctx context.Context, p *corev1.Pod, c *corev1.Container) (string, error) {
	if len(c.Args) < 4 || c.Args[0] != string(pack.ModeInterrupt) {
		return "", nil
	}
	interrupt, err := pack.DecodeInterrupt(c.Args[3])
	if err != nil || interrupt.Type != pack.InterruptReboot {
		return "", err
	}
	proof, err := f.reboot(ctx, p.Spec.NodeName)
	if err != nil {
		return "", err
	}
	return string(pack.Message{Mode: pack.ModeInterrupt, Outcome: pack.Succeeded, Reboot: proof}.Encode()), nil
}

// reboot reboots a node: it is not ready for a while, and then it is in another boot.
func (f *simulation) reboot(ctx context.Context, name string) (*pack.Reboot, error) {
	n := &corev1.Node{}
	if err := f.client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return nil, fmt.Errorf("rebooting: %w", err)
	}
	proof := &pack.Reboot{From: n.Status.NodeInfo.BootID, To: fmt.Sprintf("%08x-0000-4000-8000-%012x", f.reboots.Add(1), time.Now().UnixNano()&0xffffffffffff)}
	update := func(patch string) error {
		if err := f.client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
			return fmt.Errorf("rebooting: %w", err)
		}
		return nil
	}
	if err := update(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady"}]}}`); err != nil {
		return nil, err
	}
	if err := sleep(ctx, f.randomize(f.stageDuration)); err != nil {
		return nil, err
	}
	return proof, update(fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`, proof.To))
}
