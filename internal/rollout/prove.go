// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

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
		p.plan.addAction(t, VerbProve, Why{Reason: ReasonProof, Text: "all work is done"})
		t.verdict = Verdict{Phase: PhaseInFlight, Why: proof.waitReason(p.plan.now)}
	case proof.Missing == nil:
		retirer(p).retireDone()
	case !proof.isLate(p.plan.now):
		p.plan.requestNext(proof.expiresAt())
		t.verdict = Verdict{Phase: PhaseInFlight, Why: proof.waitReason(proof.Since)}
	case proof.Release:
		why := proof.failureReason()
		if retirer(p).retireUnfailed(why) {
			t.verdict = Verdict{Phase: PhaseFinished, Why: why}
		}
	default:
		t.verdict = Verdict{Phase: PhaseFailed, Why: proof.failureReason()}
	}
}

// openProof returns the proof that a target in flight needs before it is given back. A deletion, and a node that is no longer
// selected, need none.
func (t *targetState) openProof() *Proof {
	if !t.target.Admitted || t.rollout.Deleting || t.target.Leaving {
		return nil
	}
	return t.target.Proof
}

// isProofFailed reports whether all work is done, the proof is late and the node stays.
func (t *targetState) isProofFailed(now time.Time) bool {
	proof := t.openProof()
	return proof != nil && !t.hasWork && proof.Missing != nil && proof.isLate(now) && !proof.Release
}

// expiresAt returns when the proof is late; zero for never. It counts from when the wait was observed, because Since may be a time of
// another clock.
func (p *Proof) expiresAt() time.Time {
	switch {
	case p.Timeout <= 0, p.Since.IsZero():
		return time.Time{}
	case p.Observed.IsZero():
		return p.Since.Add(p.Timeout)
	}
	return p.Observed.Add(p.Timeout)
}

func (p *Proof) isLate(now time.Time) bool {
	expires := p.expiresAt()
	return !expires.IsZero() && !now.Before(expires)
}

func (p *Proof) waitReason(since time.Time) Why {
	why := Why{Reason: ReasonProof, Text: "all work is done; it is checked whether the node may be given back"}
	if p.Missing != nil {
		why = withDefaultReason(p.Missing, ReasonProof)
	}
	why.Since = since
	return why
}

func (p *Proof) failureReason() Why {
	outlook := "the node is not given back"
	if p.Release {
		outlook = "the node is given back all the same"
	}
	why := *p.Missing
	why.Reason, why.Since = ReasonProofFailed, p.Since
	why.Text = truncate(why.Text + " for " + p.Timeout.String() + "; " + outlook)
	return why
}
