// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Change is what an action of the plan changes on its node. n is the node as it is after the earlier actions of the plan,
// holds are all holds on it, whoever's. The edit of a Run is written before its Objects are created. Changing twice
// changes once.
func (c *Compiled) Change(a rollout.Action, n *Node, holds []rollout.Hold) (Edit, error) {
	if a.Verb == rollout.VerbRelease {
		return c.release(n, holds), nil
	}
	if p := n.records[c.op.recordKey()].problem; p != "" {
		return Edit{}, fmt.Errorf("changing node %s: %s", n.Name, p)
	}
	switch a.Verb {
	case rollout.VerbAdmit:
		return c.admit(a, n), nil
	case rollout.VerbHold:
		return c.hold(n, holds), nil
	case rollout.VerbRun:
		return c.run(a, n), nil
	case rollout.VerbRecord:
		return c.record(a, n), nil
	case rollout.VerbRetire:
		return c.retire(a, n), nil
	}
	return Edit{}, nil
}

// recordOf is what counts of the node's record now: a record, what was inherited, or nothing.
func (c *Compiled) recordOf(n *Node) Record {
	if rec, ok := c.op.recordOn(n); ok {
		return rec.clone()
	}
	if t := c.targets[n.Name]; t != nil && (t.inherited || t.rec.Result != nil) {
		return t.rec.clone()
	}
	return Record{}
}

func (c *Compiled) edit(n *Node, change func(*Record)) Edit {
	rec := c.recordOf(n)
	change(&rec)
	rec.Node, rec.NodeOp = n.UID, c.op.mark()
	e := Edit{}
	e.annotate(n, c.op.recordKey(), writeRecord(rec))
	return e
}

func (c *Compiled) step(state string) *Step { return &Step{State: state, At: wholeSeconds(c.op.now)} }

// admit takes a seat: from now on the node is in progress, whatever happens to us.
func (c *Compiled) admit(a rollout.Action, n *Node) Edit {
	return c.edit(n, func(rec *Record) {
		if rec.Admitted {
			return
		}
		now := wholeSeconds(c.op.now)
		*rec = Record{Held: rec.Held, Admitted: true, Admission: rec.Admission + 1, At: &now, Order: a.Order, Batch: a.Batch, Group: a.Group}
	})
}

// hold cordons the node in this NodeOp's name, and remembers whether somebody else had done so before any of us.
func (c *Compiled) hold(n *Node, holds []rollout.Hold) Edit {
	e := Edit{}
	if rest := c.others(holds); c.recordOf(n).Held == nil {
		was := n.Unschedulable && n.Annotations[v1alpha1.AnnotationCordonedBy] != c.op.mark()
		if len(rest) > 0 {
			was = was && slices.ContainsFunc(rest, func(h rollout.Hold) bool { return h.WasCordoned })
		}
		e = c.edit(n, func(rec *Record) { rec.Held = &Held{At: wholeSeconds(c.op.now), WasCordoned: was} })
		if !was && n.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
			e.annotate(n, v1alpha1.AnnotationCordonedBy, c.op.mark())
		}
	}
	if !n.Unschedulable {
		yes := true
		e.Unschedulable = &yes
	}
	return e
}

func (c *Compiled) others(holds []rollout.Hold) []rollout.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h rollout.Hold) bool { return h.Owner == c.Rollout.Ref })
}

// release gives up this NodeOp's hold. The node becomes schedulable when it was the last one, and only if the node was
// schedulable before.
func (c *Compiled) release(n *Node, holds []rollout.Hold) Edit {
	e := Edit{}
	key := c.op.recordKey()
	p, there := n.records[key]
	ours := n.Annotations[v1alpha1.AnnotationCordonedBy] == c.op.mark()
	held := ours
	was := false
	switch {
	case there && p.problem != "":
		was = true // nobody knows any more: then it stays cordoned
	case there && p.record.Held != nil:
		held, was = true, p.record.Held.WasCordoned
		rec := p.record.clone()
		rec.Held = nil
		if e.annotate(n, key, writeRecord(rec)); c.ghost { // nobody comes back for it
			e.strip(n, key)
		}
	}
	if !held {
		return e
	}
	if ours {
		e.strip(n, v1alpha1.AnnotationCordonedBy)
	}
	if n.Unschedulable && !was && len(c.others(holds)) == 0 {
		no := false
		e.Unschedulable = &no
	}
	return e
}

// run writes that a task is at work, with everything its objects are made from, so that the same are made again when
// these are lost.
func (c *Compiled) run(a rollout.Action, n *Node) Edit {
	return c.edit(n, func(rec *Record) {
		switch a.Task {
		case taskPreflight:
			rec.Preflight = c.step(stepRunning)
		case taskCommand:
			rec.Command = c.step(stepRunning)
			rec.Job, rec.Boot = c.op.objectName("", n, rec.Admission), n.BootID
		case taskReboot:
			rec.Reboot = c.step(stepRunning)
		}
	})
}

// record writes the outcome of a task.
func (c *Compiled) record(a rollout.Action, n *Node) Edit {
	t := c.targets[n.Name]
	return c.edit(n, func(rec *Record) {
		if rec.Result == nil {
			rec.Result = &Result{}
		}
		r := rec.Result
		r.At = wholeSeconds(c.op.now)
		step := c.step(stepDone)
		if a.State != rollout.StateDone {
			step = c.step(stepFailing)
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
func (c *Compiled) keepWords(t *target, r *Result) {
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
func (c *Compiled) retire(a rollout.Action, n *Node) Edit {
	rec := c.recordOf(n)
	reboot := c.op.reboots()
	well := rec.Command.is(stepDone) && (!reboot || rec.Reboot.is(stepDone))
	begun := rec.Command != nil
	if a.Wipe || c.op.isDeleting() || a.Why.Reason == rollout.ReasonLeft && !begun && rec.Held == nil {
		e := Edit{}
		e.strip(n, c.op.recordKey())
		return e
	}
	return c.edit(n, func(rec *Record) {
		rec.Admitted = false
		if rec.Result == nil {
			rec.Result = &Result{At: wholeSeconds(c.op.now)}
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
		r.At = wholeSeconds(c.op.now)
	})
}
