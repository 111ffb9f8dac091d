// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Standing is what the verdict about an object follows from. Of its reasons the first that is there counts.
type Standing struct {
	Deleting *rollout.Why // it is being deleted
	Refused  *rollout.Why // its spec cannot be carried out
	Ready    *rollout.Why // everything is done
	Held     *rollout.Why // a person paused, disabled or suspended it
	Failed   *rollout.Why // it stopped, or ended with a failure

	Nodes iter.Seq[rollout.Verdict] // if none of the reasons is there; may be nil
	Other rollout.Why               // if no node says why it makes no progress
}

// Verdict is the outcome of an object, with a sentence.
type Verdict struct {
	v1alpha1.Outcome
	Message string
}

// nodeVerdicts is what nodes make of the whole: the first entry that is true of any node counts. Entries without a reason are for all
// other reasons of the phase.
var nodeVerdicts = []struct {
	phase   rollout.Phase
	reason  rollout.Reason
	verdict v1alpha1.Verdict
}{
	{rollout.PhaseFailed, "", v1alpha1.VerdictFailed},
	{rollout.PhaseFailing, "", v1alpha1.VerdictProgressing},
	{rollout.PhaseInFlight, "", v1alpha1.VerdictProgressing},
	{rollout.PhaseWaiting, rollout.ReasonStopped, v1alpha1.VerdictFailed},
	{rollout.PhaseWaiting, rollout.ReasonApproval, v1alpha1.VerdictSuspended},
	{rollout.PhaseWaiting, rollout.ReasonPaused, v1alpha1.VerdictSuspended},
	{rollout.PhaseWaiting, rollout.ReasonWindow, v1alpha1.VerdictSuspended},
	{rollout.PhaseWaiting, "", v1alpha1.VerdictProgressing},
	{rollout.PhaseBlocked, rollout.ReasonLedger, v1alpha1.VerdictProgressing}, // until a status is written
	{rollout.PhaseBlocked, "", v1alpha1.VerdictFailed},
	{rollout.PhaseBlocked, rollout.ReasonIgnored, v1alpha1.VerdictSuspended},
	{rollout.PhasePaused, "", v1alpha1.VerdictSuspended},
	{rollout.PhaseDisabled, "", v1alpha1.VerdictSuspended},
}

// Judge returns the verdict about an object.
func (s *Standing) Judge() Verdict {
	for _, c := range []struct {
		why     *rollout.Why
		verdict v1alpha1.Verdict
	}{
		{s.Deleting, v1alpha1.VerdictDeleting}, {s.Refused, v1alpha1.VerdictFailed}, {s.Ready, v1alpha1.VerdictReady},
		{s.Held, v1alpha1.VerdictSuspended}, {s.Failed, v1alpha1.VerdictFailed},
	} {
		if c.why != nil {
			return newVerdict(c.verdict, *c.why)
		}
	}
	first, decisive := len(nodeVerdicts), rollout.Verdict{}
	if s.Nodes != nil {
		for n := range s.Nodes {
			if rank := rankNode(n); rank < first {
				first, decisive = rank, n
			}
		}
	}
	if first == len(nodeVerdicts) || nodeVerdicts[first].verdict == v1alpha1.VerdictProgressing {
		return newVerdict(v1alpha1.VerdictProgressing, s.Other)
	}
	decisive.Why.Text = decisive.Node + ": " + decisive.Why.Text
	return newVerdict(nodeVerdicts[first].verdict, decisive.Why)
}

func newVerdict(verdict v1alpha1.Verdict, why rollout.Why) Verdict {
	return Verdict{v1alpha1.Outcome{Verdict: verdict, Reason: string(why.Reason)}, rollout.Shorten(why.Text)}
}

// rankNode returns the place of a node in nodeVerdicts: of its reason, or else of its phase.
func rankNode(n rollout.Verdict) int {
	rank := len(nodeVerdicts)
	for i, v := range slices.Backward(nodeVerdicts) {
		if v.phase == n.Phase && (v.reason == n.Why.Reason || v.reason == "" && rank == len(nodeVerdicts)) {
			rank = i
		}
	}
	return rank
}

// SetConditions sets the condition that follows from the verdict for programs that go by kstatus: neither is true of what is ready, or
// waits for a person or a time.
func (v Verdict) SetConditions(set func(kind string, holds bool, reason, message string)) {
	switch v.Verdict {
	case v1alpha1.VerdictFailed:
		set(v1alpha1.ConditionStalled, true, v.Reason, v.Message)
	case v1alpha1.VerdictProgressing, v1alpha1.VerdictDeleting:
		set(v1alpha1.ConditionReconciling, true, v.Reason, v.Message)
	}
}
