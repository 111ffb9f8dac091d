// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// wave is the nodes of one group that begin at the same time.
type wave struct {
	Number int      `json:"wave"`
	Group  string   `json:"group"`
	After  string   `json:"after"` // from now, with the durations assumed
	Nodes  []string `json:"nodes"`
	after  time.Duration
	group  rollout.GroupRef
}

// forecast is how the engine goes on when everything ends well.
type forecast struct {
	timeline sim.Timeline
	last     sim.Moment // that was played
	began    time.Time
	waves    map[rollout.Ref][]wave               // by rollout
	steps    map[rollout.Ref]map[string][]taskRun // by rollout and node
}

// taskRun is one task that runs on a node.
type taskRun struct {
	task   string
	covers []string
	at     time.Duration
}

// loadNextPods lists the pods on the nodes that are admitted next and have to become quiet, and looks at their budgets.
func (s *view) loadNextPods(ctx context.Context, a *factory) error {
	var nodes []string
	for _, n := range s.nodesAdmittedNext() {
		if _, seen := s.objects.Workloads[n]; !seen {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	pods, err := s.dump.On(ctx, nodes)
	if err != nil {
		return err
	}
	if s.objects.Workloads == nil {
		s.objects.Workloads = map[string][]*corev1.Pod{}
	}
	for n, found := range pods {
		s.objects.Workloads[n] = found
	}
	s.loadBudgets(ctx, a)
	return nil
}

// nodesAdmittedNext are the nodes that the plan admits for work that needs them quiet.
func (s *view) nodesAdmittedNext() []string {
	var out []string
	seen := map[string]bool{}
	for _, act := range s.plan.Actions {
		if act.Verb != rollout.VerbAdmit || seen[act.Node] {
			continue
		}
		if t := s.findTarget(act.Rollout, act.Node); t != nil && isDisruptive(t) {
			seen[act.Node] = true
			out = append(out, act.Node)
		}
	}
	return out
}

func (s *view) findTarget(of rollout.Ref, node string) *rollout.Target {
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if at, ok := s.targetIndex[targetKey{of, node}]; ok && r.Ref == of {
			return &r.Targets[at]
		}
	}
	return nil
}

// isDisruptive says that something that is owed on a target needs the node quiet.
func isDisruptive(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone && k.Need != rollout.NeedNothing })
}

// podsInTheWay are the pods that a Skyhook would have to move off a node; false when nobody looked.
func (s *view) podsInTheWay(r *rollout.Rollout, node string) ([]rollout.Pod, bool) {
	pods, seen := s.objects.Workloads[node]
	hook := s.skyhookOf(r)
	if !seen || hook == nil {
		return nil, false
	}
	protected, err := skyhook.Protected(hook)
	if err != nil {
		return nil, false
	}
	return drain.SkyhookRules(hook, protected).BlockingPods(pods, s.objects.IsOurs, nil), true
}

// forecast lets everything go on from here, without faults, on a clock that jumps, until it is enough; nil plays to the end.
func (s *view) forecast(times sim.Times, limit time.Duration, enough func(*forecast) bool) *forecast {
	c := &forecast{began: s.snapshot.Now, waves: map[rollout.Ref][]wave{}, steps: map[rollout.Ref]map[string][]taskRun{}}
	snapshot := sim.Clone(s.snapshot)
	for i := range snapshot.Rollouts {
		r := &snapshot.Rollouts[i]
		for j := range r.Targets {
			if !isDisruptive(&r.Targets[j]) { // other rollouts have other rules for the same pods
				r.Targets[j].Pods = nil
				continue
			}
			pods, _ := s.podsInTheWay(r, r.Targets[j].Node)
			for k := range pods { // what a budget forbids now is not forbidden for ever
				pods[k].Refused, pods[k].RetryAt = "", time.Time{}
			}
			if pods != nil {
				r.Targets[j].Pods = pods
			}
		}
	}
	times.Enough = func(m sim.Moment) bool {
		c.record(m)
		return enough != nil && enough(c)
	}
	c.timeline = sim.Play(snapshot, times, limit)
	return c
}

// afterWaves is enough when a rollout has had more waves than are to be shown; 0 is never enough.
func afterWaves(most int) func(*forecast) bool {
	return func(c *forecast) bool {
		for _, waves := range c.waves {
			if most > 0 && len(waves) > most {
				return true
			}
		}
		return false
	}
}

// anyOf is enough when one of both is.
func anyOf(a, b func(*forecast) bool) func(*forecast) bool {
	if b == nil {
		return a
	}
	return func(c *forecast) bool { return b(c) || a(c) } // b counts, so it is asked each time
}

// untilDone is enough when everything has ended that these rollouts can do; how others go on is not asked for.
func (s *view) untilDone(args []string) func(*forecast) bool {
	if len(args) == 0 {
		return nil
	}
	busy := 0
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if !isSelected(args, r) || r.Paused || r.Broken != nil {
			continue
		}
		for j := range r.Targets {
			if t := &r.Targets[j]; t.Admitted || hasOpenTasks(t) && t.Blocked == nil && !t.Gone && !t.Skipped {
				busy++
			}
		}
	}
	return func(c *forecast) bool {
		for _, act := range c.last.Actions {
			if act.Verb == rollout.VerbRetire && slices.ContainsFunc(args, func(arg string) bool { return matchesName(act.Rollout, arg) }) {
				busy--
			}
		}
		return busy <= 0
	}
}

// record reads one moment of the play.
func (c *forecast) record(m sim.Moment) {
	c.last = m
	at := m.At.Sub(c.began)
	for _, act := range m.Actions {
		switch act.Verb {
		case rollout.VerbAdmit:
			c.recordAdmission(act, at)
		case rollout.VerbRun:
			if c.steps[act.Rollout] == nil {
				c.steps[act.Rollout] = map[string][]taskRun{}
			}
			c.steps[act.Rollout][act.Node] = append(c.steps[act.Rollout][act.Node], taskRun{task: act.Task, covers: act.Covers, at: at})
		}
	}
}

func (c *forecast) recordAdmission(act rollout.Action, at time.Duration) {
	waves := c.waves[act.Rollout]
	for i := range waves {
		if waves[i].after == at && waves[i].group == act.Group {
			waves[i].Nodes = append(waves[i].Nodes, act.Node)
			return
		}
	}
	c.waves[act.Rollout] = append(waves, wave{Number: len(waves) + 1, group: act.Group, After: formatDuration(at), after: at, Nodes: []string{act.Node}})
}

// formatDuration is a duration as people read it: at most two units.
func formatDuration(d time.Duration) string {
	d = d.Round(time.Second)
	day := 24 * time.Hour
	switch {
	case d < 0:
		return "-" + formatDuration(-d)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return formatUnits(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		return formatUnits(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	return formatUnits(d/day, "d", d%day/time.Hour, "h")
}

func formatUnits(a time.Duration, unit string, b time.Duration, small string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, unit)
	}
	return fmt.Sprintf("%d%s%d%s", a, unit, b, small)
}
