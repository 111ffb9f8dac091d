// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// wave is the nodes of one group that start at the same time.
type wave struct {
	Number int      `json:"wave"`
	Group  string   `json:"group"`
	After  string   `json:"after"` // from now
	Nodes  []string `json:"nodes"`
	after  time.Duration
	group  rollout.GroupRef
}

// taskRun is one task that runs on a node.
type taskRun struct {
	task   string
	covers []string
}

// Forecast is how rollouts continue when everything succeeds.
type Forecast struct {
	timeline sim.Timeline
	Start    time.Time
	waves    map[rollout.Ref][]wave
	runs     map[targetKey][]taskRun
	turns    []turningPoint
	isCut    bool // it took too long and was stopped before its end
}

// turningPoint is when the work on a target begins or ends.
type turningPoint struct {
	target targetKey
	after  time.Duration // from the start of the simulation
	isEnd  bool
}

// StopCondition is asked after each simulated moment.
type StopCondition func(*Forecast, sim.Step) bool

// SimulateRollouts simulates the rollouts without faults, until a condition stops the simulation; without one to the end.
func (v *Cluster) SimulateRollouts(times sim.Durations, limit time.Duration, isEnough StopCondition) *Forecast {
	c := &Forecast{Start: v.Snapshot.Now, waves: map[rollout.Ref][]wave{}, runs: map[targetKey][]taskRun{}}
	times.Stop = func(m sim.Step) bool {
		c.record(m)
		return isEnough != nil && isEnough(c, m)
	}
	times.Windows = v.followWindows()
	c.timeline = sim.Run(v.copySnapshot(), times, limit)
	return c
}

// windowsOf are the windows of a group: those of the policy of its rollouts.
type windowsOf struct {
	calendar *policy.Calendar
	about    string
}

// followWindows returns what opens and closes groups during a simulation, as the windows of their policies say. Groups of objects that
// are not accepted have none.
func (v *Cluster) followWindows() func(*rollout.Group, time.Time) bool {
	windows := map[rollout.GroupRef]windowsOf{}
	for i := range v.Snapshot.Rollouts {
		r := &v.Snapshot.Rollouts[i]
		name := v.policyOf(r)
		at := slices.IndexFunc(v.Objects.Policies, func(p *v1alpha1.DeploymentPolicy) bool { return p.Name == name })
		if at < 0 {
			continue
		}
		calendar, err := policy.NewCalendar(v.Objects.Policies[at].Spec.Windows)
		if err != nil || calendar == nil {
			continue
		}
		for j := range r.Targets {
			windows[r.Targets[j].Group] = windowsOf{calendar, policy.Kind + " " + name}
		}
	}
	return func(g *rollout.Group, now time.Time) bool {
		w, hasWindows := windows[g.Ref]
		if hasWindows {
			w.calendar.Advance(g, w.about, now)
		}
		return hasWindows
	}
}

// copySnapshot copies the targets of the snapshot, with the pods that each has to evict. The rest is shared: a simulation has a copy
// of its own.
func (v *Cluster) copySnapshot() rollout.Snapshot {
	snapshot := v.Snapshot
	snapshot.Rollouts = slices.Clone(snapshot.Rollouts)
	for i := range snapshot.Rollouts {
		r := &snapshot.Rollouts[i]
		r.CopyTargets()
		for j := range r.Targets {
			t := r.Targets[j]
			assumeProof(t, snapshot.Now)
			assumeAnswer(t, r.Handover, snapshot.Now)
			if !t.NeedsDrain() { // each rollout has rules of its own for the pods of a node
				t.Drain.Pods = nil
				continue
			}
			pods, areKnown := v.podsToEvict(r, t.Node)
			for k := range pods { // a disruption budget does not refuse for ever
				pods[k].Refused, pods[k].RetryAt = "", time.Time{}
			}
			t.Drain.PodsSeen = t.Drain.PodsSeen || areKnown
			if pods != nil {
				t.Drain.Pods = pods
			}
		}
	}
	return snapshot
}

// assumeProof assumes that what must be true of a node will be true when its work is done. A proof that is late already stays late.
func assumeProof(t *rollout.Target, now time.Time) {
	if t.Proof == nil {
		return
	}
	proof := *t.Proof
	isLate := !proof.Since.IsZero() && proof.Timeout > 0 && !now.Before(proof.Since.Add(proof.Timeout))
	if !isLate {
		proof.Missing = nil
		t.Proof = &proof
	}
}

// assumeAnswer assumes that who is asked for a node says yes, unless that is late already.
func assumeAnswer(t *rollout.Target, steps []rollout.HandoverStep, now time.Time) {
	at := t.Handover.FindStep(steps)
	if at < 0 || t.Handover.Missing == nil {
		return
	}
	if expires := t.Handover.ExpiresAt(steps[at].Timeout); expires.IsZero() || now.Before(expires) {
		answered := *t.Handover
		answered.Missing, answered.Absent = nil, false
		t.Handover = &answered
	}
}

// AssumeApprovals assumes that a person approves every compartment.
func (v *Cluster) AssumeApprovals() {
	for i := range v.Snapshot.Groups {
		v.Snapshot.Groups[i].Approval = rollout.Approval{}
	}
}

// record records the admissions and the started tasks of one simulated moment.
func (c *Forecast) record(m sim.Step) {
	after := m.At.Sub(c.Start)
	for i := range m.Actions {
		act := &m.Actions[i]
		key := targetKey{act.Rollout, act.Node}
		switch act.Verb {
		case rollout.VerbAdmit:
			c.recordAdmission(act, after)
			c.turns = append(c.turns, turningPoint{target: key, after: after})
		case rollout.VerbRetire:
			c.turns = append(c.turns, turningPoint{target: key, after: after, isEnd: true})
		case rollout.VerbRun:
			c.runs[key] = append(c.runs[key], taskRun{task: act.Task, covers: act.Covers})
			for _, then := range act.Then { // in the same pod
				c.runs[key] = append(c.runs[key], taskRun{task: then})
			}
		}
	}
}

