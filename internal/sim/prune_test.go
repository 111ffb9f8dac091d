// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"hash/fnv"
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// variedDurations gives each task another duration.
var variedDurations = sim.Durations{
	Task: func(_ rollout.Rollout, t rollout.Target, k rollout.Task) time.Duration {
		h := fnv.New32()
		_, _ = h.Write([]byte(t.Node + k.ID))
		return time.Duration(1+h.Sum32()%7) * 20 * time.Second
	},
	Pod: 30 * time.Second,
}

// TestPrunedRunIsSame checks that a run with a pruner has the same steps as one without, from the beginning and from states after faults.
func TestPrunedRunIsSame(t *testing.T) {
	left := 0
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		s := newRandomSnapshot(r)
		if n := r.Intn(20); n > 0 { // start in the middle
			times := variedDurations
			times.Stop = func(sim.Step) bool { n--; return n == 0 }
			s = addFaults(r, sim.RunWithoutPruner(s, times, 100*time.Hour).Final)
		}
		whole, few := requireSameRun(t, fmt.Sprint("seed ", seed), s)
		if few < whole {
			left++
		}
	}
	if left < 50 {
		t.Errorf("only %d of 200 runs leave out targets", left)
	}
}

func requireSameRun(t *testing.T, name string, s rollout.Snapshot) (whole, few int) {
	t.Helper()
	limit := 30 * time.Hour
	want := sim.RunWithoutPruner(s, variedDurations, limit)
	got, few := sim.RunWithWidth(s, variedDurations, limit, 1)
	for i := range want.Steps {
		if i >= len(got.Steps) || !reflect.DeepEqual(want.Steps[i], got.Steps[i]) {
			at := "nothing"
			if i < len(got.Steps) {
				at = fmt.Sprintf("%+v", got.Steps[i])
			}
			t.Fatalf("%s: step %d is\n%s\nwant\n%+v", name, i, at, want.Steps[i])
		}
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: the end is\n%+v\nwant\n%+v", name, got, want)
	}
	return countAllTargets(s) * (len(want.Steps) + 1), few
}

// TestExclusiveTasksAllRun checks that a simulation starts every task of a key, and the second one only after the first.
func TestExclusiveTasksAllRun(t *testing.T) {
	s := newRandomSnapshot(rand.New(rand.NewSource(1)))
	s.Rollouts, s.Groups, s.Ledgers = s.Rollouts[:1], s.Groups[:1], nil
	r := &s.Rollouts[0]
	r.Ref, r.Paused, r.Broken, r.Limit = rollout.Ref{Kind: "Skyhook", Name: "demo"}, false, nil, 0
	s.Groups[0] = rollout.Group{Ref: rollout.GroupRef{Owner: r.Ref}, Ledger: r.Ref, Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceWindow}}
	r.Targets = nil
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Ready, n.Cordoned, n.Tainted, n.Holds = true, false, false, nil
		r.Targets = append(r.Targets, &rollout.Target{Node: n.Name, UID: n.UID, Group: s.Groups[0].Ref, Tasks: []rollout.Task{
			{ID: "a/apply", Exclusive: "a", State: rollout.StatePending, Recorded: rollout.StatePending},
		}})
	}
	got := sim.RunWithoutPruner(s, variedDurations, time.Hour)
	var starts []int // of each step that starts tasks
	for _, step := range got.Steps {
		n := 0
		for _, a := range step.Actions {
			if a.Verb == rollout.VerbRun {
				n++
			}
		}
		if n > 0 {
			starts = append(starts, n)
		}
	}
	if len(starts) != 2 || starts[0] != 1 || starts[1] != len(s.Nodes)-1 || len(got.Unfinished) > 0 {
		t.Errorf("steps start %v tasks on %d nodes, unfinished %v; want one, then all others", starts, len(s.Nodes), got.Unfinished)
	}
	requireSameRun(t, "exclusive", s)
}

func countAllTargets(s rollout.Snapshot) int {
	n := 0
	for _, r := range s.Rollouts {
		n += len(r.Targets)
	}
	return n
}

// prototypes are the paces of random groups.
var prototypes = []rollout.Pace{
	{Kind: rollout.PaceWindow},
	{Kind: rollout.PaceWindow, StopAfter: 2, SafetyLimit: 60},
	{Kind: rollout.PaceWhole, PassPercent: 100, SafetyLimit: 50},
	{Kind: rollout.PaceFixed, Initial: 2, PassPercent: 100, SafetyLimit: 50, StopAfter: 1},
	{Kind: rollout.PaceLinear, Initial: 1, Delta: 1, PassPercent: 50, SafetyLimit: 50},
	{Kind: rollout.PaceExponential, Initial: 1, Factor: 2, PassPercent: 100, SafetyLimit: 40, StopAfter: 2},
}

