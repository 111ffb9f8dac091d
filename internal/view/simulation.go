// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Simulation is what the simulate command prints.
type Simulation struct {
	Now      time.Time          `json:"now"` // when it begins
	Took     string             `json:"took"`
	Complete bool               `json:"complete"`
	Cut      bool               `json:"cut,omitempty"` // on a page: it was stopped before its end, because it took too long
	Rollouts []SimulatedRollout `json:"rollouts"`
	Steps    []SimulatedStep    `json:"steps"`
	MaxWaves int                `json:"-"` // of each rollout that are printed; 0 for all
}

// SimulatedRollout is what a simulation says about one rollout.
type SimulatedRollout struct {
	Name  rollout.Ref     `json:"name"`
	Waves []simulatedWave `json:"waves"`
	Left  []reasonCount   `json:"left,omitempty"`
	Times string          `json:"times,omitempty"` // how long a node takes, and from what that is known
	Needs []NodeNeed      `json:"needs,omitempty"` // what nodes need, as their packages say

	Progress *Progress `json:"progress"`
}

type simulatedWave struct {
	wave
	Ended string `json:"ended,omitempty"`
	WaveTimes
}

// SimulatedStep is what one simulated pass decides.
type SimulatedStep struct {
	At      string `json:"at"`
	Node    string `json:"node"`
	Rollout string `json:"rollout"`
	Verb    string `json:"verb"`
	What    string `json:"what,omitempty"`
}

// NewSimulation returns what is shown of a forecast.
func NewSimulation(v *Cluster, c *Forecast, args []string) *Simulation {
	now := v.Snapshot.Now.UTC()
	s := &Simulation{Now: now, Took: FormatDuration(c.timeline.End.Sub(c.Start)), Complete: !c.isCut, Cut: c.isCut, Rollouts: []SimulatedRollout{}, Steps: []SimulatedStep{}}
	ends := c.findEnds()
	for _, r := range v.SelectRollouts(args) {
		sr := SimulatedRollout{Name: r.Ref, Waves: []simulatedWave{}, Times: v.describeTimes(r), Needs: v.listNeeds(r)}
		for _, w := range c.waves[r.Ref] {
			sw := simulatedWave{wave: w}
			sw.Group = groupName(r, w.group)
			last, haveAllEnded := w.after, true
			for _, node := range w.Nodes {
				end, ok := ends[targetKey{r.Ref, node}]
				last, haveAllEnded = max(last, end), haveAllEnded && ok
			}
			if haveAllEnded {
				sw.Ended = FormatDuration(last)
			} else {
				last = c.timeline.End.Sub(c.Start)
			}
			sw.WaveTimes = WaveTimes{From: now.Add(w.after), To: now.Add(last), Open: !haveAllEnded, Soak: v.soakOf(w.group)}
			sr.Waves = append(sr.Waves, sw)
		}
		sr.Left = countReasons(slices.SortedFunc(maps.Values(c.waitingVerdicts(r)), func(a, b rollout.Verdict) int {
			return strings.Compare(a.Node, b.Node)
		}))
		sr.Progress = v.newProgress(r, c)
		s.Complete = s.Complete && len(sr.Left) == 0
		s.Rollouts = append(s.Rollouts, sr)
	}
	return s
}

// soakOf returns how long the finished nodes of a group must stay ready before they count.
func (v *Cluster) soakOf(ref rollout.GroupRef) time.Duration {
	if at := slices.IndexFunc(v.Snapshot.Groups, func(g rollout.Group) bool { return g.Ref == ref }); at >= 0 {
		return v.Snapshot.Groups[at].Soak
	}
	return 0
}

// findEnds returns when each target was retired for the last time.
func (c *Forecast) findEnds() map[targetKey]time.Duration {
	ends := map[targetKey]time.Duration{}
	for _, turn := range c.turns {
		if turn.isEnd {
			ends[turn.target] = turn.after
		}
	}
	return ends
}

// ListSteps returns all actions on nodes, one rollout after the other; without nodes those on all nodes.
func ListSteps(v *Cluster, c *Forecast, args, nodes []string) []SimulatedStep {
	steps := []SimulatedStep{}
	for _, r := range v.SelectRollouts(args) {
		for _, m := range c.timeline.Steps {
			for _, act := range m.Actions {
				if act.Rollout == r.Ref && (len(nodes) == 0 || slices.Contains(nodes, act.Node)) {
					steps = append(steps, SimulatedStep{FormatDuration(m.At.Sub(c.Start)), act.Node, ShortName(r.Ref), string(act.Verb), v.actionObject(act)})
				}
			}
		}
	}
	return steps
}

// Names are the rollouts that were simulated, for -o name.
func (s *Simulation) Names() []string {
	var names []string
	for _, r := range s.Rollouts {
		names = append(names, strings.ToLower(r.Name.String()))
	}
	return names
}
