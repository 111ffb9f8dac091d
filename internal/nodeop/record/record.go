// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package record turns the actions of a plan into edits of the nodes of a NodeOp.
package record

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Input is what the edit of an action depends on.
type Input struct {
	Operation *nodeop.Operation
	Node      *node.Node     // as it is after the earlier actions of the plan
	Holds     []rollout.Hold // all of them on the node
	Known     *nodeop.Node   // nil when the node is none of the operation
	Now       time.Time
}

// recorder turns the actions of a plan into edits of one node.
type recorder struct {
	op   *nodeop.Operation
	node *node.Node
	in   *Input
}

// Change is the edit of an action. The edit of a Run is written before its objects are created. Applying an edit twice has the same
// effect as once.
func Change(a rollout.Action, in *Input) (node.Edit, error) {
	r := &recorder{in.Operation, in.Node, in}
	switch a.Verb { // valid for a node whose record cannot be read
	case rollout.VerbRelease:
		return r.releaseHold(), nil
	case rollout.VerbSweep, rollout.VerbEvict: // they change nothing on the node
		return node.Edit{}, nil
	}
	if p := in.Operation.StateOn(in.Node).Problem; p != "" {
		return node.Edit{}, fmt.Errorf("changing node %s: %s", in.Node.Name, p)
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return r.admit(a), nil
	case rollout.VerbHold:
		return r.placeHold(a), nil
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

// record is the record of the node, or what was inherited from a predecessor.
func (r *recorder) record() node.OpRecord {
	if rec, ok := r.op.RecordOn(r.node); ok {
		return rec.Clone()
	}
	if known := r.in.Known; known != nil && (known.IsInherited || known.Record.Result != nil) {
		return known.Record.Clone()
	}
	return node.OpRecord{}
}

func (r *recorder) editRecord(change func(*node.OpRecord)) node.Edit {
	rec := r.record()
	change(&rec)
	rec.Node, rec.NodeOp = r.node.UID, r.op.Mark
	e := node.Edit{}
	e.SetAnnotation(r.node, r.op.RecordKey, rec.String())
	return e
}

func (r *recorder) removeRecord() node.Edit {
	e := node.Edit{}
	e.RemoveAnnotation(r.node, r.op.RecordKey)
	return e
}

func (r *recorder) newStep(state string) *node.Step {
	return &node.Step{State: state, At: node.WholeSeconds(r.in.Now)}
}

// admit records the admission: from now on the node is in progress.
func (r *recorder) admit(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		if rec.Admitted {
			return
		}
		*rec = node.OpRecord{
			Held: rec.Held, Admitted: true, Admission: rec.Admission + 1, At: new(node.WholeSeconds(r.in.Now)),
			Order: a.Order, Batch: a.Batch, Group: a.Group, Offered: r.op.Proofs.Offered(r.node),
		}
	})
}

// placeHold cordons the node in the name of this NodeOp.
func (r *recorder) placeHold(a rollout.Action) node.Edit {
	by := node.Holder{Owner: r.op.Owner, UID: string(r.op.NodeOp.UID), Marks: r.op.Marks, Expected: a.Expected}
	if r.record().Held != nil {
		return r.node.PlaceHold(by, r.in.Holds, a.Why.Text, r.in.Now, nil)
	}
	return r.node.PlaceHold(by, r.in.Holds, a.Why.Text, r.in.Now, func(held *node.Held) node.Edit {
		e := r.editRecord(func(rec *node.OpRecord) { rec.Held = held })
		if !held.WasCordoned && r.node.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
			e.SetAnnotation(r.node, v1alpha1.AnnotationCordonedBy, r.op.Mark)
		}
		return e
	})
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
func (r *recorder) releaseHold() node.Edit {
	recorded, isMarked := r.op.StateOn(r.node), r.op.IsCordonedByMark(r.node)
	if !isMarked && recorded.Record.Held == nil {
		return node.Edit{}
	}

	e, own := node.Edit{}, rollout.Hold{Owner: r.op.Owner, WasCordoned: recorded.Problem != ""}
	if recorded.Record.Held != nil {
		own.WasCordoned = recorded.Record.Held.WasCordoned
		e = r.removeHeld(recorded.Record)
	}
	if isMarked {
		e.RemoveAnnotation(r.node, v1alpha1.AnnotationCordonedBy)
	}
	return e.Plus(r.node.ReleaseHold(own, r.in.Holds))
}