// sharedPolicy owns the groups that several rollouts share.
var sharedPolicy = rollout.Ref{Kind: "Policy", Name: "shared"}

// newRandomSnapshot returns a snapshot with a few random rollouts.
func newRandomSnapshot(r *rand.Rand) rollout.Snapshot {
	chance := func(percent int) bool { return r.Intn(100) < percent }
	s := rollout.Snapshot{Now: morning}
	for i := range 10 + r.Intn(30) {
		name := fmt.Sprintf("n%02d", i)
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, UID: name, BootID: "b", Ready: !chance(4), Cordoned: chance(4), Known: chance(90), Self: i == 3,
			Tainted: chance(5), Created: morning.Add(-time.Duration(r.Intn(50)) * time.Hour)})
	}
	for i := range 1 + r.Intn(4) {
		kind := "Skyhook"
		if chance(20) {
			kind = "NodeOp"
		}
		o := rollout.Rollout{Ref: rollout.Ref{Kind: kind, Name: fmt.Sprintf("r%d", i)}, Sequence: kind, Priority: 10 * r.Intn(3), Barrier: chance(15), Paused: chance(12), Yields: chance(30),
			Serial: chance(20), Taint: rollout.Taint{Required: chance(10)}, Once: kind == "NodeOp", Numbering: rollout.Numbering{Stored: kind == "Skyhook"}}
		o.Taint.NewNodes = o.Taint.Required && chance(50)
		if chance(10) {
			o.Limit = 1 + r.Intn(4)
		}
		if chance(5) {
			o.Broken = &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: "it is wrong"}
		}
		o.Drain.WaitFirst = chance(15)
		o.SharesReboots = chance(50)
		shared := chance(25)
		groups := 1 + r.Intn(2)
		for j := range groups {
			g := rollout.Group{Ref: rollout.GroupRef{Owner: o.Ref, Compartment: fmt.Sprintf("g%d", j)}, Ledger: o.Ref, Limit: 1 + r.Intn(5), Pace: prototypes[r.Intn(len(prototypes))], Reset: chance(50)}
			if shared {
				g.Ref.Owner, g.Ledger = sharedPolicy, sharedPolicy
			}
			changeGroup(r, s, &g)
			if j > 0 && chance(40) {
				g.After = []rollout.GroupRef{{Owner: g.Ref.Owner, Compartment: "g0"}}
			}
			g.Approval = rollout.Approval{Required: chance(5), Of: "v1", Given: []rollout.Versions{"v0", "v1"}[r.Intn(2)]}
			if find(s.Groups, g.Ref) == nil {
				s.Groups = append(s.Groups, g)
			}
		}
		for j, n := range s.Nodes {
			group := rollout.GroupRef{Owner: o.Ref, Compartment: fmt.Sprintf("g%d", j%groups)}
			if shared {
				group.Owner = sharedPolicy
			}
			if chance(90) {
				t := newRandomTarget(r, n, find(s.Groups, group))
				if o.Drain.WaitFirst && chance(20) {
					t.Drain.Pods = append(t.Drain.Pods, rollout.Pod{Namespace: "jobs", Name: n.Name, UID: n.Name, Wait: true})
				}
				o.Targets = append(o.Targets, &t)
			}
		}
		s.Rollouts = append(s.Rollouts, o)
	}
	return s
}

func changeGroup(r *rand.Rand, s rollout.Snapshot, g *rollout.Group) {
	switch r.Intn(12) {
	case 0:
		g.Limit = rollout.Unlimited
	case 1:
		g.Limit = 0
	case 2:
		g.Soak = time.Duration(r.Intn(10)) * time.Minute
	case 3:
		g.Spread = rollout.Spread{Key: "zone", Limit: 1 + r.Intn(2)}
	case 4:
		g.Frozen, g.Until = &rollout.Why{Reason: rollout.ReasonWindow, Text: "the window is closed"}, s.Now.Add(time.Hour)
	case 5:
		g.Frozen = &rollout.Why{Reason: rollout.ReasonPaused, Text: "the policy is paused"}
	case 8:
		g.Closing, g.Opens = &rollout.Closing{At: s.Now.Add(10 * time.Minute), Margin: 20 * time.Minute, Text: "the window closes"}, s.Now.Add(time.Hour)
	case 9:
		g.Failed = &rollout.Why{Reason: rollout.ReasonHealthGate, Text: "the query gives 7, and must give at most 1"}
	case 6:
		g.Taken = []string{s.Nodes[0].Name}
	case 7:
		g.Ledger = rollout.Ref{}
	}
}

