// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package podstate reads what the pods of a Skyhook say: which stage they run, how far it is, and what failed.
package podstate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Shorter names for the states that come from a pod.
const (
	Running   = rollout.StateRunning
	failing   = rollout.StateFailing
	Succeeded = rollout.StateSucceeded
)

// killed is the exit code of a container that got SIGKILL.
const killed = 137

// Annotation is the annotation of our pods that names the package and stage. The order of the fields is part of the format.
type Annotation struct {
	Name         string         `json:"name"`
	Version      string         `json:"version"`
	Skyhook      string         `json:"skyhook"`
	Stage        v1alpha1.Stage `json:"stage"`
	Image        string         `json:"image"`
	ContainerSHA string         `json:"containerSHA,omitempty"`
	Invalid      bool           `json:"invalid,omitempty"` // a predecessor abandoned it
}

// Pod is the state of a pod of ours.
type Pod struct {
	Name     string
	Tag      Annotation
	Run      string
	Content  string
	Leaving  bool
	State    rollout.State // running, failing or succeeded
	Dead     bool          // it never runs again: it is deleted first
	Healthy  bool          // its stage has begun and has not failed
	Begun    bool          // a container has begun: of a part, one that does not wait for the part before
	Why      *rollout.Why
	Attempts int // failed attempts, including those before this pod
	FailedAt time.Time
	Created  time.Time
	Ended    time.Time    // when the last container of a stage that has succeeded ended, by the clock of the node
	Deleted  time.Time    // with leaving: when its grace period ends
	Reboot   *pack.Reboot // seen by the agent
	Boot     string       // in which the stage succeeded; empty if the agent does not say so
	Refuses  *bool        // whether the package refuses that nodes go back; nil if no stage has said so

	Image     string // of the package, as the pod names it; empty for an interrupt
	ImageID   string // what the node pulled for it
	IsPulling bool   // the node has not pulled it yet, or has not said so

	// of a compact pod: each stage as if it had a pod of its own, in order; the fields above but name and times are of no use then
	Parts []*Pod
	Whole *Pod     // of a part: the pod
	Part  partInfo // of a part

	CheckFailed bool // the last failure is one of the package's checks

	Aside *corev1.Pod // this pod, if it checks the node, or looks what it needs or pulls images before its turn
}

// Owns reports whether a pod belongs to this Skyhook: in the operator's namespace, labelled, and owned by its UID. Other pods
// are never trusted.
func Owns(s *v1alpha1.Skyhook, namespace string, p *corev1.Pod) bool {
	if p.Namespace != namespace || p.Labels[v1alpha1.LabelName] != s.Name || s.UID == "" {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.UID == s.UID && owner.Kind == node.KindSkyhook
}

// ReadPodAnnotation reads the annotation; false when it is missing or malformed.
func ReadPodAnnotation(p *corev1.Pod) (Annotation, bool) {
	var t Annotation
	if err := json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationPackage]), &t); err != nil {
		return Annotation{}, false
	}
	return t, t.Name != "" && t.Version != "" && slices.Contains(node.Stages, t.Stage)
}

// WritePodAnnotation encodes what a pod was made from.
func WritePodAnnotation(t Annotation) string { return node.EncodeJSON(t) }

// IsCheck reports whether a pod checks a node for drift, or looks what it needs before its turn.
func IsCheck(p *corev1.Pod) bool {
	return p.Labels[v1alpha1.LabelDrift] != "" || p.Labels[v1alpha1.LabelPreflight] != ""
}

func isPull(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelPrepull] != "" }

// Read returns the state of a pod of this Skyhook.
func Read(p *corev1.Pod) *Pod {
	s := &Pod{
		Name: p.Name, Run: p.Annotations[AnnotationRun], Content: p.Annotations[AnnotationContent],
		Leaving: p.DeletionTimestamp != nil, Created: p.CreationTimestamp.Time, State: Running,
	}
	if s.Leaving {
		s.Deleted = p.DeletionTimestamp.Time
	}
	if IsCheck(p) || isPull(p) {
		s.Aside = p
	}
	var understood bool
	if s.Tag, understood = ReadPodAnnotation(p); !understood || s.Tag.Invalid {
		s.Tag = Annotation{} // it belongs to no task
	}
	if stages := ReadStages(p); len(stages) > 0 {
		s.readParts(p, stages)
		return s
	}
	s.Attempts, _ = strconv.Atoi(p.Annotations[AnnotationAttempts])
	s.Refuses = readRefusal(p.Status.InitContainerStatuses)
	s.readStatus(p)
	s.readImage(p)
	s.finish(p)
	return s
}

