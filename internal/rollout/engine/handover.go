// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ensureHandedOver asks for the held node, one step after the other, and reports whether all have said yes since it is held. What is true
// counts only after it was recorded that the step is asked. Once all have answered nobody is asked again: a visit that has begun is finished.
func (d drainer) ensureHandedOver() bool {
	steps, h := d.target.rollout.Handover, d.target.target.Handover
	if len(steps) == 0 || h != nil && h.Done {
		return true
	}
	at := h.FindStep(steps)
	if at < 0 {
		d.ask(0, rollout.Why{Reason: rollout.ReasonHandover, Text: "the node is held, and its pods have to leave"})
		return false
	}
	if h.Missing == nil {
		d.ask(at+1, rollout.Why{Reason: rollout.ReasonHandover, Text: h.Step + " has answered"})
		return false
	}
	wait, expires := h.WaitReason(), h.ExpiresAt(steps[at].Timeout)
	d.plan.requestNext(expires)
	if isLate := !expires.IsZero() && !d.plan.now.Before(expires); isLate {
		wait.Reason = rollout.ReasonHandoverTimeout
		late := wait.Text + ", for longer than " + steps[at].Timeout.String()
		switch steps[at].OnTimeout {
		case rollout.DrainForce:
			wait.Text = rollout.Shorten(late + "; it goes on without the answer")
			d.ask(at+1, wait)
			return false
		case rollout.DrainSkip:
			wait.Text = rollout.Shorten(late + ", so the node is released")
			retirer(d).retireSkipped(wait)
			return false
		}
		wait.Text = rollout.Shorten(late)
	}
	if h.Absent {
		d.plan.addAction(d.target, rollout.VerbAsk, wait).Object = h.Step
	}
	d.reportVerdict(weightWaiting, rollout.PhaseInFlight, wait)
	return false
}

// ask asks a step, or records that all have answered when there is none left.
func (d drainer) ask(at int, why rollout.Why) {
	steps := d.target.rollout.Handover
	a := d.plan.addAction(d.target, rollout.VerbAsk, why)
	if at == len(steps) {
		d.reportVerdict(weightBehind, rollout.PhaseInFlight, rollout.Why{Reason: rollout.ReasonUpNext, Text: "the node is handed over; its drain begins next"})
		return
	}
	a.Object = steps[at].Name
	d.reportVerdict(weightWaiting, rollout.PhaseInFlight, rollout.Why{Reason: rollout.ReasonHandover, Text: "asks " + a.Object})
}
