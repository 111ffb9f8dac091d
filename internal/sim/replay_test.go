// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// A shape is a kind of rollout whose course is known.
type shape struct {
	name    string
	nodes   int
	group   rollout.Group
	spread  float64                  // of the nodes around the usual time; 0: all take the same
	tail    float64                  // the share of nodes that take three times as long
	drained bool                     // tuning needs drained nodes, from which a pod leaves after a while
	known   int                      // nodes that an earlier version is recorded of
	change  func(r *rollout.Rollout) // nil for none
	took    map[string]time.Duration // the usual time of each task
}

// TestForecastOfRecordedRollouts plays rollouts to their end, records the first batch, and has the rest forecast: by a simulation, and as
// the operator estimates it. Half of the forecasts of each shape are wrong by at most a quarter.
func TestForecastOfRecordedRollouts(t *testing.T) {
	short := map[string]time.Duration{"shell/apply": 5 * time.Second, "shell/config": 5 * time.Second, "tuning/apply": 30 * time.Second, "tuning/config": 20 * time.Second}
	long := map[string]time.Duration{"shell/apply": time.Minute, "shell/config": 20 * time.Second, "tuning/apply": 9 * time.Minute, "tuning/config": 4 * time.Minute}
	window := rollout.Pace{Kind: rollout.PaceWindow}
	for _, s := range []shape{
		{name: "one at a time", nodes: 40, group: rollout.Group{Limit: 1, Pace: window}, took: short, spread: 0.2},
		{name: "a window of five", nodes: 60, group: rollout.Group{Limit: 5, Pace: window}, took: short, spread: 0.3, drained: true},
		{name: "a window with a slow tail", nodes: 100, group: rollout.Group{Limit: 10, Pace: window}, took: long, spread: 0.3, tail: 0.1},
		{name: "batches of four", nodes: 40, group: rollout.Group{Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceFixed, Initial: 4, PassPercent: 100}}, took: long, spread: 0.3, drained: true},
		{name: "batches with a slow tail", nodes: 72, group: rollout.Group{Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceFixed, Initial: 12, PassPercent: 100}}, took: short, spread: 0.2, tail: 0.1},
		{name: "small batches, the tail known from an earlier version", nodes: 60, group: rollout.Group{Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceFixed, Initial: 3, PassPercent: 100}}, took: long, spread: 0.2, tail: 0.1, known: 60},
		{name: "growing batches", nodes: 100, group: rollout.Group{Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceExponential, Initial: 4, Factor: 2, PassPercent: 100}}, took: long, spread: 0.2, drained: true},
		{name: "one package after the other", nodes: 40, group: rollout.Group{Limit: 2, Pace: window}, took: long, spread: 0.2, drained: true, change: func(r *rollout.Rollout) { r.Serial = true }},
	} {
		var simulated, estimated []float64
		for seed := range uint64(11) {
			rest, bySimulation, byEngine := s.replay(t, seed)
			simulated = append(simulated, math.Abs(float64(bySimulation-rest))/float64(rest))
			estimated = append(estimated, math.Abs(float64(byEngine-rest))/float64(rest))
		}
		slices.Sort(simulated)
		slices.Sort(estimated)
		t.Logf("%s: half of the simulations are wrong by at most %.0f %%, of the estimates by %.0f %%", s.name, 100*simulated[5], 100*estimated[5])
		if simulated[5] > 0.25 || estimated[5] > 0.25 {
			t.Errorf("%s: half of the simulations are wrong by more than %.0f %%, of the estimates by %.0f %%", s.name, 100*simulated[5], 100*estimated[5])
		}
	}
}

// TestForecastOneAtATime: 236 nodes one after the other, each of which takes 50 seconds, are 3 hours and 15 minutes, as the first node says.
func TestForecastOneAtATime(t *testing.T) {
	s := shape{nodes: 236, group: rollout.Group{Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceWindow}}, took: map[string]time.Duration{
		"shell/apply": 5 * time.Second, "shell/config": 5 * time.Second, "tuning/apply": 30 * time.Second, "tuning/config": 20 * time.Second,
	}}
	_, simulated, estimated := s.replay(t, 1)
	for name, got := range map[string]time.Duration{"simulation": simulated, "estimate": estimated} {
		if want := 3*time.Hour + 15*time.Minute; got < want*8/10 || got > want*12/10 {
			t.Errorf("the %s says %s, want %s", name, got, want)
		}
	}
}

