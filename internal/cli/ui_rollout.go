// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// uiStage is how long a stage takes in the simulations of the pages, as simulate assumes it.
const uiStage = 2 * time.Minute

// uiComputes is how long a page computes a simulation. What is left of it then, nobody reads on a page: many waves of few nodes.
const uiComputes = 800 * time.Millisecond

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
	status := describeRollout(v, r)
	simulation := newSimulation(v, s.forecast(name), []string{name})
	return &ui.Rollout{
		Status: status, Why: explainRollout(v, r), Simulation: simulation,
		Name: name, Progress: simulation.Rollouts[0].Progress, Packages: status.PerPackage, Offers: s.offersOfRollout(r),
	}, nil
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
	f := s.view.simulateForPages(stop, uiComputes)
	if s.forecasts == nil {
		s.forecasts = map[string]cachedForecast{}
	}
	maps.DeleteFunc(s.forecasts, func(_ string, f cachedForecast) bool { return s.view.dump.Taken.Sub(f.start) > keepForecast })
	s.forecasts[name] = cachedForecast{f, s.version, time.Since(began)}
	return f
}

// simulateForPages simulates without remembering what pages do not show: a simulation stays in memory for a while.
func (v *view) simulateForPages(isEnough stopCondition, most time.Duration) *forecast {
	times := assumeDurations(uiStage)
	times.Keep = func(*rollout.Action) bool { return false }
	f := v.simulateRollouts(times, maxSimulatedTime, stopAtEither(stopLate(most), isEnough))
	f.timeline.Final, f.timeline.Steps, f.runs = rollout.Snapshot{}, nil, nil
	return f
}
