// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Next is what happens next in a rollout: by itself, or when a person acts.
type Next struct {
	Text string
	At   *time.Time // about when; nil if that is not known
	Help string
}

// FindNext says what happens next in a rollout, by its verdict and the simulation; nil if nothing does.
func (v *Cluster) FindNext(r *rollout.Rollout, s *RolloutStatus, why []Explanation, f *Forecast) *Next {
	if s.Verdict == v1alpha1.VerdictReady {
		return nil
	}
	if opens := v.findOpening(r, rollout.Reason(s.Reason)); opens != nil {
		return &Next{Text: "its window opens", At: opens}
	}
	if s.Verdict != v1alpha1.VerdictProgressing {
		at := slices.IndexFunc(why, func(e Explanation) bool { return e.Reason == s.Reason })
		if at < 0 {
			return nil
		}
		return &Next{Text: why[at].Text, Help: why[at].Help}
	}
	for _, w := range f.waves[r.Ref] {
		if w.after > 0 {
			return &Next{Text: describeWave(r, w) + v.describeCause(r, f, w.after), At: timeOrNil(v.Snapshot.Now.Add(w.after))}
		}
	}
	if left := countReasons(slices.Collect(maps.Values(f.waitingVerdicts(r)))); len(left) > 0 {
		return &Next{Text: fmt.Sprintf("no other node begins by itself: %s: %s", output.Count(left[0].Nodes, "node"), left[0].Text)}
	}
	for _, turn := range slices.Backward(f.turns) {
		if turn.target.rollout == r.Ref && turn.isEnd && !f.isCut {
			return &Next{Text: "every node is complete", At: timeOrNil(v.Snapshot.Now.Add(turn.after))}
		}
	}
	return nil
}

func describeWave(r *rollout.Rollout, w wave) string {
	if len(w.Nodes) == 1 {
		return fmt.Sprintf("%s of %s begins", w.Nodes[0], groupName(r, w.group))
	}
	return fmt.Sprintf("%d nodes of %s begin", len(w.Nodes), groupName(r, w.group))
}

// describeCause says whose end lets nodes begin in the simulation; nothing if that is not the end of a node.
func (v *Cluster) describeCause(r *rollout.Rollout, f *Forecast, at time.Duration) string {
	var ended, others []string
	for _, turn := range f.turns {
		switch {
		case !turn.isEnd || turn.after != at:
		case turn.target.rollout == r.Ref:
			ended = append(ended, turn.target.node)
		default:
			others = append(others, turn.target.node)
		}
	}
	if len(ended) == 0 {
		ended = others
	}
	switch {
	case len(ended) > 2:
		return fmt.Sprintf(" when %s and %d others are done", ended[0], len(ended)-1)
	case len(ended) == 2:
		return fmt.Sprintf(" when %s and %s are done", ended[0], ended[1])
	case len(ended) == 1:
		return fmt.Sprintf(" when %s is done", ended[0])
	}
	return ""
}

// findOpening returns when the first window of a rollout opens that waits for one; nil otherwise.
func (v *Cluster) findOpening(r *rollout.Rollout, reason rollout.Reason) *time.Time {
	if reason != rollout.ReasonWindow {
		return nil
	}
	isOfRollout := map[rollout.GroupRef]bool{}
	for _, t := range r.Targets {
		isOfRollout[t.Group] = true
	}
	var first time.Time
	for i := range v.Snapshot.Groups {
		if g := &v.Snapshot.Groups[i]; isOfRollout[g.Ref] && !g.Until.IsZero() && (first.IsZero() || g.Until.Before(first)) {
			first = g.Until
		}
	}
	return timeOrNil(first)
}

// TrackStep is a compartment of a rollout, or a batch of the only one.
type TrackStep struct {
	Name     string
	State    State
	Nodes    int
	Complete int
	Failed   int
	Text     string
	At       *time.Time // when it begins, or when its soak ends
}