// finish reads what is the same for pods of all layouts.
func (s *Pod) finish(p *corev1.Pod) {
	if s.Leaving && s.State != Succeeded {
		s.State, s.Healthy, s.Dead = Running, true, false
		s.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: "pod " + p.Name + " is being deleted", About: describePod(p)}
	}
	if s.Why != nil && s.Why.About == "" {
		s.Why.About = describePod(p)
	}
}

func describePod(p *corev1.Pod) string { return "Pod " + p.Namespace + "/" + p.Name }

// readStatus reads the containers in their order. Init containers run one after the other, so the first that has not
// succeeded decides. Injected containers count the same, except sidecars, which never end.
func (s *Pod) readStatus(p *corev1.Pod) {
	begun := false
	s.Begun = slices.ContainsFunc(p.Status.InitContainerStatuses, hasStarted)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			continue
		}
		status := StatusOf(p, c.Name)
		if status == nil {
			s.Healthy = begun
			s.readPending(p)
			return
		}
		s.countFailures(status, p)
		if t := status.State.Terminated; t != nil && t.ExitCode == 0 {
			s.readSuccess(t)
			begun = begun || !strings.HasSuffix(c.Name, SuffixCopy)
			continue
		}
		s.Healthy = begun || status.State.Running != nil && !strings.HasSuffix(c.Name, SuffixCopy)
		s.readStopped(p, status)
		return
	}
	if len(p.Spec.InitContainers) == 0 {
		s.readPending(p)
		return
	}
	s.State, s.Healthy = Succeeded, true
}

// readSuccess reads a container that has succeeded.
func (s *Pod) readSuccess(t *corev1.ContainerStateTerminated) {
	if m, ok := pack.DecodeMessage(t.Message); ok {
		s.Reboot, s.Boot = cmp.Or(m.Reboot, s.Reboot), cmp.Or(m.Boot, s.Boot)
	}
	s.Ended = t.FinishedAt.Time
}

// UpdateRecord records what the pod has said of its package.
func (s *Pod) UpdateRecord(p *node.PackageRecord) {
	if s.Refuses != nil {
		p.Refuses = *s.Refuses
	}
	p.Boot = cmp.Or(s.Boot, p.Boot)
}

// hasStarted reports whether a container runs or has run.
func hasStarted(status corev1.ContainerStatus) bool {
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
}

// StatusOf finds the status of a container; nil if there is none.
func StatusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

// countFailures adds the failed runs of a container: the one that ended last, and those before it. Of those before only the
// number is known, so they count as failed when the last one did.
func (s *Pod) countFailures(status *corev1.ContainerStatus, p *corev1.Pod) {
	last, before := status.State.Terminated, int(status.RestartCount)
	if last == nil {
		last = status.LastTerminationState.Terminated
		if status.State.Running != nil {
			before-- // the restart that runs now followed the failure that is counted here
		}
	}
	if last == nil || !hasFailedWith(status.Name, last) {
		return
	}
	s.Attempts += 1 + max(0, before)
	s.FailedAt = last.FinishedAt.Time
	s.Why = failureReason(p, status.Name, last)
	m, _ := pack.DecodeMessage(last.Message)
	s.CheckFailed = m.Class == pack.CheckFailed
}

// hasFailedWith reports whether a run of a container counts as a failed attempt: it failed, and not because it was told to stop
// or to be retried later, nor for an unknown reason. An interrupt may kill its own container.
func hasFailedWith(container string, t *corev1.ContainerStateTerminated) bool {
	if m, ok := pack.DecodeMessage(t.Message); ok {
		return m.Outcome == pack.Failed
	}
	if class, ok := pack.ClassOf(int(t.ExitCode)); ok {
		return class.Outcome() == pack.Failed
	}
	if container == ContainerInterrupt && t.ExitCode == killed && t.Reason != "OOMKilled" {
		return false
	}
	return t.ExitCode != 0 && t.Reason != "ContainerStatusUnknown"
}

// readStopped reads the deciding container.
func (s *Pod) readStopped(p *corev1.Pod, status *corev1.ContainerStatus) {
	switch {
	case p.Status.Phase == corev1.PodFailed:
		s.readRejected(p)
	case s.Why != nil: // it failed, and perhaps runs again: the failure counts until it succeeds
		s.State, s.Healthy = failing, false
	case status.State.Waiting != nil:
		s.readWaiting(p, status)
	case status.State.Terminated != nil:
		t := status.State.Terminated
		s.Why = &rollout.Why{Reason: rollout.ReasonRetry, Text: failureText(status.Name, t)}
	}
}

