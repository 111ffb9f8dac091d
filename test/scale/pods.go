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
	if !f.updatePod(ctx, p, func(s *corev1.PodStatus) { acceptPod(s, &p.Spec) }) {
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
		message, err := f.carryOut(ctx, p, &containers[i])
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "scale: running pod %s: %v\n", p.Name, err)
			}
			return
		}
		if !f.updatePod(ctx, p, func(s *corev1.PodStatus) { endContainer(s, i, message) }) {
			return
		}
	}
}

// updatePod changes the status of a pod, and reports whether the pod still exists.
func (f *simulation) updatePod(ctx context.Context, p *corev1.Pod, change func(*corev1.PodStatus)) bool {
	before := p.DeepCopy()
	change(&p.Status)
	err := f.client.Status().Patch(ctx, p, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "scale: updating the status of pod %s: %v\n", before.Name, err)
	}
	return err == nil
}

// acceptPod sets the status that a kubelet reports first: the first init container runs and the others wait, or all containers run.
func acceptPod(s *corev1.PodStatus, spec *corev1.PodSpec) {
	now := metav1.Now()
	s.Phase, s.StartTime, s.HostIP = corev1.PodPending, &now, "10.0.0.1"
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: "ContainersNotInitialized", LastTransitionTime: now}
		if t == corev1.PodReadyToStartContainers || t == corev1.PodScheduled {
			c.Status, c.Reason = corev1.ConditionTrue, ""
		}
		s.Conditions = append(s.Conditions, c)
	}
	waiting := func(of []corev1.Container) (out []corev1.ContainerStatus) {
		for _, c := range of {
			out = append(out, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}})
		}
		return out
	}
	s.InitContainerStatuses, s.ContainerStatuses = waiting(spec.InitContainers), waiting(spec.Containers)
	if len(s.InitContainerStatuses) == 0 {
		startContainers(s, now)
		return
	}
	s.InitContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
}

// startContainers sets that all containers run that are no init containers.
func startContainers(s *corev1.PodStatus, now metav1.Time) {
	s.Phase = corev1.PodRunning
	for i := range s.Conditions {
		s.Conditions[i].Status, s.Conditions[i].Reason = corev1.ConditionTrue, ""
	}
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].State, s.ContainerStatuses[i].Ready = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}, true
	}
}

// statusAt returns the status of a container; those after the init containers are the others.
func statusAt(s *corev1.PodStatus, i int) *corev1.ContainerStatus {
	if i < len(s.InitContainerStatuses) {
		return &s.InitContainerStatuses[i]
	}
	return &s.ContainerStatuses[i-len(s.InitContainerStatuses)]
}

// endContainer sets that a container has succeeded, and that what waited for an init container runs.
func endContainer(s *corev1.PodStatus, i int, message string) {
	now := metav1.Now()
	ended := statusAt(s, i)
	began := ended.State.Running.StartedAt
	ended.Ready = i < len(s.InitContainerStatuses)
	ended.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: began, FinishedAt: now, Message: message}}
	switch init := len(s.InitContainerStatuses); {
	case i+1 == init+len(s.ContainerStatuses):
		s.Phase = corev1.PodSucceeded
	case i+1 < init:
		s.InitContainerStatuses[i+1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	case i+1 == init:
		startContainers(s, now)
	}
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
