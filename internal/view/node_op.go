// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// The steps of a NodeOp on a node, as the labels of its tasks.
const (
	stepPreflight = "preflight"
	stepCommand   = "command"
	stepReboot    = "reboot"
)

// NodeOpOf returns the NodeOp that a rollout was compiled from; nil for a Skyhook.
func (v *Cluster) NodeOpOf(r *rollout.Rollout) *nodeopv1.NodeOp {
	for _, op := range v.Objects.NodeOps {
		if nodeop.Ref(op) == r.Ref {
			return op
		}
	}
	return nil
}

// stepTimes is when a step ran; zero if unknown, or still to come.
type stepTimes struct {
	label          string
	state          string
	started, ended time.Time
}

// listSteps returns the steps of a NodeOp on a node, with what its record, its Job and its pods say of their times.
func (v *Cluster) listSteps(op *nodeopv1.NodeOp, n *node.Node, t *rollout.Target) []Stage {
	rec, err := node.ParseNodeOpRecord(n.Annotations[node.OpRecordKey(string(op.UID))])
	if err != nil {
		return listEndedStep(op, n.Name)
	}
	var out []Stage
	for _, step := range v.timesOf(op, n, &rec) {
		stage := Stage{Package: step.label, Label: step.label, State: step.state, Started: timeOrNil(step.started), Ended: timeOrNil(step.ended)}
		if step.label == stepCommand {
			stage.Log = op.Status.NodeStatuses[n.Name].Output
		}
		if at := slices.IndexFunc(t.Tasks, func(k rollout.Task) bool { return k.Label == step.label }); at >= 0 {
			k := &t.Tasks[at]
			stage.State, stage.Attempts = string(k.State), k.Attempts.Failed
			if k.Why != nil {
				stage.Text = k.Why.Text
			}
		}
		switch {
		case step.started.IsZero():
		case !step.ended.IsZero():
			stage.Duration = FormatDuration(step.ended.Sub(step.started))
		default:
			stage.Duration = FormatDuration(v.Snapshot.Now.Sub(step.started))
		}
		out = append(out, stage)
	}
	for i := range t.Tasks {
		if k := &t.Tasks[i]; !slices.ContainsFunc(out, func(s Stage) bool { return s.Label == k.Label }) {
			out = append(out, v.newStage(k))
		}
	}
	return out
}

// timesOf returns the steps that began. A record has one time for each: of the begin while it runs, then of the end.
func (v *Cluster) timesOf(op *nodeopv1.NodeOp, n *node.Node, rec *node.OpRecord) []stepTimes {
	var out []stepTimes
	before := time.Time{} // the end of the step before
	if rec.At != nil {
		before = *rec.At
	}
	add := func(label string, step *node.Step) {
		if step == nil {
			return
		}
		times := stepTimes{label: label, started: step.At, state: string(rollout.StateRunning)}
		if !step.Is(node.StepRunning) {
			times.started, times.ended, times.state = before, step.At, string(rollout.StateDone)
			if step.Is(node.StepFailing) {
				times.state = string(rollout.StateFailing)
			}
			if p := v.PodOfStep(op, n.Name, label); p != nil && label != stepCommand && p.CreationTimestamp.After(before) {
				times.started = p.CreationTimestamp.Time
			}
		}
		if label == stepCommand {
			v.addJobTimes(&times, op, rec.Job)
		}
		before = step.At
		out = append(out, times)
	}
	add(stepPreflight, rec.Preflight)
	add(stepCommand, rec.Command)
	add(stepReboot, rec.Reboot)
	return out
}

// addJobTimes replaces what the record says by what the Job says, while it exists.
func (v *Cluster) addJobTimes(times *stepTimes, op *nodeopv1.NodeOp, name string) {
	at := slices.IndexFunc(v.Objects.Jobs, func(j *batchv1.Job) bool { return j.Name == name && j.Namespace == op.Namespace })
	if at < 0 {
		return
	}
	job := v.Objects.Jobs[at]
	if job.Status.StartTime != nil {
		times.started = job.Status.StartTime.Time
	}
	if job.Status.CompletionTime != nil && !times.ended.IsZero() {
		times.ended = job.Status.CompletionTime.Time
	}
}

// listEndedWork returns how a NodeOp ended on a node, if it did something there.
func listEndedWork(op *nodeopv1.NodeOp, nodeName string) []Work {
	stages := listEndedStep(op, nodeName)
	if len(stages) == 0 {
		return nil
	}
	ref, state := nodeop.Ref(op), StateComplete
	if stages[0].State == string(rollout.StateFailing) {
		state = StateFailed
	}
	return []Work{{
		Rollout: ShortName(ref), Ref: ref, State: state, AdmittedAt: stages[0].Started, FinishedAt: stages[0].Ended, Stages: stages,
	}}
}

// listEndedStep returns how a NodeOp ended on a node by its status: the record goes with the end of the whole NodeOp.
func listEndedStep(op *nodeopv1.NodeOp, nodeName string) []Stage {
	entry, ok := op.Status.NodeStatuses[nodeName]
	if !ok {
		return nil
	}
	stage := Stage{Package: stepCommand, Label: stepCommand, State: string(rollout.StateDone), Attempts: int(entry.Attempts), Text: entry.Message, Log: entry.Output}
	if entry.Phase == nodeopv1.PhaseFailed {
		stage.State = string(rollout.StateFailing)
	}
	if entry.StartTime != nil && entry.CompletionTime != nil {
		stage.Started, stage.Ended = timeOrNil(entry.StartTime.Time), timeOrNil(entry.CompletionTime.Time)
		stage.Duration = FormatDuration(entry.CompletionTime.Sub(entry.StartTime.Time))
	}
	return []Stage{stage}
}

// PodOfStep returns the newest pod of a step; nil if there is none any more.
func (v *Cluster) PodOfStep(op *nodeopv1.NodeOp, nodeName, step string) *corev1.Pod {
	var newest *corev1.Pod
	for _, p := range v.Objects.NodeOpPods {
		isNewer := newest == nil || p.CreationTimestamp.After(newest.CreationTimestamp.Time)
		if p.Namespace == op.Namespace && p.Spec.NodeName == nodeName && isNewer && v.isOfStep(p, op, step) {
			newest = p
		}
	}
	return newest
}

func (v *Cluster) isOfStep(p *corev1.Pod, op *nodeopv1.NodeOp, step string) bool {
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil:
		return false
	case owner.Kind == "Job":
		return step == stepCommand && slices.ContainsFunc(v.Objects.Jobs, func(j *batchv1.Job) bool {
			return j.UID == owner.UID && metav1.IsControlledBy(j, op)
		})
	case owner.UID != op.UID:
		return false
	}
	return step == stepPreflight && p.Labels[nodeopv1.LabelPreflight] == "true" || step == stepReboot && p.Labels[nodeopv1.LabelReboot] == "true"
}
