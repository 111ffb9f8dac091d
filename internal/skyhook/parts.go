// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// partInfo is what a part of a compact pod is beyond a pod.
type partInfo struct {
	*podStage
	index  int
	queue  string // node.Queue.ID of the pod
	begun  bool   // its container has run, or runs, and does not wait for the one before
	halted bool   // its container ended before it began, because the pod was told so
	stops  bool   // the pod was told to end before its next stage

	uncreated bool // its container could not be created
}

// readParts reads each stage of a compact pod as if it had a pod of its own.
func (s *podInfo) readParts(p *corev1.Pod, stages []podStage) {
	s.tag = podAnnotation{} // the parts belong to tasks
	ended, mayBegin := p.CreationTimestamp.Time, true
	for i := range stages {
		part := &podInfo{
			name: s.name, run: stages[i].Run, content: stages[i].Content, leaving: s.leaving, created: ended, deleted: s.deleted, state: running, whole: s,
			tag:  podAnnotation{Name: stages[i].Name, Version: stages[i].Version, Skyhook: s.tag.Skyhook, Stage: stages[i].Stage},
			part: partInfo{podStage: &stages[i], index: i, queue: p.Annotations[annotationQueue], stops: p.Annotations[AnnotationStop] != ""},
		}
		if i == 0 {
			part.attempts, _ = strconv.Atoi(p.Annotations[annotationAttempts])
		}
		if mayBegin {
			ended = part.readContainer(p, ended)
		} else { // its container may run already: it waits for the one before
			part.readPending(p)
		}
		mayBegin = part.state == succeeded
		part.finish(p)
		s.parts = append(s.parts, part)
	}
	s.state = s.parts[len(s.parts)-1].state
}

// readContainer reads the container of a part, which began when the one before ended at the earliest. It returns when it ended, or the
// same time if it has not.
func (s *podInfo) readContainer(p *corev1.Pod, before time.Time) (ended time.Time) {
	status := statusOf(p, s.part.Container)
	if status == nil {
		s.readPending(p)
		return before
	}
	last := status.State.Terminated
	if last == nil {
		last = status.LastTerminationState.Terminated
	}
	s.part.halted = last != nil && isHalted(last)
	s.part.begun = status.State.Running != nil || last != nil && !s.part.halted
	s.refuses = readRefusal([]corev1.ContainerStatus{*status})
	s.countFailures(status, p)
	if now := status.State.Running; now != nil {
		s.created = rollout.LaterOf(before, now.StartedAt.Time)
	}
	if t := status.State.Terminated; t != nil {
		s.created = rollout.LaterOf(before, t.StartedAt.Time)
		if t.ExitCode == 0 {
			if m, ok := pack.DecodeMessage(t.Message); ok && m.Reboot != nil {
				s.reboot = m.Reboot
			}
			s.state, s.healthy, s.ended = succeeded, true, t.FinishedAt.Time
			return s.ended
		}
	}
	s.healthy = status.State.Running != nil
	s.readStopped(p, status)
	if w := status.State.Waiting; w != nil {
		s.part.uncreated = slices.Contains([]string{"CreateContainerError", "RunContainerError", "ContainerCannotRun"}, w.Reason)
	}
	if s.part.halted {
		s.dead, s.healthy = true, false
		s.why = &rollout.Why{Reason: rollout.ReasonReplaced, Text: "pod " + p.Name + " ended before stage " + string(s.tag.Stage) + " of package " + s.tag.Name}
	}
	return before
}

// isHalted reports whether a container ended before its stage began.
func isHalted(t *corev1.ContainerStateTerminated) bool {
	if m, ok := pack.DecodeMessage(t.Message); ok {
		return m.Class == pack.NotBegun
	}
	return int(t.ExitCode) == pack.NotBegun.ExitCode()
}

// pod returns the pod of a part, and a pod itself.
func (s *podInfo) pod() *podInfo {
	if s.whole != nil {
		return s.whole
	}
	return s
}

// works lists what a pod does: its parts, or itself.
func (s *podInfo) works() []*podInfo {
	if s.parts != nil {
		return s.parts
	}
	return []*podInfo{s}
}

// nextPart returns the first part after another one that has not begun; nil if all have, and for other pods.
func (s *podInfo) nextPart() *podInfo {
	for _, part := range s.parts {
		if part.part.index > 0 && !part.part.begun {
			return part
		}
	}
	return nil
}

// mayGoOn reports whether the pod may still begin with another part by itself.
func (s *podInfo) mayGoOn() bool {
	next := s.nextPart()
	return next != nil && !next.part.halted && !next.dead && next.why == nil && !s.leaving
}

// isBetween reports whether a stage of the pod has ended and the next one may begin.
func (s *podInfo) isBetween() bool {
	return s.mayGoOn() && s.parts[s.nextPart().part.index-1].state == succeeded
}
