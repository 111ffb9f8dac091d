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

// Change is what an action of the plan changes on its node. n is the node as it is after the earlier actions of the plan,
// holds are all holds on it, whoever's. The edit of a Run is written before its Objects are created. Changing twice
// changes once.
func (c *Compiled) Change(a rollout.Action, n *node.Node, holds []rollout.Hold) (node.Edit, error) {
	if a.Verb == rollout.VerbRelease {
		return c.releaseHold(n, holds), nil
	}
	if p := c.op.stateOn(n).Problem; p != "" {
		return node.Edit{}, fmt.Errorf("changing node %s: %s", n.Name, p)
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return c.admit(a, n), nil
	case rollout.VerbHold:
		return c.placeHold(n, holds), nil
	case rollout.VerbRun:
		return c.run(a, n), nil
	case rollout.VerbRecord:
		return c.record(a, n), nil
	case rollout.VerbRetire:
		return c.retire(a, n), nil
	}
	return node.Edit{}, nil
}

// recordOf is what counts of the node's record now: a record, what was inherited, or nothing.
func (c *Compiled) recordOf(n *node.Node) node.NodeOpRecord {
	if rec, ok := c.op.recordOn(n); ok {
		return rec.Clone()
	}
	if t := c.targets[n.Name]; t != nil && (t.inherited || t.rec.Result != nil) {
		return t.rec.Clone()
	}
	return node.NodeOpRecord{}
}

func (c *Compiled) edit(n *node.Node, change func(*node.NodeOpRecord)) node.Edit {
	rec := c.recordOf(n)
	change(&rec)
	rec.Node, rec.NodeOp = n.UID, c.op.mark()
	e := node.Edit{}
	e.SetAnnotation(n, c.op.recordKey(), rec.String())
	return e
}

func (c *Compiled) step(state string) *node.Step {
	return &node.Step{State: state, At: node.WholeSeconds(c.op.now)}
}

// admit takes a seat: from now on the node is in progress, whatever happens to us.
func (c *Compiled) admit(a rollout.Action, n *node.Node) node.Edit {
	return c.edit(n, func(rec *node.NodeOpRecord) {
		if rec.Admitted {
			return
		}
		now := node.WholeSeconds(c.op.now)
		*rec = node.NodeOpRecord{Held: rec.Held, Admitted: true, Admission: rec.Admission + 1, At: &now, Order: a.Order, Batch: a.Batch, Group: a.Group}
	})
}

// placeHold cordons the node in this NodeOp's name.
func (c *Compiled) placeHold(n *node.Node, holds []rollout.Hold) node.Edit {
	e := node.Edit{}
	if c.recordOf(n).Held == nil {
		placed := n.Cordon(holds).Place(c.Rollout.Ref, c.op.now).Of(c.Rollout.Ref)
		e = c.edit(n, func(rec *node.NodeOpRecord) {
			rec.Held = &node.Held{At: node.WholeSeconds(c.op.now), WasCordoned: placed.WasCordoned}
		})
		if !placed.WasCordoned && n.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
			e.SetAnnotation(n, v1alpha1.AnnotationCordonedBy, c.op.mark())
		}
	}
	if !n.Unschedulable {
		e = e.Plus(node.ClearWasCordoned(n.With(e)))
	}
	e.SetUnschedulable(n, true)
	return e
}

// releaseHold gives up this NodeOp's hold. A node whose record cannot be read stays cordoned, because it may have been
// cordoned before.
func (c *Compiled) releaseHold(n *node.Node, holds []rollout.Hold) node.Edit {
	recorded, isMarked := c.op.stateOn(n), c.op.isCordonedByMark(n)
	if !isMarked && recorded.Record.Held == nil {
		return node.Edit{}
	}

	e, own := node.Edit{}, rollout.Hold{Owner: c.Rollout.Ref, WasCordoned: recorded.Problem != ""}
	if recorded.Record.Held != nil {
		own.WasCordoned = recorded.Record.Held.WasCordoned
		e = c.removeHeld(n, recorded.Record)
	}
	if isMarked {
		e.RemoveAnnotation(n, v1alpha1.AnnotationCordonedBy)
	}
	e.SetUnschedulable(n, n.Cordon(holds).With(own).Release(own.Owner).Unschedulable)
	return e
}

// removeHeld removes the hold from the record; of a NodeOp that is gone it removes the record.
func (c *Compiled) removeHeld(n *node.Node, rec node.NodeOpRecord) node.Edit {
	e := node.Edit{}
	if c.ghost {
		e.RemoveAnnotation(n, c.op.recordKey())
		return e
	}
	rec = rec.Clone()
	rec.Held = nil
	e.SetAnnotation(n, c.op.recordKey(), rec.String())
	return e
}

