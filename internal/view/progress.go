// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Progress is how many nodes did what over time, by the records on nodes, and how that goes on in the simulation.
type Progress struct {
	Nodes   int        `json:"nodes"`
	Now     time.Time  `json:"now"`
	Past    []Point    `json:"past"`
	Future  []Point    `json:"future,omitempty"`
	End     *time.Time `json:"simulatedEnd,omitempty"`  // when everything is complete in the simulation
	Cut     bool       `json:"simulationCut,omitempty"` // the simulation was stopped before its end, because it took too long
	Closed  []Span     `json:"closed,omitempty"`
	Batches []Batch    `json:"batches,omitempty"`
	Rows    []NodeRow  `json:"rows,omitempty"` // of a rollout with few nodes
}

// Point is how many nodes did what from one time on.
type Point struct {
	At       time.Time `json:"at"`
	Complete int       `json:"complete"`
	Working  int       `json:"working"`
	Failed   int       `json:"failed"`
}

// Span is a time in which no window is open.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Batch is nodes of a group that began together.
type Batch struct {
	At        time.Time `json:"at"`
	Group     string    `json:"group"`
	Nodes     int       `json:"nodes"`
	Complete  int       `json:"complete,omitempty"` // of these, now
	Failed    int       `json:"failed,omitempty"`
	Simulated bool      `json:"simulated,omitempty"`
}

// NodeRow is when a rollout worked on one node, and when it would in the simulation.
type NodeRow struct {
	Node  string     `json:"node"`
	Spans []NodeSpan `json:"spans"`
}

// NodeSpan is a time in which a rollout worked on a node.
type NodeSpan struct {
	Span
	State     State `json:"state"`
	Simulated bool  `json:"simulated,omitempty"`
}

// maxRows is up to how many nodes each has a row of its own.
const maxRows = 10

// nodeWork is when a rollout worked on a node last. Times are zero if they are unknown or still to come.
type nodeWork struct {
	node         string
	group        rollout.GroupRef
	began, ended time.Time
	isComplete   bool
	isFailed     bool
	isUnderWay   bool
}

// listWork returns when a rollout worked on which of its nodes. After a NodeOp has ended only its status knows.
func (v *Cluster) listWork(r *rollout.Rollout) []nodeWork {
	var out []nodeWork
	if op := v.endedNodeOp(r); op != nil {
		for _, name := range slices.Sorted(maps.Keys(op.Status.NodeStatuses)) {
			out = append(out, v.workOfEntry(r, name, op.Status.NodeStatuses[name]))
		}
		return out
	}
	for i, verdict := range v.ReportOf(r.Ref).Verdicts {
		t := r.Targets[i]
		if t.Leaving || t.Gone {
			continue
		}
		work := nodeWork{node: t.Node, group: t.Group, began: t.Visit.LastAdmittedAt, isUnderWay: t.Visit.Admitted}
		switch verdict.Phase {
		case rollout.PhaseFinished:
			work.isComplete, work.ended = true, t.Visit.FinishedAt
		case rollout.PhaseFailing, rollout.PhaseFailed:
			work.isFailed, work.ended = true, verdict.Why.Since
		}
		out = append(out, work)
	}
	return out
}

func (v *Cluster) workOfEntry(r *rollout.Rollout, name string, entry nodeopv1.NodeStatus) nodeWork {
	work := nodeWork{node: name, isComplete: entry.Phase == nodeopv1.PhaseCompleted, isFailed: entry.Phase == nodeopv1.PhaseFailed}
	if t := v.findTarget(r.Ref, name); t != nil {
		work.group = t.Group
	}
	if entry.StartTime != nil {
		work.began = entry.StartTime.Time
	}
	if entry.CompletionTime != nil {
		work.ended = entry.CompletionTime.Time
	}
	return work
}

