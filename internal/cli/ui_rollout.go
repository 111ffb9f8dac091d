// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// uiStage is how long a stage takes in the simulations of the pages, as simulate assumes it.
const uiStage = 2 * time.Minute

// rollout returns the data of the page of a rollout.
func (s *uiSource) rollout(_ context.Context, name string) (*ui.Rollout, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	if err := v.checkName(name); err != nil {
		return nil, err
	}
	r := v.findRollout(name)
	name = shortName(r.Ref)
	out := &ui.Rollout{Name: name, Status: summarizeRollout(v, r), Why: explainRollout(v, r), Packages: v.listPackages(r), Budgets: v.listBudgets(r)}
	out.Offers = s.offersOfRollout(r)
	forecast := s.forecast(name)
	out.Simulation = newSimulation(v, forecast, []string{name})
	out.Progress = v.newProgress(r, forecast)
	return out, nil
}

// cachedForecast is a simulation of one version of the data.
type cachedForecast struct {
	*forecast
	version int64
	took    time.Duration
}

// keepForecast is how long a simulation stays in memory that nobody looks at.
const keepForecast = time.Minute

// forecast simulates a rollout to its end, or all without a name. One that took long serves for a while, because a page that is open asks for each version.
func (s *uiSource) forecast(name string) *forecast {
	old, ok := s.forecasts[name]
	if ok && (old.version == s.version || s.view.dump.Taken.Sub(old.start) < 20*old.took) {
		return old.forecast
	}
	began := time.Now()
	var stop stopCondition
	if name != "" {
		stop = s.view.stopWhenDone([]string{name})
	}
	f := s.view.simulateForPages(stop)
	if s.forecasts == nil {
		s.forecasts = map[string]cachedForecast{}
	}
	maps.DeleteFunc(s.forecasts, func(_ string, f cachedForecast) bool { return s.view.dump.Taken.Sub(f.start) > keepForecast })
	s.forecasts[name] = cachedForecast{f, s.version, time.Since(began)}
	return f
}

// simulateForPages simulates without remembering what pages do not show: a simulation stays in memory for a while.
func (v *view) simulateForPages(isEnough stopCondition) *forecast {
	times := assumeDurations(uiStage)
	times.Keep = func(a *rollout.Action) bool { return a.Verb == rollout.VerbAdmit || a.Verb == rollout.VerbRetire }
	f := v.simulateRollouts(times, maxSimulatedTime, isEnough)
	f.timeline.Final, f.runs = rollout.Snapshot{}, nil
	return f
}

// newProgress counts nodes over time: by the records on nodes until now, and by the simulation from now on.
func (v *view) newProgress(r *rollout.Rollout, f *forecast) ui.Progress {
	p := ui.Progress{Now: v.snapshot.Now.UTC(), Past: []ui.Point{}}
	changes := map[time.Time]ui.Point{} // differences
	add := func(at time.Time, complete, working, failed int) {
		was := changes[at]
		changes[at] = ui.Point{Complete: was.Complete + complete, Working: was.Working + working, Failed: was.Failed + failed}
	}
	begin := v.findBegin(r)
	limit := func(t time.Time) time.Time {
		t = t.UTC()
		if t.Before(begin) {
			return begin
		}
		return t
	}
	for i, verdict := range v.reportOf(r.Ref).Verdicts {
		t := &r.Targets[i]
		if t.Leaving || t.Gone {
			continue
		}
		p.Nodes++
		switch {
		case verdict.Phase == rollout.PhaseFinished:
			end := limit(t.FinishedAt)
			if !t.AdmittedAt.IsZero() && t.AdmittedAt.Before(t.FinishedAt) {
				add(limit(t.AdmittedAt), 0, 1, 0)
				add(end, 1, -1, 0)
			} else {
				add(end, 1, 0, 0)
			}
		case verdict.Phase == rollout.PhaseFailing || verdict.Phase == rollout.PhaseFailed:
			add(limit(t.AdmittedAt), 0, 1, 0)
			add(limit(verdict.Why.Since), 0, -1, 1)
		case t.Admitted:
			add(limit(t.AdmittedAt), 0, 1, 0)
		}
	}
	p.Past = sumPoints(ui.Point{At: begin}, changes)
	v.addFuture(&p, r, f)
	v.addBatches(&p, r, f)
	p.Closed = v.closedSpans(r, begin, cmp.Or(lastTime(p.Future), p.Now))
	return p
}