// removeHeld removes the hold from the record. The record of a NodeOp that no longer exists is not needed.
func (r *recorder) removeHeld(rec node.OpRecord) node.Edit {
	if r.op.IsOrphan {
		return r.removeRecord()
	}
	rec = rec.Clone()
	rec.Held = nil
	e := node.Edit{}
	e.SetAnnotation(r.node, r.op.RecordKey, rec.String())
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
		case nodeop.TaskPreflight:
			rec.Preflight = step
		case nodeop.TaskCommand:
			rec.Command = step
			rec.Job, rec.Boot = r.op.ObjectName("", r.node, rec.Admission), r.node.BootID
		case nodeop.TaskReboot:
			if r.op.SharesReboot() && rec.Reboot == nil {
				rec.Boot = r.node.BootID
			}
			rec.Reboot = step
		}
	})
}

// recordAwaiting records that only the reboot is missing, whoever reboots the node.
func (r *recorder) recordAwaiting(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		rec.Shared = rollout.NewSharedReboot(r.node.BootID, a.Covers, rec.Boot)
	})
}

// recordOutcome records how a task ended.
func (r *recorder) recordOutcome(a rollout.Action) node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		rec.Proving = nil
		if rec.Result == nil {
			rec.Result = &node.Result{}
		}
		rec.Result.At = node.WholeSeconds(r.in.Now)
		step := r.newStep(node.StepDone)
		if a.State != rollout.StateDone {
			step = r.newStep(node.StepFailing)
			setFailure(rec.Result, a.Why.Reason, failureMessage(a))
		}
		began := &rec.Command
		switch a.Task {
		case nodeop.TaskPreflight:
			began = &rec.Preflight
		case nodeop.TaskReboot:
			began = &rec.Reboot
		}
		if (*began).Is(node.StepRunning) && a.State == rollout.StateDone {
			step.Took = max(1, int64(step.At.Sub((*began).At).Seconds()))
		}
		*began = step
		if known := r.in.Known; known != nil {
			addFindings(rec, &known.Found, a)
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
	case a.Task == nodeop.TaskPreflight && !strings.HasPrefix(text, nodeop.PrefixPreflightFailed):
		return nodeop.PrefixPreflightFailed + text
	case a.Task == nodeop.TaskCommand && !strings.HasPrefix(text, "Job "):
		return nodeop.TextJobFailed + ": " + text
	}
	return text
}

// addFindings copies what the objects of a task report, because the objects are deleted later.
func addFindings(rec *node.OpRecord, found *nodeop.Findings, a rollout.Action) {
	switch result := rec.Result; a.Task {
	case nodeop.TaskPreflight:
		if found.Skip != "" && a.State == rollout.StateDone {
			result.Skipped, result.Message = true, nodeop.PrefixSkipped+found.Skip
		}
	case nodeop.TaskCommand:
		rec.Boot = cmp.Or(found.Boot, rec.Boot)
		result.Exit, result.Output, result.Attempts, result.Target = found.Exit, found.Output, found.Attempts, found.TargetVersion
	case nodeop.TaskReboot:
		result.Booted = found.BootedVersion
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
	if a.Wipe || r.op.IsDeleting() || leftBeforeStart {
		return r.removeRecord()
	}

	return r.editRecord(func(rec *node.OpRecord) {
		succeeded := rec.Command.Is(node.StepDone) && (!r.op.Reboots() || rec.Reboot.Is(node.StepDone))
		rec.Admitted, rec.Proving, rec.Shared = false, nil, nil
		if rec.Result == nil {
			rec.Result = &node.Result{}
		}
		result := rec.Result
		result.At = node.WholeSeconds(r.in.Now)
		switch {
		case result.IsFailed():
		case result.Skipped:
			result.Phase = v1alpha1.PhaseCompleted
		case a.Skip || !succeeded:
			setFailure(result, a.Why.Reason, node.Truncate(a.Why.Text, 1000))
		case r.op.Reboots():
			result.Phase, result.Message = v1alpha1.PhaseCompleted, nodeop.TextRebootDone
		default:
			result.Phase, result.Message = v1alpha1.PhaseCompleted, nodeop.TextJobDone
		}
	})
}

// recordProving records that all work is done and the proof is waited for.
func (r *recorder) recordProving() node.Edit {
	return r.editRecord(func(rec *node.OpRecord) {
		if rec.Proving == nil {
			rec.Proving = new(node.WholeSeconds(r.in.Now))
		}
	})
}