// newProgress counts nodes over time: by the records on nodes until now, and by the simulation from now on.
func (v *Cluster) newProgress(r *rollout.Rollout, f *Forecast) *Progress {
	all := v.listWork(r)
	p := &Progress{Now: v.Snapshot.Now.UTC(), Nodes: len(all)}
	begin := v.findBegin(r, all)
	p.Past = sumPoints(Point{At: begin}, countWork(all, begin))
	v.addFuture(p, r, f)
	v.addBatches(p, r, f, all)
	p.addRows(r, f, all)
	p.Closed = v.closedSpans(r, begin, cmp.Or(lastTime(p.Future), p.Now))
	return p
}

// countWork returns how the numbers of nodes change over time. What was before the begin counts from there.
func countWork(all []nodeWork, begin time.Time) map[time.Time]Point {
	changes := map[time.Time]Point{}
	add := func(at time.Time, complete, working, failed int) {
		at = at.UTC()
		if at.Before(begin) {
			at = begin
		}
		was := changes[at]
		changes[at] = Point{Complete: was.Complete + complete, Working: was.Working + working, Failed: was.Failed + failed}
	}
	for _, work := range all {
		isEnd := work.isComplete || work.isFailed
		hasBegin := !work.began.IsZero() && work.began.Before(work.ended)
		complete, failed := boolToInt(work.isComplete), boolToInt(work.isFailed)
		switch {
		case isEnd && hasBegin:
			add(work.began, 0, 1, 0)
			add(work.ended, complete, -1, failed)
		case isEnd:
			add(work.ended, complete, 0, failed)
		case work.isUnderWay:
			add(work.began, 0, 1, 0)
		}
	}
	return changes
}

// findBegin returns when the present work of a rollout began.
func (v *Cluster) findBegin(r *rollout.Rollout, all []nodeWork) time.Time {
	begin := v.Snapshot.Now
	for _, work := range all {
		for _, t := range []time.Time{work.began, work.ended} {
			if !t.IsZero() && t.Before(begin) {
				begin = t
			}
		}
	}
	if r.Since.After(begin) && r.Since.Before(v.Snapshot.Now) {
		begin = r.Since
	}
	return begin.UTC()
}

func lastTime(points []Point) time.Time {
	if len(points) == 0 {
		return time.Time{}
	}
	return points[len(points)-1].At
}

// sumPoints adds differences up, from a first point on.
func sumPoints(first Point, changes map[time.Time]Point) []Point {
	out := []Point{first}
	for _, at := range slices.SortedFunc(maps.Keys(changes), time.Time.Compare) {
		last, change := out[len(out)-1], changes[at]
		next := Point{At: at, Complete: last.Complete + change.Complete, Working: last.Working + change.Working, Failed: last.Failed + change.Failed}
		if !at.After(last.At) {
			out[len(out)-1] = next
			continue
		}
		out = append(out, next)
	}
	return out
}

// addFuture adds what the simulation says.
func (v *Cluster) addFuture(p *Progress, r *rollout.Rollout, f *Forecast) {
	if r.Paused || r.Broken != nil {
		return
	}
	now := p.Past[len(p.Past)-1]
	now.At = p.Now
	failed := map[string]bool{}
	for _, verdict := range v.ReportOf(r.Ref).Verdicts {
		failed[verdict.Node] = verdict.Phase == rollout.PhaseFailing || verdict.Phase == rollout.PhaseFailed
	}
	changes := map[time.Time]Point{}
	for _, turn := range f.turns {
		if turn.target.rollout != r.Ref {
			continue
		}
		at := p.Now.Add(turn.after) // an older simulation serves for a while
		change := changes[at]
		switch isFailed := failed[turn.target.node]; {
		case !turn.isEnd && !isFailed:
			change.Working++
		case turn.isEnd && isFailed:
			change.Complete, change.Failed = change.Complete+1, change.Failed-1
		case turn.isEnd:
			change.Complete, change.Working = change.Complete+1, change.Working-1
		default:
			continue
		}
		changes[at] = change
	}
	p.Future = sumPoints(now, changes)
	p.Cut = f.isCut
	if !f.isCut && len(f.waitingVerdicts(r)) == 0 && len(p.Future) > 1 {
		end := lastTime(p.Future)
		p.End = &end
	}
}

