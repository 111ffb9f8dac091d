// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// annotationStages lists the stages of a compact pod.
const annotationStages = v1alpha1.Group + "/stages"

// compactStage is a stage of a compact pod.
type compactStage struct {
	Name, Version, Stage, Container, Run, Hash string
}

func compactStages(p *corev1.Pod) []compactStage {
	var out []compactStage
	if err := json.Unmarshal([]byte(p.Annotations[annotationStages]), &out); err != nil {
		panic(err) // the operator wrote it
	}
	return out
}

// stepCompact takes a pod whose containers are stages one step further: its present container begins, fails, or ends.
func (r *Run) stepCompact(p *corev1.Pod, h *host, random *rand.Rand) {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return
	}
	stages := compactStages(p)
	at := 0
	for at < len(stages) && hasEnded(containerStatus(p, stages[at].Container)) {
		at++
	}
	status := containerStatus(p, stages[at].Container)
	chance := random.IntN(100)
	if r.failsOften(p.Labels[v1alpha1.LabelName]) {
		chance /= 4
	}
	if r.isQuiet {
		chance = 99
	}
	hasBegun := status != nil && status.State.Waiting == nil
	isFirst := at == 0 && !hasBegun
	isStopped := at > 0 && !(status != nil && status.State.Running != nil) && p.Annotations[podstate.AnnotationStop] != ""
	message := ""
	if stages[at].Container == "interrupt" {
		proof, isDone := r.interrupt(p, &p.Spec.Containers[0], h)
		if !isDone {
			return
		}
		message, chance = proof, max(chance, 20) // what it did is done
	}
	switch {
	case isStopped:
		r.setContainer(p, stages, at, corev1.ContainerState{Terminated: r.terminated(int32(pack.NotBegun.ExitCode()), "")})
	case chance < 4 && isFirst:
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "OutOfcpu", "Node didn't have enough resource: cpu"
	case chance < 7 && isFirst:
		r.setContainer(p, stages, at, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}})
	case chance < 9 && isFirst:
		r.setContainer(p, stages, at, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "failed to mkdir"}})
	case chance < 16:
		r.failCompact(p, stages, at)
	case chance < 40 && !hasBegun:
		r.setContainer(p, stages, at, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.now)}})
	default:
		r.setContainer(p, stages, at, corev1.ContainerState{Terminated: r.terminated(0, message)})
		r.noteStage(p, h, stages[at].Name, stages[at].Version, v1alpha1.Stage(stages[at].Stage))
		if at+1 == len(stages) {
			p.Status.Phase = corev1.PodSucceeded
		}
	}
	r.writeStatus(Pods, p)
}

func hasEnded(s *corev1.ContainerStatus) bool {
	return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

func (r *Run) terminated(code int32, message string) *corev1.ContainerStateTerminated {
	now := metav1.NewTime(r.now)
	return &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: now, FinishedAt: now}
}

// failCompact lets a stage fail; the kubelet will start its container again.
func (r *Run) failCompact(p *corev1.Pod, stages []compactStage, at int) {
	status := r.setContainer(p, stages, at, corev1.ContainerState{Terminated: r.terminated(1, "")})
	before := 0
	if at == 0 {
		before = attemptsBefore(p)
	}
	if before+int(status.RestartCount)+1 >= finalFailures {
		set(r.truth.gaveUp, r.uidOf(nodeKey(p.Spec.NodeName)), p.Labels[v1alpha1.LabelName], true)
	}
}

// setContainer sets the state of a container. One that failed before is restarted. If it is the first of a pod whose containers could be
// created, the others are started with it, and wait.
func (r *Run) setContainer(p *corev1.Pod, stages []compactStage, at int, state corev1.ContainerState) *corev1.ContainerStatus {
	p.Status.Phase = corev1.PodRunning
	for i, stage := range stages {
		s := containerStatus(p, stage.Container)
		if s == nil {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: stage.Container})
			s = containerStatus(p, stage.Container)
		}
		if i > at && state.Waiting == nil && s.State.Running == nil {
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.now)}}
		}
	}
	status := containerStatus(p, stages[at].Container)
	if t := status.State.Terminated; t != nil && t.ExitCode != 0 {
		status.RestartCount++
		status.LastTerminationState = status.State
	}
	status.State = state
	return status
}

func containerStatus(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