// ListTrack returns the way of a rollout: its compartments in their order, or the batches of its only one.
func (v *Cluster) ListTrack(r *rollout.Rollout, s *RolloutStatus, p *Progress) []TrackStep {
	compartments := (&planBuilder{Cluster: v}).listCompartments(r)
	if len(s.Groups) < 2 && len(compartments) == 0 {
		steps := listBatches(p)
		for i := range slices.Backward(steps) {
			if steps[i].State == StateComplete && len(s.Groups) > 0 { // the last batch that ended
				steps[i].addSoak(v.findSoakEnd(r, s.Groups[0].ref))
				break
			}
		}
		return steps
	}
	order := map[string]CompartmentPlan{}
	for _, c := range compartments {
		order[c.Name] = c
	}
	var steps []TrackStep
	for i := range s.Groups {
		steps = append(steps, v.newTrackStep(r, &s.Groups[i], order[s.Groups[i].Name], p))
	}
	slices.SortStableFunc(steps, func(a, b TrackStep) int { return cmp.Compare(order[a.Name].Order, order[b.Name].Order) })
	return steps
}

func (v *Cluster) newTrackStep(r *rollout.Rollout, g *groupStatus, c CompartmentPlan, p *Progress) TrackStep {
	step := TrackStep{Name: g.Name, Nodes: g.Nodes, Complete: g.Complete, Failed: g.Failed, State: StateWaiting, Text: cmp.Or(c.Waits, g.Why)}
	isApproval, isDone := false, true
	for i, verdict := range v.ReportOf(r.Ref).Verdicts {
		if t := r.Targets[i]; t.Group == g.ref && !t.Leaving && !t.Gone {
			isApproval = isApproval || verdict.Why.Reason == rollout.ReasonApproval
			isDone = isDone && verdict.Phase == rollout.PhaseFinished // also while it soaks
		}
	}
	begin := slices.IndexFunc(p.Batches, func(b Batch) bool { return b.Simulated && b.Group == g.Name })
	switch {
	case g.Stopped:
		step.State = StateFailed
	case isDone:
		step.State, step.Text = StateComplete, ""
		step.addSoak(v.findSoakEnd(r, g.ref))
	case isApproval:
		step.State = StateBlocked
	case g.Busy > 0:
		step.State, step.Text = StateWorking, fmt.Sprintf("batch %d", max(g.Batch, 1))
	case begin >= 0:
		step.At = &p.Batches[begin].At
	}
	return step
}

// findSoakEnd returns when the last node of a group that soaks counts; zero if none does.
func (v *Cluster) findSoakEnd(r *rollout.Rollout, ref rollout.GroupRef) (end time.Time) {
	for i, verdict := range v.ReportOf(r.Ref).Verdicts {
		if r.Targets[i].Group == ref && verdict.Why.Reason == rollout.ReasonSoak {
			end = rollout.LaterOf(end, verdict.Why.Since.Add(v.soakOf(ref)))
		}
	}
	return end
}

// addSoak lets a step that is complete soak until then, if that is a time.
func (s *TrackStep) addSoak(end time.Time) {
	if !end.IsZero() {
		s.State, s.Text, s.At = StateWorking, "soaks: its nodes must stay ready until", &end
	}
}

// Limits of a track of batches.
const (
	maxPastBatches   = 3
	maxFutureBatches = 4
)

// listBatches returns the last batches that began, and the next ones of the simulation.
func listBatches(p *Progress) []TrackStep {
	began := slices.IndexFunc(p.Batches, func(b Batch) bool { return b.Simulated })
	if began < 0 {
		began = len(p.Batches)
	}
	var steps []TrackStep
	for i, b := range p.Batches {
		step := TrackStep{Name: fmt.Sprintf("batch %d", i+1), State: StateWorking, Nodes: b.Nodes, Complete: b.Complete, Failed: b.Failed, At: &p.Batches[i].At}
		switch {
		case i < began-maxPastBatches || i >= began+maxFutureBatches:
			continue
		case b.Simulated:
			step.State = StateWaiting
		case b.Failed > 0:
			step.State = StateFailed
		case b.Complete == b.Nodes:
			step.State = StateComplete
		}
		steps = append(steps, step)
	}
	if more := len(p.Batches) - began - maxFutureBatches; more > 0 {
		steps[len(steps)-1].Text = fmt.Sprintf("and %s more", output.Count(more, "batch"))
	}
	return steps
}
