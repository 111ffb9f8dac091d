// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

var morning = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// newRollout returns a rollout on this many nodes, with two packages of two stages each.
func newRollout(nodes int, group rollout.Group) rollout.Snapshot {
	s := rollout.Snapshot{Now: morning, Groups: []rollout.Group{group}}
	r := rollout.Rollout{Ref: rollout.ParseRef("Skyhook/demo"), Sequence: "Skyhook", Priority: 200}
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		s.Nodes = append(s.Nodes, rollout.Node{Name: name, UID: name, Ready: true, Known: true, Created: morning.Add(time.Duration(i-nodes) * time.Second)})
		t := rollout.Target{Node: name, UID: name, Group: group.Ref}
		for _, p := range []string{"shell", "tuning"} {
			for _, stage := range []string{"apply", "config"} {
				k := rollout.Task{ID: p + "/" + stage, Label: p + " " + stage, State: rollout.StatePending, Recorded: rollout.StatePending}
				if stage == "config" {
					k.After = []string{p + "/apply"}
				}
				t.Tasks = append(t.Tasks, k)
			}
		}
		r.Targets = append(r.Targets, &t)
	}
	s.Rollouts = []rollout.Rollout{r}
	return s
}

// minuteDurations are one minute for each task, and two for tuning.
var minuteDurations = sim.Durations{
	Task: func(_ rollout.Rollout, _ rollout.Target, k rollout.Task) time.Duration {
		if strings.HasPrefix(k.ID, "tuning") {
			return 2 * time.Minute
		}
		return time.Minute
	},
	Pod: 30 * time.Second,
}

func TestRun(t *testing.T) {
	s := newRollout(4, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 2, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
	got := sim.Run(s, minuteDurations, 24*time.Hour)
	if len(got.Unfinished) > 0 {
		t.Errorf("unfinished: %+v", got.Unfinished)
	}
	if want := morning.Add(8 * time.Minute); !got.End.Equal(want) { // two at a time, four minutes each
		t.Errorf("it ended at %s, want %s", got.End, want)
	}
	var trace strings.Builder
	for _, m := range got.Steps {
		for _, a := range m.Actions {
			if a.Verb == rollout.VerbAdmit || a.Verb == rollout.VerbRetire {
				fmt.Fprintf(&trace, "%s %s %s\n", m.At.Sub(morning), a.Verb, a.Node)
			}
		}
	}
	want := "0s admit n0000\n0s admit n0001\n4m0s retire n0000\n4m0s retire n0001\n4m0s admit n0002\n4m0s admit n0003\n8m0s retire n0002\n8m0s retire n0003\n"
	if trace.String() != want {
		t.Errorf("got\n%swant\n%s", trace.String(), want)
	}
	if s.Rollouts[0].Targets[0].Visit.Admitted {
		t.Error("the snapshot was changed")
	}
}

func TestRunWithDrainAndWindow(t *testing.T) {
	s := newRollout(1, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceFixed, Initial: 1, PassPercent: 100, SafetyLimit: 100},
		Frozen: &rollout.Why{Reason: rollout.ReasonWindow, Text: "the window opens at 10:00"}, Until: morning.Add(2 * time.Hour)})
	for i := range s.Rollouts[0].Targets[0].Tasks {
		s.Rollouts[0].Targets[0].Tasks[i].Need = rollout.NeedDrained
	}
	s.Rollouts[0].Targets[0].Drain.Pods = []rollout.Pod{{Namespace: "web", Name: "a", UID: "a"}}
	got := sim.Run(s, minuteDurations, 24*time.Hour)
	if want := morning.Add(2*time.Hour + 4*time.Minute + 30*time.Second); !got.End.Equal(want) || len(got.Unfinished) > 0 {
		t.Errorf("it ended at %s, want %s; unfinished: %+v", got.End, want, got.Unfinished)
	}
}

func TestRunEnds(t *testing.T) {
	s := newRollout(2, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 0})
	got := sim.Run(s, minuteDurations, 24*time.Hour)
	if !got.End.Equal(morning) || len(got.Unfinished) != 1 || len(got.Unfinished[0].Verdicts) != 2 || got.Unfinished[0].Verdicts[0].Why.Reason != rollout.ReasonBudget {
		t.Errorf("%s, %+v", got.End, got.Unfinished)
	}
	s = newRollout(2, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 1})
	got = sim.Run(s, minuteDurations, 3*time.Minute)
	if len(got.Unfinished) != 1 || got.End.After(morning.Add(3*time.Minute)) {
		t.Errorf("at the time limit: %s, %+v", got.End, got.Unfinished)
	}
}

