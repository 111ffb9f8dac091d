// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Fleet is the data behind the page of all nodes. status --nodes -o json prints it.
type Fleet struct {
	Rollouts []RolloutStatus `json:"rollouts"`
	Nodes    []Cell          `json:"nodes"` // those that the filter selects
}

// SortByUrgency returns the nodes, the most urgent first.
func (f *Fleet) SortByUrgency() []Cell {
	return slices.SortedStableFunc(slices.Values(f.Nodes), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.State.rank(), b.State.rank()), strings.Compare(a.Node, b.Node))
	})
}

// SortRollouts returns the rollouts, what needs somebody first, and those that are done, the last one first.
func (f *Fleet) SortRollouts() (open, done []RolloutStatus) {
	for _, r := range f.Rollouts {
		if r.Ended || r.Verdict == v1alpha1.VerdictReady {
			done = append(done, r)
		} else {
			open = append(open, r)
		}
	}
	need := func(s RolloutStatus) int {
		if s.Failing > 0 {
			return 0
		}
		return slices.Index(verdictsByNeed, s.Verdict)
	}
	slices.SortStableFunc(open, func(a, b RolloutStatus) int { return cmp.Compare(need(a), need(b)) })
	end := func(s RolloutStatus) time.Time {
		if s.FinishedAt == nil {
			return time.Time{}
		}
		return *s.FinishedAt
	}
	slices.SortStableFunc(done, func(a, b RolloutStatus) int { return end(b).Compare(end(a)) })
	return open, done
}

// verdictsByNeed are the verdicts, those that need somebody first.
var verdictsByNeed = []v1alpha1.Verdict{v1alpha1.VerdictFailed, v1alpha1.VerdictSuspended, v1alpha1.VerdictProgressing, v1alpha1.VerdictDeleting}

// StateOf returns the state that stands for a verdict.
func StateOf(o v1alpha1.Outcome) State {
	switch o.Verdict {
	case v1alpha1.VerdictReady:
		return StateComplete
	case v1alpha1.VerdictFailed:
		return StateFailed
	case v1alpha1.VerdictSuspended:
		return StatePaused
	}
	return StateWorking
}