// replay plays a rollout to its end, and again until its first batch has ended. It returns how long the rest took, and what two forecasts
// say at that moment.
func (s shape) replay(t *testing.T, seed uint64) (rest, simulated, estimated time.Duration) {
	t.Helper()
	ref := rollout.ParseGroupRef("Skyhook/demo")
	s.group.Ref, s.group.Ledger = ref, rollout.ParseRef("Skyhook/demo")
	truth := s.durations(seed)
	start := s.snapshot(seed, s.nodes)
	whole := sim.Run(start, truth, 365*24*time.Hour)

	open := map[string]bool{} // of the nodes that begin at once
	truth.Stop = func(step sim.Step) bool {
		isNext := false
		for _, a := range step.Actions {
			switch {
			case a.Verb == rollout.VerbAdmit && step.At.Equal(start.Now):
				open[a.Node] = true
			case a.Verb == rollout.VerbAdmit:
				isNext = true
			case a.Verb == rollout.VerbRetire:
				delete(open, a.Node)
			}
		}
		return isNext && len(open) == 0
	}
	begun := sim.Run(start, truth, 365*24*time.Hour)
	now := begun.Final
	addRuns(&now, begun.Steps, "")
	recorded := []rollout.Rollout{now.Rollouts[0]}
	if s.known > 0 {
		earlier := s.snapshot(seed+1000, s.known)
		ended := sim.Run(earlier, s.durations(seed+1000), 365*24*time.Hour)
		addRuns(&ended.Final, ended.Steps, "|0.9.0")
		recorded = append(recorded, ended.Final.Rollouts[0])
	}
	now.Times = rollout.NewTimes(recorded)
	forecast := sim.Run(now, sim.Recorded(now.Times), 365*24*time.Hour)
	expected := engine.Decide(now).Reports[0].Completion
	if len(whole.Unfinished)+len(forecast.Unfinished) > 0 || expected.At.IsZero() {
		t.Fatalf("%s, seed %d: %d and %d are unfinished, expected at %s", s.name, seed, len(whole.Unfinished), len(forecast.Unfinished), expected.At)
	}
	return whole.End.Sub(now.Now), forecast.End.Sub(now.Now), expected.At.Add(expected.Waiting).Sub(now.Now)
}

// snapshot returns the rollout before its begin.
func (s shape) snapshot(seed uint64, nodes int) rollout.Snapshot {
	out := newRollout(nodes, s.group)
	r := &out.Rollouts[0]
	if s.change != nil {
		s.change(r)
	}
	for i, target := range r.Targets {
		for k := range target.Tasks {
			if s.drained && strings.HasPrefix(target.Tasks[k].ID, "tuning") {
				target.Tasks[k].Need = rollout.NeedDrained
			}
		}
		if s.drained {
			target.Drain.Pods = []rollout.Pod{{Namespace: "web", Name: "a", UID: fmt.Sprint(seed, "-", i)}}
		}
	}
	return out
}

// durations returns how long everything takes in truth: some nodes are faster and some slower, as a whole and with each task.
func (s shape) durations(seed uint64) sim.Durations {
	random := func(node string, salt uint64) *rand.Rand {
		h := salt
		for _, c := range node {
			h = h*31 + uint64(c)
		}
		return rand.New(rand.NewPCG(seed, h))
	}
	return sim.Durations{Pod: 45 * time.Second, Task: func(_ rollout.Rollout, t rollout.Target, k rollout.Task) time.Duration {
		node := random(t.Node, 1)
		factor := math.Exp(s.spread * node.NormFloat64())
		if node.Float64() < s.tail {
			factor *= 3
		}
		factor *= math.Exp(s.spread / 2 * random(t.Node+k.ID, 2).NormFloat64())
		return time.Duration(float64(s.took[k.ID]) * factor).Round(time.Second)
	}}
}

// addRuns records on the targets how long their tasks took.
func addRuns(s *rollout.Snapshot, steps []sim.Step, version string) {
	type key struct{ node, task string }
	began := map[key]time.Time{}
	of := map[string]*rollout.Target{}
	for _, target := range s.Rollouts[0].Targets {
		of[target.Node] = target
	}
	for _, step := range steps {
		for _, a := range step.Actions {
			at := key{a.Node, a.Task}
			switch {
			case a.Verb == rollout.VerbRun:
				began[at] = step.At
			case a.Verb == rollout.VerbRecord && a.State == rollout.StateDone:
				pkg, stage, _ := strings.Cut(a.Task, "/")
				run := rollout.StageTime{Stage: stage, At: began[at], Seconds: int64(step.At.Sub(began[at]).Seconds())}
				of[a.Node].Visit.Runs = append(of[a.Node].Visit.Runs, rollout.Runs{Package: pkg + version, Stages: []rollout.StageTime{run}})
			}
		}
	}
}