// findBegin returns when the present work of a rollout began.
func (v *view) findBegin(r *rollout.Rollout) time.Time {
	begin := v.snapshot.Now
	for i := range r.Targets {
		for _, t := range []time.Time{r.Targets[i].AdmittedAt, r.Targets[i].FinishedAt} {
			if !t.IsZero() && t.Before(begin) {
				begin = t
			}
		}
	}
	if r.Since.After(begin) && r.Since.Before(v.snapshot.Now) {
		begin = r.Since
	}
	return begin.UTC()
}

func lastTime(points []ui.Point) time.Time {
	if len(points) == 0 {
		return time.Time{}
	}
	return points[len(points)-1].At
}

// sumPoints adds differences up, from a first point on.
func sumPoints(first ui.Point, changes map[time.Time]ui.Point) []ui.Point {
	out := []ui.Point{first}
	for _, at := range slices.SortedFunc(maps.Keys(changes), time.Time.Compare) {
		last, change := out[len(out)-1], changes[at]
		next := ui.Point{At: at, Complete: last.Complete + change.Complete, Working: last.Working + change.Working, Failed: last.Failed + change.Failed}
		if !at.After(last.At) {
			out[len(out)-1] = next
			continue
		}
		out = append(out, next)
	}
	return out
}

// addFuture adds what the simulation says.
func (v *view) addFuture(p *ui.Progress, r *rollout.Rollout, f *forecast) {
	if r.Paused || r.Broken != nil {
		return
	}
	now := p.Past[len(p.Past)-1]
	now.At = p.Now
	failed := map[string]bool{}
	for _, verdict := range v.reportOf(r.Ref).Verdicts {
		failed[verdict.Node] = verdict.Phase == rollout.PhaseFailing || verdict.Phase == rollout.PhaseFailed
	}
	shift := v.snapshot.Now.Sub(f.start) // an older simulation serves for a while
	changes := map[time.Time]ui.Point{}
	for _, step := range f.timeline.Steps {
		at := step.At.Add(shift).UTC()
		for _, act := range step.Actions {
			change := changes[at]
			switch {
			case act.Rollout != r.Ref:
				continue
			case act.Verb == rollout.VerbAdmit && !failed[act.Node]:
				change.Working++
			case act.Verb == rollout.VerbRetire && failed[act.Node]:
				change.Complete, change.Failed = change.Complete+1, change.Failed-1
			case act.Verb == rollout.VerbRetire:
				change.Complete, change.Working = change.Complete+1, change.Working-1
			}
			changes[at] = change
		}
	}
	p.Future = sumPoints(now, changes)
	if len(f.waitingVerdicts(r)) == 0 && len(p.Future) > 1 {
		end := lastTime(p.Future)
		p.End = &end
	}
}

// addBatches adds when nodes began together, and when they would in the simulation.
func (v *view) addBatches(p *ui.Progress, r *rollout.Rollout, f *forecast) {
	type batch struct {
		group rollout.GroupRef
		at    time.Time
	}
	nodes := map[batch]int{}
	for i := range r.Targets {
		if t := &r.Targets[i]; !t.AdmittedAt.IsZero() && !t.AdmittedAt.Before(p.Past[0].At) {
			nodes[batch{t.Group, t.AdmittedAt.UTC()}]++
		}
	}
	for b, count := range nodes {
		p.Batches = append(p.Batches, ui.Batch{At: b.at, Group: groupName(r, b.group), Nodes: count})
	}
	if len(p.Future) > 0 {
		for _, w := range f.waves[r.Ref] {
			p.Batches = append(p.Batches, ui.Batch{At: p.Now.Add(w.after), Group: groupName(r, w.group), Nodes: len(w.Nodes), Simulated: true})
		}
	}
	slices.SortFunc(p.Batches, func(a, b ui.Batch) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Group, b.Group)) })
}

// calendarStep is how exactly the pages show windows.
const calendarStep = 5 * time.Minute