func (c *Forecast) recordAdmission(act *rollout.Action, after time.Duration) {
	waves := c.waves[act.Rollout]
	for i := range waves {
		if waves[i].after == after && waves[i].group == act.Group {
			waves[i].Nodes = append(waves[i].Nodes, act.Node)
			return
		}
	}
	c.waves[act.Rollout] = append(waves, wave{Number: len(waves) + 1, group: act.Group, After: FormatDuration(after), after: after, Nodes: []string{act.Node}})
}

// waitingVerdicts returns the verdicts of the targets of a rollout that wait at the end of the simulation, by node.
func (c *Forecast) waitingVerdicts(r *rollout.Rollout) map[string]rollout.Verdict {
	waiting := map[string]rollout.Verdict{}
	for _, report := range c.timeline.Unfinished {
		if report.Rollout == r.Ref {
			for _, verdict := range report.Verdicts {
				waiting[verdict.Node] = verdict
			}
		}
	}
	return waiting
}

// stopAfterWaves stops when a rollout has had more waves than this; 0 never stops.
func stopAfterWaves(most int) StopCondition {
	return func(c *Forecast, _ sim.Step) bool {
		for _, waves := range c.waves {
			if most > 0 && len(waves) > most {
				return true
			}
		}
		return false
	}
}

// stopLate stops when a simulation has computed for longer than this.
func stopLate(most time.Duration) StopCondition {
	began := time.Now()
	return func(c *Forecast, _ sim.Step) bool {
		c.isCut = time.Since(began) > most
		return c.isCut
	}
}

// stopAtEither stops when one of both conditions does; the second may be nil.
func stopAtEither(first, second StopCondition) StopCondition {
	if second == nil {
		return first
	}
	return func(c *Forecast, m sim.Step) bool {
		stop := second(c, m) // always asked, because it counts
		return first(c, m) || stop
	}
}

// StopWhenDone stops when the named rollouts have ended everything that they can end; nil without names.
func (v *Cluster) StopWhenDone(args []string) StopCondition {
	if len(args) == 0 {
		return nil
	}
	isNamed, busy := map[rollout.Ref]bool{}, 0
	for _, r := range v.SelectRollouts(args) {
		isNamed[r.Ref] = true
		if r.Paused || r.Broken != nil {
			continue
		}
		for j := range r.Targets {
			if t := r.Targets[j]; t.Visit.Admitted || canStart(t) {
				busy++
			}
		}
	}
	return func(_ *Forecast, m sim.Step) bool {
		for _, act := range m.Actions {
			if act.Verb == rollout.VerbRetire && isNamed[act.Rollout] {
				busy--
			}
		}
		return busy <= 0
	}
}

func canStart(t *rollout.Target) bool {
	return hasOpenTasks(t) && t.Blocked == nil && !t.Gone && !t.Visit.Skipped
}

// describeTimes says how long a node of a rollout takes, and from what that is known; empty when nothing is left to do.
func (v *Cluster) describeTimes(r *rollout.Rollout) string {
	var of *rollout.Target
	for _, t := range r.Targets {
		if canStart(t) && (of == nil || len(t.Tasks) > len(of.Tasks)) {
			of = t
		}
	}
	if of == nil {
		return ""
	}
	visit := v.Snapshot.Times.Visit(r, of.Tasks)
	takes := ": a node takes " + FormatDuration(visit.Median())
	if visit.SlowTenth() > visit.Median() {
		takes += ", of the slowest tenth " + FormatDuration(visit.SlowTenth())
	}
	switch visit.Basis {
	case rollout.BasisVersion:
		return "from the recorded stages of " + output.Count(visit.Runs, "node") + takes
	case rollout.BasisPackage:
		return "from the recorded stages of " + output.Count(visit.Runs, "node") + ", also of other versions" + takes
	case rollout.BasisOthers:
		return "from the recorded stages of other packages" + takes
	}
	return "no stage is recorded, so each counts as " + FormatDuration(rollout.AssumedStage) + takes
}

// MaxNodesSimulated is up to how many nodes a plan is simulated to its end by default.
const MaxNodesSimulated = 500

// LimitWaves returns how many waves are printed, 0 for all: as requested, or a default for many nodes.
func LimitWaves(requested, defaultLimit, nodes int) int {
	switch {
	case requested >= 0:
		return requested
	case nodes <= MaxNodesSimulated:
		return 0
	}
	return defaultLimit
}

// countReasons counts verdicts by reason, the most frequent reason first.
func countReasons(verdicts []rollout.Verdict) []reasonCount {
	var counts []reasonCount
	index := map[rollout.Reason]int{}
	for _, verdict := range verdicts {
		at, ok := index[verdict.Why.Reason]
		if !ok {
			at = len(counts)
			index[verdict.Why.Reason] = at
			counts = append(counts, reasonCount{Reason: string(verdict.Why.Reason), Text: verdict.Why.Text})
		}
		counts[at].Nodes++
		if len(counts[at].First) < 3 {
			counts[at].First = append(counts[at].First, verdict.Node)
		}
	}
	slices.SortFunc(counts, compareReasonCounts)
	return counts
}

// MaxSimulatedTime ends every simulation.
const MaxSimulatedTime = 365 * 24 * time.Hour
