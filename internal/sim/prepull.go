// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// startPull creates the object that pulls the images of a target. How far that is, is for the caller to say.
func (w actionWriter) startPull() {
	w.changePull(func(p *rollout.Pull) {
		if p.Object == "" && !p.Leaving {
			p.Object, p.Created, p.Ended, p.Failed = w.newObjectName(), w.now, false, nil
		}
	})
}

// endPull ends the pull of a target that is admitted: nobody needs its object any more.
func (w actionWriter) endPull() {
	w.changePull(func(p *rollout.Pull) {
		if p.Object != "" {
			p.Old = append(p.Old, p.Object)
		}
		*p = rollout.Pull{Old: p.Old}
	})
}

// sweepPull deletes the object of a pull, and reports whether there was one.
func (w actionWriter) sweepPull(object string) bool {
	p := w.target.Pull
	if p == nil || p.Object != object && !slices.Contains(p.Old, object) {
		return false
	}
	w.changePull(func(p *rollout.Pull) {
		if p.Object == object {
			p.Object, p.Ended, p.Failed = "", false, nil
		}
		p.Old = slices.DeleteFunc(p.Old, func(o string) bool { return o == object })
	})
	return true
}

// changePull changes the pull of a target. Views share the old one.
func (w actionWriter) changePull(change func(*rollout.Pull)) {
	if w.target.Pull == nil {
		return
	}
	pull := *w.target.Pull
	pull.Old, pull.Exclusive = slices.Clone(pull.Old), slices.Clone(pull.Exclusive)
	change(&pull)
	w.target.Pull = &pull
}

// simplifyChecks leaves out checks, which never end in a run. An answer counts for all of it.
func simplifyChecks(r *rollout.Rollout) {
	r.CheckLimit = 0
	for _, t := range r.Targets {
		if t.Check == nil || t.Check.Refused == nil {
			t.Check = nil
			continue
		}
		check := *t.Check
		check.Due = never
		t.Check = &check
	}
}

var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// simplifyPulls prepares the pulls of a rollout for a run, in which they take no time. What fails goes on failing, so that it is known
// what that stops; if nothing does, nobody waits for a pull, and targets can be left out.
func simplifyPulls(r *rollout.Rollout) {
	isFailing := slices.ContainsFunc(r.Targets, func(t *rollout.Target) bool { return t.Pull != nil && t.Pull.Needed && t.Pull.Failed != nil })
	for _, t := range r.Targets {
		if t.Pull == nil || !isFailing {
			t.Pull = nil
			continue
		}
		pull := *t.Pull
		pull.Old, pull.Exclusive = nil, nil
		pull.Leaving = pull.Failed != nil && pull.Object == "" // what was refused is not asked for again
		t.Pull = &pull
	}
}

// endPull ends a pull that does not fail.
func endPull(t *rollout.Target) {
	if p := t.Pull; p != nil && p.Object != "" && p.Failed == nil && !p.Ended {
		pull := *p
		pull.Ended = true
		t.Pull = &pull
	}
}