// TestRunWithDeletedObject checks that a run does not wait for an object that is deleted before it finished.
func TestRunWithDeletedObject(t *testing.T) {
	s := newRollout(1, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
	target := s.Rollouts[0].Targets[0]
	target.Visit.Admitted, target.Visit.Admission = true, 1
	k := &target.Tasks[0]
	k.State, k.Recorded, k.Object.Name, k.Object.Stale = rollout.StateFailing, rollout.StateFailing, "pod", true
	k.Why, k.Attempts.Failed, k.Attempts.FailedAt = &rollout.Why{Reason: rollout.ReasonStageFailed, Text: "it failed"}, 1, morning.Add(-time.Second)
	got := sim.Run(s, minuteDurations, 24*time.Hour)
	if len(got.Unfinished) > 0 || got.End.After(morning.Add(time.Hour)) {
		t.Errorf("it ended at %s, unfinished %+v", got.End, got.Unfinished)
	}
}

func TestRunStops(t *testing.T) {
	s := newRollout(4, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 2, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
	times, admitted := minuteDurations, 0
	times.Stop = func(m sim.Step) bool {
		for _, a := range m.Actions {
			if a.Verb == rollout.VerbAdmit {
				admitted++
			}
		}
		return admitted > 2
	}
	got := sim.Run(s, times, 24*time.Hour)
	if last := got.Steps[len(got.Steps)-1]; !last.At.Equal(morning.Add(4*time.Minute)) || !got.End.Equal(last.At) || len(got.Unfinished) != 1 {
		t.Errorf("it ended at %s after %d steps, unfinished %+v", got.End, len(got.Steps), got.Unfinished)
	}
}

// TestRequests counts the API requests of a rollout of two packages for each node: all changes of the node in one plan are
// one patch, and each object is created and deleted. The other requests, up to 20 per node, are for events, conditions
// and ConfigMaps.
func TestRequests(t *testing.T) {
	s := newRollout(50, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
	got := sim.Run(s, minuteDurations, 24*time.Hour)
	patches, objects, plans := map[string]int{}, map[string]int{}, 0
	for _, m := range got.Steps {
		plans++
		patched := map[string]bool{}
		for _, a := range m.Actions {
			switch a.Verb {
			case rollout.VerbSweep:
				objects[a.Node]++
			case rollout.VerbRun:
				objects[a.Node]++
				patched[a.Node] = true
			default:
				patched[a.Node] = true
			}
		}
		for n := range patched {
			patches[n]++
		}
	}
	for n := range patches {
		if patches[n] != 4 || objects[n] != 8 {
			t.Errorf("%s: %d patches, %d creates and deletes", n, patches[n], objects[n])
		}
	}
	if plans != 4 || len(patches) != 50 { // start; shell continues; both continue; the end
		t.Errorf("%d plans, %d nodes", plans, len(patches))
	}
}

// TestRunWithPulls: pulls take no time in a run. Those that fail go on failing, and nodes that could not pull either are not begun.
func TestRunWithPulls(t *testing.T) {
	failed := &rollout.Why{Reason: rollout.ReasonImagePull, Text: "the image is not found"}
	for failing, want := range []int{4, 3, 2, 0} { // on the first nodes; how many are done
		s := newRollout(4, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 2, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
		for i := range s.Rollouts[0].Targets {
			pull := &rollout.Pull{Needed: true}
			if i < failing {
				pull.Failed, pull.Object = failed, []string{"pod", ""}[i%2] // the second one was refused
			}
			s.Rollouts[0].Targets[i].Pull = pull
		}
		got := sim.Run(s, minuteDurations, 24*time.Hour)
		done, left := 0, 0
		for _, target := range got.Final.Rollouts[0].Targets {
			if !target.Visit.FinishedAt.IsZero() {
				done++
			}
		}
		for _, r := range got.Unfinished {
			for _, v := range r.Verdicts {
				if left++; v.Why.Reason != rollout.ReasonImagePull {
					t.Errorf("%d failing: %s waits for %s", failing, v.Node, v.Why.Reason)
				}
			}
		}
		if done != want || left != 4-want {
			t.Errorf("%d failing: %d are done and %d left, want %d done", failing, done, left, want)
		}
	}
}

// TestRunWithLeavingObjects begins right after a stage: its object is being deleted, whether its outcome is recorded or not.
func TestRunWithLeavingObjects(t *testing.T) {
	for name, change := range map[string]func(*rollout.Target){
		"not recorded": func(t *rollout.Target) { t.Tasks[0].State, t.Tasks[0].Object.Name = rollout.StateSucceeded, "pod" },
		"recorded, the next waits": func(t *rollout.Target) {
			t.Tasks[0].State, t.Tasks[0].Recorded = rollout.StatePending, rollout.StatePending
		},
		"failed, and tried again":      func(t *rollout.Target) { t.Tasks[0].Object.Name = "pod" },
		"of no task, before interrupt": func(t *rollout.Target) { t.Tasks[0].Need, t.Objects.Going = rollout.NeedAlone, []string{"pod"} },
	} {
		s := newRollout(1, rollout.Group{Ref: rollout.ParseGroupRef("g"), Ledger: rollout.ParseRef("g"), Limit: 1, Pace: rollout.Pace{Kind: rollout.PaceWindow}})
		target := s.Rollouts[0].Targets[0]
		target.Visit.Admitted, target.Visit.AdmittedAt = true, morning
		k := &target.Tasks[0]
		k.State, k.Recorded, k.Object.Leaving = rollout.StateRunning, rollout.StateRunning, true
		change(target)
		if got := sim.Run(s, minuteDurations, 24*time.Hour); len(got.Unfinished) > 0 {
			t.Errorf("%s: unfinished: %+v", name, got.Unfinished[0].Verdicts)
		}
	}
}