// addBatches adds when nodes began together, and when they would in the simulation.
func (v *Cluster) addBatches(p *Progress, r *rollout.Rollout, f *Forecast, all []nodeWork) {
	type batch struct {
		group rollout.GroupRef
		at    time.Time
	}
	began := map[batch]*Batch{}
	for _, work := range all {
		if work.began.IsZero() || work.began.Before(p.Past[0].At) {
			continue
		}
		key := batch{work.group, work.began.UTC()}
		if began[key] == nil {
			began[key] = &Batch{At: key.at, Group: groupName(r, key.group)}
		}
		b := began[key]
		b.Nodes, b.Complete, b.Failed = b.Nodes+1, b.Complete+boolToInt(work.isComplete), b.Failed+boolToInt(work.isFailed)
	}
	for _, b := range began {
		p.Batches = append(p.Batches, *b)
	}
	if len(p.Future) > 0 {
		for _, w := range f.waves[r.Ref] {
			p.Batches = append(p.Batches, Batch{At: p.Now.Add(w.after), Group: groupName(r, w.group), Nodes: len(w.Nodes), Simulated: true})
		}
	}
	slices.SortFunc(p.Batches, func(a, b Batch) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Group, b.Group)) })
}

// addRows adds when the rollout works on which node, if they are few.
func (p *Progress) addRows(r *rollout.Rollout, f *Forecast, all []nodeWork) {
	if len(all) >= maxRows {
		return
	}
	for _, work := range all {
		row := NodeRow{Node: work.node, Spans: []NodeSpan{}}
		add := func(from, to time.Time, state State, isSimulated bool) {
			if !from.IsZero() && to.After(from) {
				row.Spans = append(row.Spans, NodeSpan{Span{from.UTC(), to.UTC()}, state, isSimulated})
			}
		}
		switch {
		case work.isComplete:
			add(work.began, work.ended, StateComplete, false)
		case work.isFailed:
			add(work.began, p.Now, StateFailed, false)
		case work.isUnderWay:
			add(work.began, p.Now, StateWorking, false)
		}
		if from := p.Now; len(p.Future) > 0 {
			for _, turn := range f.turns {
				switch at := p.Now.Add(turn.after); {
				case turn.target != targetKey{r.Ref, work.node}:
				case turn.isEnd:
					add(from, at, StateComplete, true)
				default:
					from = at
				}
			}
		}
		p.Rows = append(p.Rows, row)
	}
	slices.SortStableFunc(p.Rows, func(a, b NodeRow) int { return cmp.Compare(beginOf(a), beginOf(b)) })
}

// beginOf sorts rows: those without work come last.
func beginOf(row NodeRow) int64 {
	if len(row.Spans) == 0 {
		return math.MaxInt64
	}
	return row.Spans[0].From.Unix()
}

// policyOf returns the name of the policy of a rollout; empty when it has none.
func (v *Cluster) policyOf(r *rollout.Rollout) string {
	if hook := v.SkyhookOf(r); hook != nil {
		return v.Compiled.Skyhook(hook).PolicyName()
	}
	if op := v.NodeOpOf(r); op != nil {
		return op.Spec.DeploymentPolicy
	}
	return ""
}

// closedSpans returns when no window of the policy of a rollout is open; nothing when it has none.
func (v *Cluster) closedSpans(r *rollout.Rollout, from, to time.Time) []Span {
	name := v.policyOf(r)
	for _, p := range v.Objects.Policies {
		if p.Name != name || p.Spec.Windows == nil {
			continue
		}
		calendar, err := policy.NewCalendar(p.Spec.Windows)
		if err != nil {
			return nil
		}
		return invertSpans(calendar.OpenSpans(from, to), from, to)
	}
	return nil
}

// invertSpans returns the times between spans.
func invertSpans(open []policy.Span, from, to time.Time) []Span {
	var out []Span
	add := func(until time.Time) {
		if until.After(from) {
			out = append(out, Span{From: from.UTC(), To: until.UTC()})
		}
	}
	for _, span := range open {
		add(span.From)
		from = span.To
	}
	add(to)
	return out
}
