// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// prefixTarget begins the termination message of an upgrade; the version of the image follows.
const prefixTarget = "target "

// recorder turns the actions of a plan into edits of one node.
type recorder struct {
	*passState
	owner    rollout.Ref // of the hold
	isOrphan bool        // the NodeOp no longer exists
	node     *node.Node
	target   *target // nil when the node is not a target
}

// Change is the edit of an action. n is the node as it is after the earlier actions of the plan, and holds are all holds on
// it. The edit of a Run is written before its Objects are created. Applying an edit twice has the same effect as once.
func (c *Compiled) Change(a rollout.Action, n *node.Node, holds []rollout.Hold) (node.Edit, error) {
	r := c.recorder(n)
	switch a.Verb { // valid for a node whose record cannot be read
	case rollout.VerbRelease:
		return r.releaseHold(holds), nil
	case rollout.VerbSweep, rollout.VerbEvict, rollout.VerbCheck: // they change nothing on the node
		return node.Edit{}, nil
	}
	if p := c.op.stateOn(n).Problem; p != "" {
		return node.Edit{}, fmt.Errorf("changing node %s: %s", n.Name, p)
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return r.admit(a), nil
	case rollout.VerbHold:
		return r.placeHold(a, holds), nil
	case rollout.VerbCount:
		return r.recordPods(a), nil
	case rollout.VerbJoin:
		return r.recordAwaiting(a), nil
	case rollout.VerbRun:
		return r.startTask(a), nil
	case rollout.VerbRecord:
		return r.recordOutcome(a), nil
	case rollout.VerbProve:
		return r.recordProving(), nil
	case rollout.VerbRetire:
		return r.retire(a), nil
	}
	return node.Edit{}, nil
}

func (c *Compiled) recorder(n *node.Node) *recorder {
	return &recorder{c.pass, c.Rollout.Ref, c.isOrphan, n, c.index[n.Name]}
}

// record is the record of the node, or what was inherited from a predecessor.
func (r *recorder) record() node.OpRecord {
	if rec, ok := r.recordOn(r.node); ok {
		return rec.Clone()
	}
	if t := r.target; t != nil && (t.inherited || t.rec.Result != nil) {
		return t.rec.Clone()
	}
	return node.OpRecord{}
}

func (r *recorder) editRecord(change func(*node.OpRecord)) node.Edit {
	rec := r.record()
	change(&rec)
	rec.Node, rec.NodeOp = r.node.UID, r.mark
	e := node.Edit{}
	e.SetAnnotation(r.node, r.recordKey, rec.String())
	return e
}

func (r *recorder) removeRecord() node.Edit {
	e := node.Edit{}
	e.RemoveAnnotation(r.node, r.recordKey)
	return e
}

func (r *recorder) newStep(state string) *node.Step {
	return &node.Step{State: state, At: node.WholeSeconds(r.now)}
}

// admit records the admission: from now on the node is in progress.
func (r *recorder) admit(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		if rec.Admitted {
			return
		}
		*rec = node.OpRecord{
			Held: rec.Held, Admitted: true, Admission: rec.Admission + 1, At: new(node.WholeSeconds(r.now)),
			Order: a.Order, Batch: a.Batch, Group: a.Group, Offered: r.node.Offers(r.proofs.Resources()),
		}
	})
}

// placeHold cordons the node in the name of this NodeOp.
func (r *recorder) placeHold(a rollout.Action, holds []rollout.Hold) node.Edit {
	e := node.Edit{}
	if r.record().Held == nil {
		placed := r.node.Cordon(holds).Place(r.owner, r.now).Of(r.owner)
		e = r.editRecord(func(rec *node.OpRecord) {
			rec.Held = &node.Held{At: node.WholeSeconds(r.now), WasCordoned: placed.WasCordoned}
		})
		if !placed.WasCordoned && r.node.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
			e.SetAnnotation(r.node, v1alpha1.AnnotationCordonedBy, r.mark)
		}
		e = e.Plus(r.placeMarks(a))
	}
	if !r.node.Unschedulable {
		e = e.Plus(node.ClearWasCordoned(r.node.With(e)))
	}
	e.SetUnschedulable(r.node, true)
	return e
}

// recordPods records how many pods had to leave the held node when its drain began.
func (r *recorder) recordPods(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		if rec.Held != nil {
			rec.Held.Pods = a.Pods
		}
	})
}

// releaseHold removes the hold of this NodeOp. A node whose record cannot be read stays cordoned, because it may have been
// cordoned before.
func (r *recorder) releaseHold(holds []rollout.Hold) node.Edit {
	recorded, isMarked := r.stateOn(r.node), r.isCordonedByMark(r.node)
	if !isMarked && recorded.Record.Held == nil {
		return node.Edit{}
	}

	e, own := node.Edit{}, rollout.Hold{Owner: r.owner, WasCordoned: recorded.Problem != ""}
	if recorded.Record.Held != nil {
		own.WasCordoned = recorded.Record.Held.WasCordoned
		e = r.removeHeld(recorded.Record)
	}
	if isMarked {
		e.RemoveAnnotation(r.node, v1alpha1.AnnotationCordonedBy)
	}
	e.SetUnschedulable(r.node, r.node.Cordon(holds).With(own).Release(own.Owner).Unschedulable)
	return e
}