// Cell is one node: what it does in the rollout that needs the most attention there.
type Cell struct {
	Node        string            `json:"node"`
	State       State             `json:"state"`
	Rollout     string            `json:"rollout,omitempty"`
	Compartment string            `json:"compartment,omitempty"`
	Stage       string            `json:"stage,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Text        string            `json:"text,omitempty"`
	Since       *time.Time        `json:"since,omitempty"`
	Labels      map[string]string `json:"-"`
}

// FleetFilter is which nodes are shown.
type FleetFilter struct {
	State State
	Query string // part of a name, a stage or a reason
}

// Check returns an error for a state that does not exist.
func (f FleetFilter) Check() error {
	if f.State == "" || States[f.State.rank()].State == f.State {
		return nil
	}
	var known []string
	for _, s := range States {
		known = append(known, string(s.State))
	}
	return fmt.Errorf("state %q is not one of %s", f.State, strings.Join(known, ", "))
}

// Matches reports whether a node is shown.
func (f FleetFilter) Matches(c *Cell) bool {
	if f.State != "" && c.State != f.State {
		return false
	}
	query := strings.ToLower(f.Query)
	for _, text := range []string{c.Node, c.Stage, c.Reason, c.Text} {
		if strings.Contains(strings.ToLower(text), query) {
			return true
		}
	}
	return false
}

// NewFleet says what each node does in the named rollout, or in the one that needs the most attention there.
func (v *Cluster) NewFleet(args []string) *Fleet {
	fleet := &Fleet{Rollouts: []RolloutStatus{}, Nodes: v.listCells(args)}
	for _, r := range v.SelectRollouts(args) {
		fleet.Rollouts = append(fleet.Rollouts, SummarizeRollout(v, r))
	}
	return fleet
}

// listCells returns what each node does, by name; with named rollouts only of the nodes that they select.
func (v *Cluster) listCells(args []string) []Cell {
	cells := map[string]Cell{}
	for _, r := range v.SelectRollouts(args) {
		for i, verdict := range v.ReportOf(r.Ref).Verdicts {
			t := r.Targets[i]
			n := v.Objects.Node(t.Node)
			if t.Leaving || t.Gone || n == nil {
				continue
			}
			c := v.newCell(r, t, verdict, n)
			if was, ok := cells[t.Node]; !ok || c.State.IsMoreUrgent(was.State) {
				cells[t.Node] = c
			}
		}
	}
	out := []Cell{}
	for _, n := range v.Objects.Nodes {
		c, isSelected := cells[n.Name]
		switch {
		case !isSelected && len(args) > 0:
			continue
		case !isSelected:
			c = Cell{Node: n.Name, State: StateIdle, Labels: n.Labels}
			if !n.Ready {
				c.State = StateNotReady
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Cell) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// newCell describes what a node does in one rollout.
func (v *Cluster) newCell(r *rollout.Rollout, t *rollout.Target, verdict rollout.Verdict, n *node.Node) Cell {
	c := Cell{
		Node: t.Node, Rollout: ShortName(r.Ref), Compartment: groupName(r, t.Group), Labels: n.Labels,
		State: v.stateOf(r, t, verdict, n), Reason: string(verdict.Why.Reason), Text: verdict.Why.Text, Since: timeOrNil(verdict.Why.Since),
	}
	if k := currentTask(t); k != nil {
		c.Stage = k.Label
		if c.Since == nil {
			c.Since = timeOrNil(k.Attempts.Started)
		}
	}
	if verdict.Phase == rollout.PhaseFinished {
		c.Since = timeOrNil(t.Visit.FinishedAt)
	}
	if key, drift := v.firstDrift(r, t); c.State == StateDrifted {
		name, _, _ := strings.Cut(key, "|")
		c.Reason, c.Text, c.Since = string(rollout.ReasonDrift), name+": "+drift.Text, timeOrNil(drift.Since)
	}
	return c
}

// firstDrift returns the first package of a target that is not as it was left; an empty key if there is none.
func (v *Cluster) firstDrift(r *rollout.Rollout, t *rollout.Target) (key string, found node.PackageDrift) {
	hook := v.SkyhookOf(r)
	if hook == nil || hook.Spec.Drift == nil {
		return "", node.PackageDrift{}
	}
	rec := v.Compiled.Skyhook(hook).DriftOf(t.Node)
	if keys := rec.Drifted(); len(keys) > 0 {
		return keys[0], rec.Packages[keys[0]]
	}
	return "", node.PackageDrift{}
}

// currentTask returns the failing task of a target, otherwise a running one; nil when there is neither.
func currentTask(t *rollout.Target) *rollout.Task {
	var running *rollout.Task
	for i := range t.Tasks {
		switch k := &t.Tasks[i]; k.State {
		case rollout.StateFailing:
			return k
		case rollout.StateRunning:
			running = cmp.Or(running, k)
		}
	}
	return running
}

// drainReasons are the reasons of a node whose pods have not left it.
var drainReasons = []rollout.Reason{
	rollout.ReasonProtectedPod, rollout.ReasonPodDisruptionBudget, rollout.ReasonPodLeaving, rollout.ReasonPodKept, rollout.ReasonDrainTimeout, rollout.ReasonLoadBalancer,
	rollout.ReasonHandover, rollout.ReasonHandoverTimeout,
}

// stateOf returns what a node does in a rollout, in the words of the pages.
func (v *Cluster) stateOf(r *rollout.Rollout, t *rollout.Target, verdict rollout.Verdict, n *node.Node) State {
	switch {
	case verdict.Phase == rollout.PhaseFailed || verdict.Phase == rollout.PhaseFailing:
		return StateFailed
	case verdict.Phase == rollout.PhaseInFlight && v.isRebooting(r, t):
		return StateRebooting
	case !n.Ready:
		return StateNotReady
	case verdict.Phase == rollout.PhaseInFlight && slices.Contains(drainReasons, verdict.Why.Reason):
		return StateDraining
	case verdict.Phase == rollout.PhaseFinished:
		if key, _ := v.firstDrift(r, t); key != "" {
			return StateDrifted
		}
	}
	return phaseStates[verdict.Phase]
}

var phaseStates = map[rollout.Phase]State{
	rollout.PhaseFinished: StateComplete, rollout.PhaseWaiting: StateWaiting, rollout.PhaseInFlight: StateWorking, rollout.PhaseBlocked: StateBlocked,
	rollout.PhasePaused: StatePaused, rollout.PhaseDisabled: StatePaused,
}

// isRebooting reports whether a reboot runs on the node of a target.
func (v *Cluster) isRebooting(r *rollout.Rollout, t *rollout.Target) bool {
	hook := v.SkyhookOf(r)
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool {
		if k.State != rollout.StateRunning || k.Need != rollout.NeedAlone {
			return false
		}
		if hook == nil { // the only task of a NodeOp that runs alone
			return true
		}
		p, ok := v.Compiled.Skyhook(hook).Purpose(t.Node, k.ID)
		return ok && p.Interrupt != nil && p.Interrupt.Type == v1alpha1.InterruptReboot
	})
}
