// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Proof is what must be true of a node, after the last task of an admission, before the node is given back.
type Proof struct {
	Missing *Why      // what is not true; nil if everything is
	Settles time.Time // after a reboot: until then it may be of the boot before; zero if it is not
	Since   time.Time // since when it is waited for, as recorded; zero before, and again when a task is recorded
	// when this process observed that first, see timing.Durations; zero if unknown
	Observed time.Time
	Timeout  time.Duration // how long it is waited for; 0 for no limit
	Release  bool          // the node is given back after Timeout; otherwise it stays, as one that failed, until everything is true
	Start    bool          // an object that checks the node does not exist and is needed now
	Objects  []string      // names of such objects that exist; they are deleted when the node is given back
}

// ReportTime is how long a kubelet may report after a boot what is not true: pods and resources of the boot before, or that its node is ready.
const ReportTime = 30 * time.Second

// ExpiresAt returns when the proof is late; zero for never.
func (p *Proof) ExpiresAt() time.Time { return expiresAt(p.Since, p.Observed, p.Timeout) }

// expiresAt returns when a wait is late; zero for never. It counts from when the wait was observed, because since may be a time of another
// clock.
func expiresAt(since, observed time.Time, timeout time.Duration) time.Time {
	switch {
	case timeout <= 0, since.IsZero():
		return time.Time{}
	case observed.IsZero():
		return since.Add(timeout)
	}
	return observed.Add(timeout)
}

// IsLate reports whether a proof has been waited for as long as it may be.
func (p *Proof) IsLate(now time.Time) bool {
	expires := p.ExpiresAt()
	return !expires.IsZero() && !now.Before(expires)
}

// WaitReason is why a node is not given back yet.
func (p *Proof) WaitReason(since time.Time) Why {
	why := Why{Reason: ReasonProof, Text: "all work is done; it is checked whether the node may be given back"}
	if p.Missing != nil {
		why = WithDefaultReason(p.Missing, ReasonProof)
	}
	why.Since = since
	return why
}

// FailureReason is why a node that was not proven in time failed, and what happens to it.
func (p *Proof) FailureReason(outlook string) Why {
	why := *p.Missing
	why.Reason, why.Since = ReasonProofFailed, p.Since
	why.Text = Shorten(why.Text + " for " + p.Timeout.String() + "; " + outlook)
	return why
}