func find(groups []rollout.Group, ref rollout.GroupRef) *rollout.Group {
	for i := range groups {
		if groups[i].Ref == ref {
			return &groups[i]
		}
	}
	return nil
}

func newRandomTarget(r *rand.Rand, n rollout.Node, g *rollout.Group) rollout.Target {
	t := rollout.Target{Node: n.Name, UID: n.UID, Group: g.Ref, Place: string(rune('a' + r.Intn(4))), Class: r.Intn(10) / 9}
	done, joins := r.Intn(100) < 25, r.Intn(2) == 0
	var before []string
	for i := range 1 + r.Intn(3) {
		k := rollout.Task{ID: fmt.Sprintf("t%d", i), State: rollout.StatePending, Recorded: rollout.StatePending, After: before, Limit: time.Hour}
		if done {
			k.State, k.Recorded = rollout.StateDone, rollout.StateDone
		}
		if r.Intn(100) < 30 {
			k.Need = rollout.Need(r.Intn(3))
		}
		k.Joins = joins && k.Need != rollout.NeedAlone
		if k.Need == rollout.NeedAlone && r.Intn(2) == 0 {
			k.BootID, k.Reboot = n.BootID, true
		}
		before = []string{k.ID}
		t.Tasks = append(t.Tasks, k)
	}
	if r.Intn(100) < 6 {
		t.Blocked = &rollout.Why{Reason: rollout.ReasonIgnored, Text: "the node is ignored"}
	}
	if r.Intn(100) < 10 {
		t.Drain.Pods = []rollout.Pod{{Namespace: "web", Name: "p-" + n.Name, UID: "p-" + n.Name}}
	}
	return t
}

// addFaults adds states that a run itself does not reach.
func addFaults(r *rand.Rand, s rollout.Snapshot) rollout.Snapshot {
	for i := range s.Nodes {
		switch n := &s.Nodes[i]; r.Intn(40) {
		case 0:
			n.Ready = false
		case 1:
			n.Cordoned = true
		case 2:
			n.BootID = "another"
		}
	}
	for i := range s.Rollouts {
		for _, t := range s.Rollouts[i].Targets {
			if r.Intn(100) < 8 {
				addFault(r, s, t)
			}
		}
	}
	return s
}

// addFault changes a target as failures, people and other rollouts do.
func addFault(r *rand.Rand, s rollout.Snapshot, t *rollout.Target) {
	failed := &rollout.Why{Reason: rollout.ReasonStageFailed, Text: "it failed"}
	switch r.Intn(7) {
	case 0, 1:
		for k := range t.Tasks {
			if task := &t.Tasks[k]; t.Visit.Admitted && task.Object.Name != "" {
				task.State, task.Attempts.Failed, task.Object.Dead, task.Attempts.FailedAt = rollout.StateFailing, 1+r.Intn(4), r.Intn(2) == 0, s.Now
				task.Why = failed
			}
		}
	case 2:
		for k := range t.Tasks {
			if t.Tasks[k].Object.Name != "" {
				sim.RemoveObject(&t.Tasks[k])
			}
		}
	case 3:
		t.Objects.Orphans = []string{"orphan"}
	case 4:
		t.Visit.Skipped = !t.Visit.Admitted
	case 5:
		t.Leaving = true
	case 6:
		t.Rollback.Cause = failed
	}
}

// TestPrunedRunEvaluatesFewTargets checks that the number of evaluated targets depends on the targets in progress, and not
// on the size of the cluster.
func TestPrunedRunEvaluatesFewTargets(t *testing.T) {
	evaluated := map[int]int{}
	for _, nodes := range []int{100, 400} {
		s := newRollout(nodes, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 2, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
		got, seen := sim.RunWithWidth(s, variedDurations, 1000*time.Hour, 8)
		if len(got.Unfinished) > 0 {
			t.Fatalf("unfinished: %+v", got.Unfinished)
		}
		evaluated[nodes] = seen / nodes
	}
	if few, many := evaluated[100], evaluated[400]; many > few+few/5 {
		t.Errorf("for each node %d targets are evaluated with 100 nodes, and %d with 400", few, many)
	}
}