// run writes that a task is at work, with everything its objects are made from, so that the same are made again when
// these are lost.
func (c *Compiled) run(a rollout.Action, n *node.Node) node.Edit {
	return c.edit(n, func(rec *node.NodeOpRecord) {
		switch a.Task {
		case taskPreflight:
			rec.Preflight = c.step(node.StepRunning)
		case taskCommand:
			rec.Command = c.step(node.StepRunning)
			rec.Job, rec.Boot = c.op.objectName("", n, rec.Admission), n.BootID
		case taskReboot:
			rec.Reboot = c.step(node.StepRunning)
		}
	})
}

// record writes the outcome of a task.
func (c *Compiled) record(a rollout.Action, n *node.Node) node.Edit {
	t := c.targets[n.Name]
	return c.edit(n, func(rec *node.NodeOpRecord) {
		if rec.Result == nil {
			rec.Result = &node.Result{}
		}
		r := rec.Result
		r.At = node.WholeSeconds(c.op.now)
		step := c.step(node.StepDone)
		if a.State != rollout.StateDone {
			step = c.step(node.StepFailing)
			r.Phase, r.Reason, r.Message = v1alpha1.PhaseFailed, string(a.Why.Reason), said(a)
		}
		switch a.Task {
		case taskPreflight:
			rec.Preflight = step
			if t != nil && a.State == rollout.StateDone {
				if text := t.skipReason(); text != "" {
					r.Skipped, r.Message = true, prefixSkipped+text
				}
			}
		case taskCommand:
			rec.Command = step
			if t != nil {
				c.keepWords(t, r)
			}
		case taskReboot:
			rec.Reboot = step
			if t != nil {
				r.Booted = c.booted(t)
			}
		}
	})
}

// booted is the version that came up, as far as the pod that rebooted the node can tell.
func (c *Compiled) booted(t *target) string {
	if p := t.rebootPod(); p != nil {
		if proof := readRebootProof(p); proof != nil {
			return proof.Version
		}
	}
	return ""
}

// said is the message of a failure.
func said(a rollout.Action) string {
	text := a.Why.Text
	switch {
	case a.Task == taskPreflight && !strings.HasPrefix(text, prefixPreflightFailed):
		return prefixPreflightFailed + text
	case a.Task == taskCommand && !strings.HasPrefix(text, "Job "):
		return textJobFailed + ": " + text
	}
	return text
}

// keepWords keeps what the Job said, because the Job goes one day.
func (c *Compiled) keepWords(t *target, r *node.Result) {
	last := t.objects.lastRun(t.rec.Job)
	r.Exit, r.Output = last.exit, last.output
	if j := t.job(); j != nil {
		r.Attempts = j.Status.Failed
		if r.Output == "" {
			r.Output = jobFailure(j)
		}
	}
	if target, ok := strings.CutPrefix(r.Output, prefixTarget); ok {
		r.Target, r.Output = strings.TrimSpace(target), ""
	}
}

// prefixTarget begins the termination message of an upgrade: the version of the image follows.
const prefixTarget = "target "

// retire gives the seat back, and says how it ended here. A node that leaves before its command began is forgotten.
func (c *Compiled) retire(a rollout.Action, n *node.Node) node.Edit {
	rec := c.recordOf(n)
	reboot := c.op.reboots()
	well := rec.Command.Is(node.StepDone) && (!reboot || rec.Reboot.Is(node.StepDone))
	begun := rec.Command != nil
	if a.Wipe || c.op.isDeleting() || a.Why.Reason == rollout.ReasonLeft && !begun && rec.Held == nil {
		e := node.Edit{}
		e.RemoveAnnotation(n, c.op.recordKey())
		return e
	}
	return c.edit(n, func(rec *node.NodeOpRecord) {
		rec.Admitted = false
		if rec.Result == nil {
			rec.Result = &node.Result{At: node.WholeSeconds(c.op.now)}
		}
		r := rec.Result
		switch {
		case r.Phase == v1alpha1.PhaseFailed:
		case r.Skipped:
			r.Phase = v1alpha1.PhaseCompleted
		case a.Skip || !well:
			r.Phase, r.Reason, r.Message = v1alpha1.PhaseFailed, string(a.Why.Reason), bounded(a.Why.Text, 1000)
		case reboot:
			r.Phase, r.Message = v1alpha1.PhaseCompleted, textRebootDone
		default:
			r.Phase, r.Message = v1alpha1.PhaseCompleted, textJobDone
		}
		r.At = node.WholeSeconds(c.op.now)
	})
}
