// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// prover keeps nodes on which all work is done until what must be true of them is true.
type prover struct{ *taskBoard }

// retireProven retires a target whose outcomes are all recorded, if its proof allows that. What is true counts only after it was
// recorded that the proof is waited for: what was observed before may be older than the outcomes.
func (p prover) retireProven() {
	t := p.target
	proof := t.openProof()
	switch {
	case proof == nil:
		retirer(p).retireDone()
	case t.hasWork, proof.Since.IsZero(): // outcomes that this plan records are newer than the snapshot
		p.plan.addAction(t, rollout.VerbProve, rollout.Why{Reason: rollout.ReasonProof, Text: "all work is done"})
		t.verdict = rollout.Verdict{Phase: rollout.PhaseInFlight, Why: proof.WaitReason(p.plan.now)}
	case proof.Missing == nil && p.plan.now.Before(proof.Settles):
		p.plan.requestNext(proof.Settles)
		t.verdict = rollout.Verdict{Phase: rollout.PhaseInFlight, Why: proof.WaitReason(proof.Since)}
	case proof.Missing == nil:
		retirer(p).retireDone()
	case !proof.IsLate(p.plan.now):
		p.plan.requestNext(proof.ExpiresAt())
		t.verdict = rollout.Verdict{Phase: rollout.PhaseInFlight, Why: proof.WaitReason(proof.Since)}
	case t.target.MayRollBackUnproven():
		retirer(p).rollBack(proof.FailureReason("the node goes back"))
	case proof.Release && t.target.Rollback.Cause != nil:
		retirer(p).retireDone() // it went back, and stays a failure
	case proof.Release:
		why := proof.FailureReason("the node is given back all the same")
		if retirer(p).retireUnfailed(why) {
			t.verdict = rollout.Verdict{Phase: rollout.PhaseFinished, Why: why}
		}
	default:
		t.verdict = rollout.Verdict{Phase: rollout.PhaseFailed, Why: proof.FailureReason("the node is not given back")}
		if t.target.Rollback.IfUnproven {
			t.verdict.Why = t.target.WithRefusal(t.verdict.Why)
		}
	}
}

// openProof returns the proof that a target in flight needs before it is given back. A deletion, a node that is no longer selected, and
// one that went back to nothing need none: the packages are gone whose work is proven.
func (t *targetState) openProof() *rollout.Proof {
	hasNothing := t.target.Rollback.Cause != nil && t.target.Rollback.First
	if !t.target.Visit.Admitted || t.rollout.Deleting || t.target.Leaving || hasNothing {
		return nil
	}
	return t.target.Proof
}

// isProofFailed reports whether all work is done, the proof is late and the node stays.
func (t *targetState) isProofFailed(now time.Time) bool {
	proof := t.openProof()
	return proof != nil && !t.hasWork && proof.Missing != nil && proof.IsLate(now) && !proof.Release
}
