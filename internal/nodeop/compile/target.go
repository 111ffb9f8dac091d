// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// target is a node of this NodeOp with everything known about it.
type target struct {
	in        *Input
	op        *nodeop.Operation
	node      *node.Node
	rec       node.OpRecord       // on the node, or inherited from what a predecessor left
	inherited bool                // rec was rebuilt and is written by one of edits
	problem   string              // why the record cannot be read
	held      bool                // this NodeOp holds the node
	leaving   bool                // not selected any more
	entry     v1alpha1.NodeStatus // of a node without a record, or of a finished NodeOp
	hasEntry  bool
	objects   nodeObjects
	edits     []node.Edit // written without an action of a plan
}

func newTarget(in *Input, n *node.Node, objects nodeObjects) *target {
	op := in.Operation
	t := &target{in: in, op: op, node: n, objects: objects, problem: op.StateOn(n).Problem}
	isThis := func(owner rollout.Ref, uid string) bool { return uid == string(op.NodeOp.UID) && owner == op.Owner }
	t.held = slices.ContainsFunc(n.Holds(isThis), func(h rollout.Hold) bool { return h.Owner == op.Owner })

	rec, isRecorded := op.RecordOn(n)
	if !isRecorded || op.IsFinished() {
		t.entry, t.hasEntry = op.NodeOp.Status.NodeStatuses[n.Name]
	}
	switch {
	case isRecorded:
		var isWrong, isUncordoned bool
		t.rec, isWrong = rec.LimitTimes(in.Now) // times in the past stay there
		t.rec.Held, isUncordoned = t.rec.Held.NoteUncordon(n)
		if isWrong || isUncordoned {
			t.writeRecord(t.rec)
		}
	case t.problem == "" && t.hasEntry && op.SelectsNodes():
		t.inheritEntry()
	}
	return t
}

// result is what is known of the node, for those who carry a plan out or report about it.
func (t *target) result() *nodeop.Node {
	out := &nodeop.Node{Name: t.node.Name, IsControlPlane: t.node.IsControlPlane(), IsLeaving: t.leaving, Record: t.rec, IsInherited: t.inherited}
	isPredecessors := t.rec.Node == "" && t.hasEntry && nodeop.IsEntryFinal(t.entry)
	switch {
	case t.rec.Admitted:
		out.Found, out.Command = t.findings(), t.progress()
	case isPredecessors:
		out.FinalEntry = &t.entry
	}
	return out
}

// findings collects what the objects of the node report.
func (t *target) findings() nodeop.Findings {
	last := t.objects.lastRun(t.rec.Job)
	out := nodeop.Findings{Skip: t.skipReason(), Exit: last.exit, Output: last.output, Boot: last.boot}
	if j := t.job(); j != nil {
		out.Attempts = j.Status.Failed
		if out.Output == "" {
			out.Output = jobFailure(j)
		}
	}
	if version, isUpgrade := strings.CutPrefix(out.Output, nodeop.PrefixTarget); isUpgrade {
		out.TargetVersion, out.Output = strings.TrimSpace(version), ""
	}
	if p := t.rebootPod(); p != nil {
		if proof := readRebootProof(p); proof != nil {
			out.BootedVersion = proof.Version
		}
	}
	return out
}

// progress describes the Job of the node.
func (t *target) progress() nodeop.Progress {
	j := t.job()
	if j == nil {
		return nodeop.Progress{}
	}
	out := nodeop.Progress{HasRun: t.hasRun(j), Failed: j.Status.Failed}
	if last := t.objects.lastFailure(j.Name); last != nil {
		out.Exit, out.Output = last.exit, last.output
	}
	if why := t.retryReason(j); why != nil && t.rec.Command.Is(node.StepRunning) && nodeop.FinalCondition(j) == nil {
		out.RetryFor = why.Text
	}
	return out
}

// hasBegun reports whether work on the node was started and is not finished, or may be.
func (t *target) hasBegun() bool { return t.rec.Admitted || t.held || t.problem != "" }

// inheritEntry rebuilds the record from what a predecessor wrote to the status. An entry of a node that began with no more
// than a check, or that is older than the node, is ignored: the node starts again.
func (t *target) inheritEntry() {
	e, at := t.entry, t.entry.LastUpdated.Time
	if nodeop.IsEntryFinal(e) {
		t.rec.Job = e.JobName
		t.rec.Result = &node.Result{Phase: e.Phase, Skipped: nodeop.IsEntrySkipped(e), Message: e.Message, At: at, Exit: e.ExitCode, Attempts: e.Attempts, Output: e.Output}
		return
	}
	if e.JobName == "" || t.node.Created.After(at) {
		return
	}

	command := &node.Step{State: node.StepRunning, At: node.WholeSeconds(t.in.Now), Seen: true} // its deadline counts from now
	if e.Phase == v1alpha1.PhaseCompleted {
		command.State = node.StepDone
	}
	t.inherited = true
	t.rec = node.OpRecord{Node: t.node.UID, NodeOp: t.op.Mark, Admitted: true, Admission: 1, At: &at, Job: e.JobName, Command: command}
	t.writeRecord(t.rec)
}

// writeRecord adds an edit that writes the record to the node.
func (t *target) writeRecord(rec node.OpRecord) {
	e := node.Edit{}
	e.SetAnnotation(t.node, t.op.RecordKey, rec.String())
	t.edits = append(t.edits, e)
}

