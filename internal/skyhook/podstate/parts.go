// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Stage is one stage of a compact pod: what its container was made from, and what is recorded when it begins.
type Stage struct {
	Name       string              `json:"name"`
	Version    string              `json:"version"`
	Stage      v1alpha1.Stage      `json:"stage"`
	Container  string              `json:"container"`
	Run        string              `json:"run"`
	Generation int64               `json:"generation"`
	Hash       string              `json:"hash"`
	Content    string              `json:"content"`
	Goal       node.Goal           `json:"goal,omitempty"`
	From       string              `json:"from,omitempty"`
	Effect     *v1alpha1.Interrupt `json:"effect,omitempty"`
}

// Key is the key of the nodeState of a stage.
func (s *Stage) Key() string { return s.Name + "|" + s.Version }

// ID is the id of the task of a stage.
func (s *Stage) ID() string { return s.Key() + "/" + string(s.Stage) }

// ReadStages reads the stages of a compact pod, in their order; nil for another pod, or if they cannot be read.
func ReadStages(p *corev1.Pod) []Stage {
	text := p.Annotations[AnnotationStages]
	if text == "" {
		return nil
	}
	var out []Stage
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil
	}
	return out
}

// IsCompact reports whether a pod has the compact layout.
func IsCompact(p *corev1.Pod) bool { return p.Annotations[AnnotationStages] != "" }

// partInfo is what a part of a compact pod is beyond a pod.
type partInfo struct {
	*Stage
	Index  int
	Queue  string // node.Queue.ID of the pod
	halted bool   // its container ended before it began, because the pod was told so
	Stops  bool   // the pod was told to end before its next stage

	Uncreated bool // its container could not be created
}

// readParts reads each stage of a compact pod as if it had a pod of its own.
func (s *Pod) readParts(p *corev1.Pod, stages []Stage) {
	s.Tag = Annotation{} // the parts belong to tasks
	ended, mayBegin := p.CreationTimestamp.Time, true
	for i := range stages {
		part := &Pod{
			Name: s.Name, Run: stages[i].Run, Content: stages[i].Content, Leaving: s.Leaving, Created: ended, Deleted: s.Deleted, State: Running, Whole: s,
			Tag:  Annotation{Name: stages[i].Name, Version: stages[i].Version, Skyhook: s.Tag.Skyhook, Stage: stages[i].Stage},
			Part: partInfo{Stage: &stages[i], Index: i, Queue: p.Annotations[AnnotationQueue], Stops: p.Annotations[AnnotationStop] != ""},
		}
		if i == 0 {
			part.Attempts, _ = strconv.Atoi(p.Annotations[AnnotationAttempts])
		}
		if mayBegin {
			ended = part.readContainer(p, ended)
		} else { // its container may run already: it waits for the one before
			part.readPending(p)
		}
		mayBegin = part.State == Succeeded
		part.finish(p)
		s.Parts = append(s.Parts, part)
	}
	s.State = s.Parts[len(s.Parts)-1].State
}

// readContainer reads the container of a part, which began when the one before ended at the earliest. It returns when it ended, or the
// same time if it has not.
func (s *Pod) readContainer(p *corev1.Pod, before time.Time) (ended time.Time) {
	status := StatusOf(p, s.Part.Container)
	if status == nil {
		s.readPending(p)
		return before
	}
	last := status.State.Terminated
	if last == nil {
		last = status.LastTerminationState.Terminated
	}
	s.Part.halted = last != nil && isHalted(last)
	s.Begun = status.State.Running != nil || last != nil && !s.Part.halted
	s.Refuses = readRefusal([]corev1.ContainerStatus{*status})
	s.countFailures(status, p)
	if now := status.State.Running; now != nil {
		s.Created = rollout.LaterOf(before, now.StartedAt.Time)
	}
	if t := status.State.Terminated; t != nil {
		s.Created = rollout.LaterOf(before, t.StartedAt.Time)
		if t.ExitCode == 0 {
			s.readSuccess(t)
			s.State, s.Healthy = Succeeded, true
			return s.Ended
		}
	}
	s.Healthy = status.State.Running != nil
	s.readStopped(p, status)
	if w := status.State.Waiting; w != nil {
		s.Part.Uncreated = slices.Contains([]string{"CreateContainerError", "RunContainerError", "ContainerCannotRun"}, w.Reason)
	}
	if s.Part.halted {
		s.Dead, s.Healthy = true, false
		s.Why = &rollout.Why{Reason: rollout.ReasonReplaced, Text: "pod " + p.Name + " ended before stage " + string(s.Tag.Stage) + " of package " + s.Tag.Name}
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

// Outer returns the pod of a part, and a pod itself.
func (s *Pod) Outer() *Pod {
	if s.Whole != nil {
		return s.Whole
	}
	return s
}

// Works lists what a pod does: its parts, or itself.
func (s *Pod) Works() []*Pod {
	if s.Parts != nil {
		return s.Parts
	}
	return []*Pod{s}
}

// NextPart returns the first part after another one that has not begun; nil if all have, and for other pods.
func (s *Pod) NextPart() *Pod {
	for _, part := range s.Parts {
		if part.Part.Index > 0 && !part.Begun {
			return part
		}
	}
	return nil
}

// MayGoOn reports whether the pod may still begin with another part by itself.
func (s *Pod) MayGoOn() bool {
	next := s.NextPart()
	return next != nil && !next.Part.halted && !next.Dead && next.Why == nil && !s.Leaving
}

// IsBetween reports whether a stage of the pod has ended and the next one may begin.
func (s *Pod) IsBetween() bool {
	return s.MayGoOn() && s.Parts[s.NextPart().Part.Index-1].State == Succeeded
}

// StageContainer is a container of a pod that works for a stage of a package. The check of a stage has one of its own, except in a
// compact pod.
type StageContainer struct {
	Package, Version string
	Stage            v1alpha1.Stage
	Container        string
}

// StageContainers lists the containers of a pod of a Skyhook that run stages or interrupts, in their order; none of another pod.
func StageContainers(p *corev1.Pod) []StageContainer {
	t, isOurs := ReadPodAnnotation(p)
	if !isOurs || t.Skyhook != p.Labels[v1alpha1.LabelName] {
		return nil
	}
	var out []StageContainer
	for _, s := range ReadStages(p) {
		out = append(out, StageContainer{s.Name, s.Version, s.Stage, s.Container})
	}
	if IsCompact(p) {
		return out
	}
	for i, c := range p.Spec.InitContainers {
		isCopy := i == 0 && strings.HasSuffix(c.Name, SuffixCopy)
		if !isCopy {
			out = append(out, StageContainer{t.Name, t.Version, t.Stage, c.Name})
		}
	}
	return out
}
