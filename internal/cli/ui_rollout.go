// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

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
			budget.More = max(0, len(budget.Nodes)-maxCounted)
			budget.Nodes = budget.Nodes[:len(budget.Nodes)-budget.More]
			out = append(out, budget)
		}
	}
	return out
}