// removeHeld removes the hold from the record. The record of a NodeOp that no longer exists is not needed.
func (r *recorder) removeHeld(rec node.OpRecord) node.Edit {
	if r.isOrphan {
		return r.removeRecord()
	}
	rec = rec.Clone()
	rec.Held = nil
	e := node.Edit{}
	e.SetAnnotation(r.node, r.recordKey, rec.String())
	return e
}

// startTask records that a task runs, with everything that its objects are rendered from, so that objects that are lost
// are created again with the same content.
func (r *recorder) startTask(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		rec.Proving, rec.Shared = nil, rec.Shared.AfterRun() // what is true counts after the last outcome only
		if a.Drained && rec.Held != nil {
			rec.Held.Pods = 0
		}
		step := r.newStep(node.StepRunning)
		switch a.Task {
		case taskPreflight:
			rec.Preflight = step
		case taskCommand:
			rec.Command = step
			rec.Job, rec.Boot = r.objectName("", r.node, rec.Admission), r.node.BootID
		case taskReboot:
			if r.sharesReboot() && rec.Reboot == nil {
				rec.Boot = r.node.BootID
			}
			rec.Reboot = step
		}
	})
}

// recordAwaiting records that only the reboot is missing, whoever reboots the node.
func (r *recorder) recordAwaiting(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		rec.Shared = &rollout.SharedReboot{Boot: r.node.BootID, Tasks: a.Covers}
	})
}

// recordOutcome records how a task ended.
func (r *recorder) recordOutcome(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		rec.Proving = nil
		if rec.Result == nil {
			rec.Result = &node.Result{}
		}
		rec.Result.At = node.WholeSeconds(r.now)
		step := r.newStep(node.StepDone)
		if a.State != rollout.StateDone {
			step = r.newStep(node.StepFailing)
			setFailure(rec.Result, a.Why.Reason, failureMessage(a))
		}
		switch a.Task {
		case taskPreflight:
			rec.Preflight = step
		case taskCommand:
			rec.Command = step
		case taskReboot:
			rec.Reboot = step
		}
		if r.target != nil {
			r.target.recordFindings(rec.Result, a)
		}
	})
}

func setFailure(result *node.Result, reason rollout.Reason, message string) {
	result.Phase, result.Reason, result.Message = v1alpha1.PhaseFailed, string(reason), message
}

// failureMessage is the message of a failure in the status, with the prefix that other programs read.
func failureMessage(a rollout.Action) string {
	text := a.Why.Text
	switch {
	case a.Task == taskPreflight && !strings.HasPrefix(text, prefixPreflightFailed):
		return prefixPreflightFailed + text
	case a.Task == taskCommand && !strings.HasPrefix(text, "Job "):
		return textJobFailed + ": " + text
	}
	return text
}

// recordFindings copies what the objects of a task report, because the objects are deleted later.
func (t *target) recordFindings(result *node.Result, a rollout.Action) {
	switch a.Task {
	case taskPreflight:
		if reason := t.skipReason(); reason != "" && a.State == rollout.StateDone {
			result.Skipped, result.Message = true, prefixSkipped+reason
		}
	case taskCommand:
		t.recordCommand(result)
	case taskReboot:
		if p := t.rebootPod(); p != nil {
			if proof := readRebootProof(p); proof != nil {
				result.Booted = proof.Version
			}
		}
	}
}

func (t *target) recordCommand(result *node.Result) {
	last := t.objects.lastRun(t.rec.Job)
	result.Exit, result.Output = last.exit, last.output
	if j := t.job(); j != nil {
		result.Attempts = j.Status.Failed
		if result.Output == "" {
			result.Output = jobFailure(j)
		}
	}
	if version, ok := strings.CutPrefix(result.Output, prefixTarget); ok {
		result.Target, result.Output = strings.TrimSpace(version), ""
	}
}

// retire ends the admission and records the result. A node that is not selected any more and has not begun keeps no record.
func (r *recorder) retire(a rollout.Action) node.Edit {
	rec := r.record()
	if a.Postpone { // it is a candidate again, as if it had never been admitted
		return r.editRecord(func(rec *node.OpRecord) {
			*rec = node.OpRecord{Held: rec.Held, Admission: rec.Admission, At: rec.At, Order: rec.Order, Batch: rec.Batch, Group: rec.Group}
		})
	}
	leftBeforeStart := a.Why.Reason == rollout.ReasonLeft && rec.Command == nil && rec.Held == nil
	if a.Wipe || r.isDeleting() || leftBeforeStart {
		return r.removeRecord()
	}

	return r.editRecord(func(rec *node.OpRecord) {
		succeeded := rec.Command.Is(node.StepDone) && (!r.reboots() || rec.Reboot.Is(node.StepDone))
		rec.Admitted, rec.Proving, rec.Shared = false, nil, nil
		if rec.Result == nil {
			rec.Result = &node.Result{}
		}
		result := rec.Result
		result.At = node.WholeSeconds(r.now)
		switch {
		case result.IsFailed():
		case result.Skipped:
			result.Phase = v1alpha1.PhaseCompleted
		case a.Skip || !succeeded:
			setFailure(result, a.Why.Reason, node.Truncate(a.Why.Text, 1000))
		case r.reboots():
			result.Phase, result.Message = v1alpha1.PhaseCompleted, textRebootDone
		default:
			result.Phase, result.Message = v1alpha1.PhaseCompleted, textJobDone
		}
	})
}
