// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet says what a kubelet and a Job controller report next. It is pure: who uses it keeps the clock and the
// API server, and decides what a container does.
//
// Containers are numbered in the order in which they end: init containers first, then the others, which start together. In a
// compact pod these are stages that wait for each other; in other pods they do not end by themselves.
package kubelet

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Create sets the status of a pod that the kubelet has seen: all of its containers wait. A pod that has a status keeps it.
func Create(p *corev1.Pod) {
	s := &p.Status
	if len(s.InitContainerStatuses)+len(s.ContainerStatuses) > 0 {
		return
	}
	waiting := func(of []corev1.Container, reason string) (out []corev1.ContainerStatus) {
		for _, c := range of {
			out = append(out, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: reason}}})
		}
		return out
	}
	reason := "ContainerCreating"
	if len(p.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	s.Phase = corev1.PodPending
	s.InitContainerStatuses, s.ContainerStatuses = waiting(p.Spec.InitContainers, reason), waiting(p.Spec.Containers, reason)
}

// Status returns the status of a container by its number.
func Status(p *corev1.Pod, i int) *corev1.ContainerStatus {
	if init := len(p.Status.InitContainerStatuses); i >= init {
		return &p.Status.ContainerStatuses[i-init]
	}
	return &p.Status.InitContainerStatuses[i]
}

// Next returns the number of the first container that has not succeeded; -1 when the pod has ended.
func Next(p *corev1.Pod) int {
	if HasEnded(p) {
		return -1
	}
	count := len(p.Status.InitContainerStatuses) + len(p.Status.ContainerStatuses)
	for i := range count {
		if t := Status(p, i).State.Terminated; t == nil || t.ExitCode != 0 {
			return i
		}
	}
	return -1
}

// HasEnded reports whether a pod has succeeded or failed.
func HasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Begin sets that a container runs, and those after it that start together with it. One that failed before is started again.
func Begin(p *corev1.Pod, i int, at time.Time) {
	run(Status(p, i), at)
	if i < len(p.Status.InitContainerStatuses) {
		return
	}
	p.Status.Phase = corev1.PodRunning
	for j := range p.Status.Conditions {
		p.Status.Conditions[j].Status, p.Status.Conditions[j].Reason = corev1.ConditionTrue, ""
	}
	for j := i + 1; j < len(p.Status.InitContainerStatuses)+len(p.Status.ContainerStatuses); j++ {
		if s := Status(p, j); s.State.Waiting != nil {
			run(s, at)
		}
	}
}

func run(s *corev1.ContainerStatus, at time.Time) {
	if s.State.Running != nil {
		return
	}
	if s.State.Terminated != nil {
		s.RestartCount++
		s.LastTerminationState = s.State
	}
	s.State, s.Ready = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}, true
}

// Wait sets that a container cannot start.
func Wait(p *corev1.Pod, i int, reason, message string) {
	Status(p, i).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// End sets that a container has run and ended. When it succeeded the next init container begins, or the containers that
// start together; when all have succeeded, so has the pod.
func End(p *corev1.Pod, i int, code int32, message string, at time.Time) {
	Begin(p, i, at)
	s, init := Status(p, i), len(p.Status.InitContainerStatuses)
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	s.Ready = i < init && code == 0
	s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.NewTime(at),
	}}
	switch next := Next(p); {
	case next < 0:
		p.Status.Phase = corev1.PodSucceeded
	case code == 0 && next == i+1 && next <= init:
		Begin(p, next, at)
	}
}

// EndAll ends all containers of a pod that is not restarted, one after the other, up to the first that fails.
func EndAll(p *corev1.Pod, code int32, message string, at time.Time) {
	Create(p)
	for i := Next(p); i >= 0; i = Next(p) {
		End(p, i, code, message, at)
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
	}
}

// Reject sets that the kubelet does not run a pod.
func Reject(p *corev1.Pod, reason, message string) {
	p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
}

// JobPod returns the pod that the Job controller creates for a Job.
func JobPod(j *batchv1.Job) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *j.Spec.Template.ObjectMeta.DeepCopy(), Spec: *j.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = j.Namespace, j.Name+"-0"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	return p
}

// HasJobEnded reports whether a Job has ended.
func HasJobEnded(j *batchv1.Job) bool { return len(j.Status.Conditions) > 0 }

// EndJob sets that a Job has ended.
func EndJob(j *batchv1.Job, succeeded bool, at time.Time) {
	now, s := metav1.NewTime(at), &j.Status
	if s.StartTime == nil {
		s.StartTime = &now
	}
	s.Active, s.UncountedTerminatedPods = 0, &batchv1.UncountedTerminatedPods{}
	met, end := batchv1.JobFailureTarget, batchv1.JobFailed
	if succeeded {
		s.Succeeded, s.CompletionTime = 1, &now
		met, end = batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
	} else {
		s.Failed = max(1, s.Failed)
	}
	for _, c := range []batchv1.JobConditionType{met, end} {
		s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now})
	}
}
