// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Proof is what must be true of a node, after the last task of an admission, before the node is given back.
type Proof struct {
	Missing *Why      // what is not true; nil if everything is
	Since   time.Time // since when it is waited for, as recorded; zero before, and again when a task is recorded
	// when this process observed that first, see Durations; zero if unknown
	Observed time.Time
	Timeout  time.Duration // how long it is waited for; 0 for no limit
	Release  bool          // the node is given back after Timeout; otherwise it stays, as one that failed, until everything is true
	Start    bool          // an object that checks the node does not exist and is needed now
	Objects  []string      // names of such objects that exist; they are deleted when the node is given back
}

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
		p.sweepChecks(proof)
		retirer(p).retireDone()
	case !proof.isLate(p.plan.now):
		p.startChecks(proof)
		p.plan.requestNext(proof.expiresAt())
		t.verdict = Verdict{Phase: PhaseInFlight, Why: proof.waitReason(proof.Since)}
	case t.target.mayRollBackUnproven():
		p.sweepChecks(proof)
		retirer(p).rollBack(proof.failureReason("the node goes back"))
	case proof.Release:
		why := proof.failureReason("the node is given back all the same")
		p.sweepChecks(proof)
		if retirer(p).retireUnfailed(why) {
			t.verdict = Verdict{Phase: PhaseFinished, Why: why}
		}
	default:
		p.startChecks(proof)
		t.verdict = Verdict{Phase: PhaseFailed, Why: proof.failureReason("the node is not given back")}
		if t.target.Rollback.IfUnproven {
			t.verdict.Why = t.target.withRefusal(t.verdict.Why)
		}
	}
}

// startChecks creates the objects that check the node, also when the proof is late: the node is given back once it is complete.
func (p prover) startChecks(proof *Proof) {
	if proof.Start && !p.target.rollout.Paused {
		p.plan.addAction(p.target, VerbCheck, Why{Reason: ReasonProof, Text: "it is checked whether the node may be given back"})
	}
}

// sweepChecks deletes these objects, because the node is given back.
func (p prover) sweepChecks(proof *Proof) {
	for _, object := range proof.Objects {
		why := Why{Reason: ReasonEnded, Text: "the node is given back", About: object}
		p.plan.addAction(p.target, VerbSweep, why).Object = object
	}
}

// openProof returns the proof that a target in flight needs before it is given back. A deletion, and a node that is no longer
// selected, need none.
func (t *targetState) openProof() *Proof {
	if !t.target.Visit.Admitted || t.rollout.Deleting || t.target.Leaving {
		return nil
	}
	return t.target.Proof
}

// checkObjects returns the names of the objects that check the node.
func (t *Target) checkObjects() []string {
	if t.Proof == nil {
		return nil
	}
	return t.Proof.Objects
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

func (p *Proof) failureReason(outlook string) Why {
	why := *p.Missing
	why.Reason, why.Since = ReasonProofFailed, p.Since
	why.Text = truncate(why.Text + " for " + p.Timeout.String() + "; " + outlook)
	return why
}