// closedSpans returns when no window of the policy of a Skyhook is open; nothing when it has none.
func (v *view) closedSpans(r *rollout.Rollout, from, to time.Time) []ui.Span {
	hook := v.skyhookOf(r)
	if hook == nil {
		return nil
	}
	name := v.objects.Compiled(hook).PolicyName()
	for _, p := range v.objects.Policies {
		if p.Name != name || p.Spec.Windows == nil {
			continue
		}
		calendar, err := policy.NewCalendar(p.Spec.Windows)
		if err != nil {
			return nil
		}
		return findSpans(from, to, func(at time.Time) bool { return !calendar.IsOpen(at) })
	}
	return nil
}

// findSpans returns the spans in which something holds. Of long times it looks at five thousand points.
func findSpans(from, to time.Time, holds func(time.Time) bool) []ui.Span {
	var out []ui.Span
	step := max(calendarStep, to.Sub(from)/5000)
	for at := from; at.Before(to); at = at.Add(step) {
		if !holds(at) {
			continue
		}
		end := at.Add(step)
		if end.After(to) {
			end = to
		}
		if last := len(out) - 1; last >= 0 && out[last].To.Equal(at) {
			out[last].To = end
		} else {
			out = append(out, ui.Span{From: at, To: end})
		}
	}
	return out
}

// listPackages counts, for each package of a Skyhook, on how many nodes it is how far.
func (v *view) listPackages(r *rollout.Rollout) []ui.Package {
	out := []ui.Package{}
	hook := v.skyhookOf(r)
	if hook == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(hook.Spec.Packages)) {
		p := ui.Package{Name: name, Version: string(hook.Spec.Packages[name].Version), After: slices.Sorted(maps.Keys(hook.Spec.Packages[name].DependsOn))}
		for i := range r.Targets {
			if t := &r.Targets[i]; !t.Leaving && !t.Gone {
				countPackage(&p, t)
			}
		}
		out = append(out, p)
	}
	return out
}

// countPackage counts a package on one node. What has no open task there is complete.
func countPackage(p *ui.Package, t *rollout.Target) {
	isOpen, isRunning, isFailing := false, false, false
	for i := range t.Tasks {
		k := &t.Tasks[i]
		if pkg, _, _ := strings.Cut(k.Label, " "); pkg != p.Name || k.State == rollout.StateDone {
			continue
		}
		isOpen = true
		isRunning = isRunning || k.State == rollout.StateRunning || k.State == rollout.StateSucceeded
		isFailing = isFailing || k.State == rollout.StateFailing
	}
	switch {
	case isFailing:
		p.Failed++
	case isRunning:
		p.Working++
	case isOpen:
		p.Waiting++
	default:
		p.Complete++
	}
}

// maxCounted is how many nodes of one group a page lists.
const maxCounted = 50

// listBudgets returns what counts against the budgets of a rollout: its own nodes, those of other rollouts in the same groups, and
// nodes that nobody of ours made unavailable.
func (v *view) listBudgets(r *rollout.Rollout) []ui.Budget {
	out := []ui.Budget{}
	for _, g := range v.snapshot.Groups {
		if !slices.ContainsFunc(r.Targets, func(t rollout.Target) bool { return t.Group == g.Ref }) {
			continue
		}
		budget := ui.Budget{Group: groupName(r, g.Ref), Nodes: []ui.Cell{}}
		for i := range v.snapshot.Rollouts {
			other := &v.snapshot.Rollouts[i]
			for j, verdict := range v.reportOf(other.Ref).Verdicts {
				t := &other.Targets[j]
				n := v.objects.Node(t.Node)
				if t.Group == g.Ref && t.Admitted && n != nil {
					budget.Nodes = append(budget.Nodes, v.newCell(other, t, verdict, n))
				}
			}
		}
		for _, name := range g.Taken {
			budget.Nodes = append(budget.Nodes, ui.Cell{Node: name, State: ui.StateNotReady, Reason: "not ready, or cordoned by somebody else"})
		}
		if len(budget.Nodes) > 0 {
			budget.Nodes = budget.Nodes[:min(maxCounted, len(budget.Nodes))]
			out = append(out, budget)
		}
	}
	return out
}
