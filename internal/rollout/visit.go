// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Visit is what a node records of the admissions of a target: the one that goes on, or what is kept of the latest.
type Visit struct {
	Admitted   bool
	Admission  int // its number; increases by one with each admission
	AdmittedAt time.Time
	// of the latest admission, also after it ended; zero if unknown. Decisions do not depend on it
	LastAdmittedAt time.Time
	Order          int           // position in the rollout, given at admission
	Batch          int64         // Action.Batch of its latest admission; kept after it retires
	BatchOf        GroupRef      // Group.Ref at that admission: batches of different groups are not comparable; zero if unknown
	FinishedAt     time.Time     // when it retired without work; zero if unknown
	Took           time.Duration // from its last admission to FinishedAt; 0 if unknown
	Runs           []Runs        // the last ones of its packages, also of earlier admissions
	Skipped        bool          // retired with Skip: it counts as a final failure and is not admitted again
}

// Numbering is how the admissions of a rollout are numbered.
type Numbering struct {
	Stored bool // Next is stored: a target retires only when the stored Next is above its order
	Next   int  // as stored: order of the next admission; 0 after all work was done
	// above the orders of the admissions that are being sent to their nodes; 0 if there are none
	OnTheirWay int
}

// LastEnd returns when the last stage of the present admission ended; zero if none has.
func (v *Visit) LastEnd() (last time.Time) {
	for _, runs := range v.Runs {
		for _, s := range runs.Stages {
			if !s.At.Before(v.AdmittedAt) {
				last = LaterOf(last, s.At.Add(s.Took()))
			}
		}
	}
	return last
}
