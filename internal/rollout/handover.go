// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// HandoverStep is somebody who is asked for a node that is held, before the first pod leaves it.
type HandoverStep struct {
	Name      string        // unique in its rollout
	Timeout   time.Duration // how long the answer may take; 0 for no limit
	OnTimeout DrainTimeout  // Force goes on without the answer
}

// Handover is how far the handover of a target's node is, as recorded since it is held.
type Handover struct {
	Step  string    // Name of the step that is asked
	Since time.Time // since when
	// when this process observed that first, see timing.Durations; zero if unknown
	Observed time.Time
	Done     bool // all have answered: nobody is asked again until the node is given back
	Missing  *Why // why the step has not said yes; nil if it has
	Absent   bool // the object that is to answer does not exist
}

// FindStep returns the place of the step that is asked; -1 if none is. One that is no longer a step of the rollout is not asked.
func (h *Handover) FindStep(steps []HandoverStep) int {
	if h == nil {
		return -1
	}
	return slices.IndexFunc(steps, func(s HandoverStep) bool { return s.Name == h.Step })
}

// WaitReason is why nothing is evicted yet.
func (h *Handover) WaitReason() Why {
	why := Why{Reason: ReasonHandover, Text: "asks " + h.Step, Since: h.Since}
	if h.Missing != nil {
		why.Text, why.About = Shorten(why.Text+": "+h.Missing.Text), h.Missing.About
	}
	return why
}

// ExpiresAt returns when a step has had its time; zero for never.
func (h *Handover) ExpiresAt(timeout time.Duration) time.Time {
	return expiresAt(h.Since, h.Observed, timeout)
}