// readPending reads a pod of which no container has started.
func (s *Pod) readPending(p *corev1.Pod) {
	if p.Status.Phase == corev1.PodFailed {
		s.readRejected(p)
	}
}

// shutdownReasons are the reasons of pods that ended because their node shut down.
var shutdownReasons = []string{"NodeShutdown", "Terminated", "Shutdown"}

// readRejected reads a pod that the kubelet has ended: it never runs again. A kubelet that shuts down with its node is no failure.
func (s *Pod) readRejected(p *corev1.Pod) {
	s.Dead, s.Healthy = true, false
	text := p.Status.Reason
	if m := strings.TrimSpace(p.Status.Message); m != "" {
		text = strings.TrimPrefix(text+": "+m, ": ")
	}
	if text == "" {
		text = "it gives no reason"
	}
	switch {
	case slices.Contains(shutdownReasons, p.Status.Reason):
		s.Why = &rollout.Why{Reason: rollout.ReasonPodLost, Text: node.Truncate("the node shut down: "+text, 300)}
		return
	case p.Status.Reason == "Evicted" || p.Status.Reason == "Preempting":
		text = "the kubelet evicted the pod: " + text
	default:
		text = "the kubelet rejected the pod: " + text
	}
	s.State = failing
	if s.Why != nil && p.Status.Reason == "" {
		return // its container has the reason, and counts
	}
	s.Attempts++
	s.FailedAt = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(s.FailedAt) {
			s.FailedAt = c.LastTransitionTime.Time
		}
	}
	s.Why = &rollout.Why{Reason: rollout.ReasonKubeletRejected, Text: node.Truncate(text, 300)}
}

// readWaiting reads why a container that never failed does not run.
func (s *Pod) readWaiting(p *corev1.Pod, status *corev1.ContainerStatus) {
	w := status.State.Waiting
	message := node.Truncate(strings.TrimSpace(w.Message), 200)
	if message == "" {
		message = w.Reason
	}
	switch {
	case slices.Contains(pullProblems, w.Reason):
		s.Healthy = false
		s.Why = pullReason(p, status)
	case slices.Contains(startProblems, w.Reason):
		s.Healthy = false
		s.Why = &rollout.Why{Reason: rollout.ReasonKubeletRejected, Text: fmt.Sprintf("container %s cannot start: %s", status.Name, message)}
	}
}

// CannotPull reports whether the pod does not run because an image cannot be pulled.
func (s *Pod) CannotPull() bool {
	return !s.Leaving && s.Why != nil && s.Why.Reason == rollout.ReasonImagePull
}

// failureReason returns why a container failed, from the agent's termination message when there is one.
func failureReason(p *corev1.Pod, container string, t *corev1.ContainerStateTerminated) *rollout.Why {
	why := &rollout.Why{Reason: rollout.ReasonStageFailed, Text: failureText(container, t), About: describePod(p), Since: t.FinishedAt.Time}
	if m, ok := pack.DecodeMessage(t.Message); ok && m.Class == pack.TimedOut {
		why.Reason = rollout.ReasonDeadline
	}
	return why
}

func failureText(container string, t *corev1.ContainerStateTerminated) string {
	m, ok := pack.DecodeMessage(t.Message)
	if !ok {
		switch {
		case t.Reason == "OOMKilled":
			return fmt.Sprintf("container %s was killed because it used more memory than its limit", container)
		case t.Signal != 0:
			return fmt.Sprintf("container %s was killed by signal %d", container, t.Signal)
		}
		return fmt.Sprintf("container %s ended with exit code %d", container, t.ExitCode)
	}
	text := strings.TrimSuffix(m.Reason, ".")
	if text == "" {
		text = fmt.Sprintf("%s ended with exit code %d", m.Mode, t.ExitCode)
	}
	if n := len(m.Lines); n > 0 {
		text += rollout.LastOutput + strings.Join(m.Lines[max(0, n-3):], " | ")
	}
	return node.Truncate(strings.Join(strings.Fields(text), " "), 500)
}

// readRefusal returns whether the package of these containers refuses that nodes go back, as its stage or check reported last; nil if neither has.
func readRefusal(statuses []corev1.ContainerStatus) (refuses *bool) {
	for _, c := range statuses {
		for _, t := range []*corev1.ContainerStateTerminated{c.LastTerminationState.Terminated, c.State.Terminated} {
			if t == nil {
				continue
			}
			m, isOurs := pack.DecodeMessage(t.Message)
			hasRead := m.RefusesRollback || m.Outcome == pack.Succeeded // another one may have failed before it read config.json
			if isOurs && hasRead && m.Mode.HasSteps() {
				refuses = &m.RefusesRollback
			}
		}
	}
	return refuses
}