// removeRecord adds an edit that takes the record of a finished or deleted NodeOp from the node. A hold that stays after a
// failure keeps its record, unless a person has uncordoned the node. Before a deletion the hold is released.
func (t *target) removeRecord() {
	key := t.op.RecordKey
	_, recorded := t.node.Annotations[key]
	keepsHold := t.rec.Held != nil && (t.node.Unschedulable || t.op.IsDeleting())
	if !recorded || t.rec.Admitted || keepsHold {
		return
	}
	e := node.Edit{}
	e.RemoveAnnotation(t.node, key)
	if t.op.IsCordonedByMark(t.node) {
		e.RemoveAnnotation(t.node, v1alpha1.AnnotationCordonedBy)
	}
	t.edits = append(t.edits, e)
}

// compile describes the node to the engine.
func (t *target) compile() rollout.Target {
	out := rollout.Target{
		Node: t.node.Name, UID: t.node.UID, Class: t.node.OrderClass(), Leaving: t.leaving,
		Visit: rollout.Visit{Admitted: t.rec.Admitted, Admission: t.rec.Admission, Order: t.rec.Order, Batch: t.rec.Batch, BatchOf: t.rec.Group},
	}
	out.Visit.Runs = t.rec.Runs()
	if t.rec.At != nil {
		out.Visit.LastAdmittedAt = *t.rec.At
		if out.Visit.Admitted {
			out.Visit.AdmittedAt = *t.rec.At
		}
	}
	if s := t.rec.Shared; s != nil && out.Visit.Admitted { // the pod of the command may be observed after its outcome was recorded
		out.Reboot = rollout.NewSharedReboot(s.Boot, s.Tasks, append(slices.Clone(s.Ended), t.objects.lastRun(t.rec.Job).boot)...)
	}
	if wasSkipped := t.rec.Result != nil && t.rec.Result.Skipped; !wasSkipped {
		out.Proof = t.op.Proofs.Compile(t.node, node.ProofState{Since: t.rec.Proving, Boot: t.rec.Boot, Offered: t.rec.Offered, Missing: t.in.Findings})
	}
	if t.held {
		out.Drain.HeldAt = t.in.Now
		if t.rec.Held != nil {
			out.Drain.HeldAt, out.Drain.PodsRecorded = t.rec.Held.At, t.rec.Held.CountedPods()
		}
	}

	switch {
	case t.problem != "":
		out.Blocked = &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: t.problem, About: "Node " + t.node.Name}
	case !t.rec.Admitted && t.op.IsFinished(): // what is held stays held after a failure
		out.Visit.Skipped = t.entry.Phase == v1alpha1.PhaseFailed || t.rec.Result.IsFailed()
	case !t.rec.Admitted && t.rec.Result != nil:
		t.compileResult(&out)
	default:
		out.Tasks = t.tasks()
	}
	if out.Blocked == nil && t.node.Labels[skyhookv1.LabelIgnore] == "true" {
		out.Blocked = &rollout.Why{Reason: rollout.ReasonIgnored, About: "Node " + t.node.Name,
			Text: "the node has the label " + skyhookv1.LabelIgnore + "=true: remove it to go on"}
	}
	out.Objects.Orphans, out.Objects.Going = t.strays()
	return out
}

// compileResult describes a node on which the operation has ended. A failure stays as a task that is never retried.
func (t *target) compileResult(out *rollout.Target) {
	r := t.rec.Result
	out.Visit.Skipped = r.IsFailed()
	if out.Visit.Skipped && !t.leaving {
		out.Tasks = []rollout.Task{failedTask(r)}
	}
	if r.Phase == v1alpha1.PhaseCompleted {
		out.Visit.FinishedAt = r.At
		if t.rec.At != nil && !r.Skipped {
			out.Visit.Took = max(0, r.At.Sub(*t.rec.At))
		}
	}
}

// strays lists the Jobs and pods that no task needs, those that are being deleted already as going. Jobs and reboot pods
// that have ended are kept for their logs.
func (t *target) strays() (strays, going []string) {
	add := func(object string, m metav1.Object) {
		if m.GetDeletionTimestamp() == nil {
			strays = append(strays, object)
		} else {
			going = append(going, object)
		}
	}
	for _, j := range t.objects.jobs {
		if finished, _ := jobOutcome(j); !finished && !t.needsJob(j) {
			add(nodeop.PrefixJob+j.Name, j)
		}
	}
	for _, p := range t.objects.preflights {
		almostGone := p.DeletionTimestamp != nil && nodeop.IsPodFinished(p)
		if !almostGone && !t.needsPreflight(p) {
			add(nodeop.PrefixPod+p.Name, p)
		}
	}
	for _, p := range t.objects.reboots {
		if !nodeop.IsPodFinished(p) && !t.needsReboot(p) {
			add(nodeop.PrefixPod+p.Name, p)
		}
	}
	return strays, going
}

func (t *target) hasTasks() bool { return t.rec.Admitted && t.problem == "" }

func (t *target) needsJob(j *batchv1.Job) bool { return t.hasTasks() && t.job() == j }

func (t *target) needsPreflight(p *corev1.Pod) bool {
	return t.hasTasks() && p.Name == t.op.PreflightName(t.node, &t.rec) && !t.rec.Preflight.Is(node.StepDone)
}

func (t *target) needsReboot(p *corev1.Pod) bool { return t.hasTasks() && t.rebootPod() == p }

// job finds the Job that the record names. One that was made for another node of that name does not count.
func (t *target) job() *batchv1.Job { return t.objects.findJob(t.rec.Job, t.node.UID) }

// rebootPod finds the pod that reboots the node in this admission. A predecessor's pod has a name of its own.
func (t *target) rebootPod() *corev1.Pod {
	if p := findPod(t.objects.reboots, t.op.ObjectName(nodeop.ContainerReboot, t.node, t.rec.Admission)); p != nil {
		return p
	}
	if t.inherited || t.rec.Boot == "" {
		return t.objects.findPredecessorReboot()
	}
	return nil
}
