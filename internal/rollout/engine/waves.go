// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// wave is how far a group is, for the groups that come after it.
type wave struct {
	before   []*groupState                 // groups that must be complete before
	isNeeded bool                          // others come after the group, so that its targets are counted
	missing  bool                          // the group is named and does not exist
	open     []openTargets                 // by rollout
	behind   map[*rolloutState]*groupState // what findBehind found
	approved map[*rolloutState]bool
	asking   []*rolloutState // that have candidates
}

// openTargets are the targets of a rollout in a group that are not complete.
type openTargets struct {
	of    *rolloutState
	total int
	lost  names // those that failed for good
	busy  names // those that are in progress, or do not count yet
}

// names are a few of many names.
type names struct {
	first []string
	total int
}

func (n *names) add(name string) {
	n.first = appendListed(n.first, name)
	n.total++
}

func (n *names) addAll(other names) {
	for _, name := range other.first {
		n.first = appendListed(n.first, name)
	}
	n.total += other.total
}

// findWaves looks up the groups that come before others.
func (p *planner) findWaves() {
	for i := range p.groups {
		g := &p.groups[i]
		for _, ref := range g.After {
			before := p.findGroup(ref)
			if before == nil {
				before = &groupState{Group: &rollout.Group{Ref: ref}, wave: wave{missing: true}}
			}
			before.wave.isNeeded = true
			g.wave.before = append(g.wave.before, before)
		}
	}
}

// hasSharedWaves reports whether several rollouts have targets in groups that come after others, or before. What one of them waits for
// depends on what the others wait for.
func (p *planner) hasSharedWaves() bool {
	users := map[*groupState]*rolloutState{}
	for i := range p.targets {
		t := &p.targets[i]
		isOfWave := t.group.wave.isNeeded || len(t.group.wave.before) > 0
		if !isOfWave {
			continue
		}
		if other := users[t.group]; other != nil && other != t.rollout {
			return true
		}
		users[t.group] = t.rollout
	}
	return false
}

// isExcluded reports whether a label or a taint excludes the node of a target. That may take any time.
func (t *targetState) isExcluded() bool {
	blocked := t.target.Blocked
	return blocked != nil && (blocked.Reason == rollout.ReasonIgnored || blocked.Reason == rollout.ReasonTaintNotTolerated)
}

// isAwaited reports whether groups that come after the one of the target wait for it: all that is selected and can be worked on must
// be finished, proven and soaked. One that failed for good is waited for until a person fixes, resets or ignores it.
func (t *targetState) isAwaited() bool {
	if t.target.Leaving || t.isExcluded() || !t.rollout.isAwaited() {
		return false
	}
	return !t.hasPassed()
}

// isAwaited reports whether groups wait for targets of the rollout at all.
func (r *rolloutState) isAwaited() bool { return !r.Deleting && !r.isBypassed() }

// addAwaited counts a target if later groups wait for it. Those that are named are never left out of a snapshot.
func (w *wave) addAwaited(t *targetState) {
	if !w.isNeeded || !t.isAwaited() {
		return
	}
	open := w.openOf(t.rollout)
	open.total++
	switch {
	case t.isLost() || t.target.Visit.Skipped:
		open.lost.add(t.target.Node)
	case t.target.Visit.Admitted || !t.hasWork:
		open.busy.add(t.target.Node)
	case t.rollout.barrier != nil || t.findEarlier() != nil:
		t.rollout.isBehindOther = true
	}
}

// addOmitted counts targets that a snapshot leaves out.
func (w *wave) addOmitted(r *rolloutState, o *rollout.Omitted) {
	if w.isNeeded && r.isAwaited() && o.Waiting+o.Blocked > 0 {
		w.openOf(r).total += o.Waiting + o.Blocked
	}
}

func (w *wave) openOf(r *rolloutState) *openTargets {
	if open := find(w.open, func(o *openTargets) bool { return o.of == r }); open != nil {
		return open
	}
	w.open = append(w.open, openTargets{of: r})
	return &w.open[len(w.open)-1]
}

// findOpen returns for which targets of the group a rollout waits: its own, and those of all others except rollouts that wait for
// another one themselves. These may wait for the rollout that asks.
func (w *wave) findOpen(r *rolloutState) openTargets {
	all := openTargets{of: r}
	for i := range w.open {
		if open := &w.open[i]; open.of == r || !open.of.isBehindOther {
			all.total += open.total
			all.lost.addAll(open.lost)
			all.busy.addAll(open.busy)
		}
	}
	return all
}

// findBehind returns the first group that must be complete before targets of a rollout are admitted to this one; nil if all are. A
// group without targets is complete when those before it are. Groups that come after each other in a circle wait for themselves. It
// is found out once for each rollout.
func (g *groupState) findBehind(r *rolloutState) *groupState {
	w := &g.wave
	if len(w.before) == 0 {
		return nil
	}
	if behind, isKnown := w.behind[r]; isKnown {
		return behind
	}
	if w.behind == nil {
		w.behind = map[*rolloutState]*groupState{}
	}
	w.behind[r] = g // while it is looked for
	var first *groupState
	for _, before := range w.before {
		behind := before
		if !before.wave.missing && before.wave.findOpen(r).total == 0 {
			behind = before.findBehind(r)
		}
		if first == nil {
			first = behind
		}
	}
	w.behind[r] = first
	return first
}

// checkWave stops candidates while an earlier group is not complete, and before a person approved the group. A deletion always goes on, and so do
// the nodes of a rollout that roll back.
func checkWave(t *targetState) *rollout.Why {
	g, r := t.group, t.rollout
	switch {
	case g.mayBegin(r):
		return nil
	case g.findBehind(r) != nil:
		return groupReasons{g}.behindWave(r)
	}
	return groupReasons{g}.unapproved()
}

// mayBegin reports whether targets of a rollout may be admitted to the group: it is its turn, and a person approved it.
func (g *groupState) mayBegin(r *rolloutState) bool {
	return r.Deleting || r.stopReason() != nil || g.findBehind(r) == nil && g.isApproved(r)
}

// addAsking notes that a rollout has candidates.
func (w *wave) addAsking(r *rolloutState) {
	isLast := len(w.asking) > 0 && w.asking[len(w.asking)-1] == r
	if !isLast {
		w.asking = append(w.asking, r)
	}
}

// mayBeginAny reports whether any rollout with candidates may begin.
func (g *groupState) mayBeginAny() bool { return slices.ContainsFunc(g.wave.asking, g.mayBegin) }

// isApproved reports whether a person approved a rollout. That is found out once.
func (g *groupState) isApproved(r *rolloutState) bool {
	if !g.Approval.Required {
		return true
	}
	isApproved, isKnown := g.wave.approved[r]
	if !isKnown {
		isApproved = g.Approval.Includes(r.Ref)
		if g.wave.approved == nil {
			g.wave.approved = map[*rolloutState]bool{}
		}
		g.wave.approved[r] = isApproved
	}
	return isApproved
}

func (g groupReasons) behindWave(r *rolloutState) *rollout.Why {
	before := g.findBehind(r)
	variant := ""
	if len(before.wave.open) > 1 { // rollouts that share the group wait for different targets
		variant = r.Ref.String()
	}
	why := g.cached(rollout.ReasonWave, variant, func() string { return g.describeWave(before, before.wave.findOpen(r)) })
	why.About = before.Ref.String()
	return why
}

func (g groupReasons) describeWave(before *groupState, open openTargets) string {
	name := "compartment " + before.Ref.Name()
	switch {
	case before.wave.missing:
		return name + ", which comes before this one, does not exist"
	case open.total == 0 || before.Ref == g.Ref:
		return name + " waits for itself: compartments come after each other in a circle"
	}
	text := name + " is not complete: " + countNoun(open.total, "node is", "nodes are") + " left"
	if open.lost.total > 0 {
		text += "; failed: " + listNames(open.lost.first, open.lost.total)
	}
	if open.busy.total > 0 {
		text += "; in progress: " + listNames(open.busy.first, open.busy.total)
	}
	if before.memory.Stopped {
		text += "; it has stopped"
	}
	return text
}

func (g groupReasons) unapproved() *rollout.Why {
	return g.cached(rollout.ReasonApproval, "", func() string {
		text := "a person must approve compartment " + g.Ref.Name() + " of " + g.Ref.Owner.Title() + " before it begins"
		switch {
		case g.Approval.Problem != "":
			text += ": " + g.Approval.Problem
		case g.Approval.Given != "" && g.Approval.By != "":
			text += "; the approval by " + g.Approval.By + " is for something else"
		case g.Approval.Given != "":
			text += "; the approval that is recorded is for something else"
		}
		return text
	})
}
