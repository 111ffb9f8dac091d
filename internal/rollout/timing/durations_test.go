// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package timing

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// drainTest is a node that a rollout holds and drains, pass by pass.
type drainTest struct {
	t         *testing.T
	durations *Durations
	now       time.Time
	heldAt    func() time.Time
	drain     rollout.Drain
	isAsked   bool
}

// pass decides with these pods in the way, and returns the reason of the verdict and the evictions.
func (d *drainTest) pass(pods ...rollout.Pod) (rollout.Reason, []rollout.Action) {
	d.t.Helper()
	ref := rollout.Ref{Kind: "Skyhook", Name: "demo"}
	for i := range pods {
		pods[i].Asked = d.isAsked
	}
	s := rollout.Snapshot{
		Now:    d.now,
		Nodes:  []rollout.Node{{Name: "n1", UID: "u1", Ready: true, Cordoned: true, Holds: []rollout.Hold{{Owner: ref}}}},
		Groups: []rollout.Group{{Ref: rollout.ParseGroupRef("g"), Limit: rollout.Unlimited, Pace: rollout.Pace{Kind: rollout.PaceWindow}}},
		Rollouts: []rollout.Rollout{{Ref: ref, UID: "r", Drain: d.drain, Targets: []*rollout.Target{{
			Node: "n1", UID: "u1", Group: rollout.ParseGroupRef("g"), Visit: rollout.Visit{Admitted: true, Admission: 1}, Drain: rollout.DrainProgress{HeldAt: d.heldAt(), Pods: pods, PodsSeen: true},
			Tasks: []rollout.Task{{ID: "driver", State: rollout.StatePending, Recorded: rollout.StatePending, Need: rollout.NeedDrained}},
		}}}},
	}
	d.durations.Measure(&s)
	plan := engine.Decide(s)
	d.durations.RecordDrains(s, plan)
	return plan.Reports[0].Verdicts[0].Why.Reason, slices.DeleteFunc(plan.Actions, func(a rollout.Action) bool { return a.Verb != rollout.VerbEvict })
}

func newDrainTest(t *testing.T) *drainTest {
	return &drainTest{
		t: t, durations: NewDurations(), now: noon, heldAt: func() time.Time { return noon },
		drain: rollout.Drain{Timeout: 10 * time.Minute, OnTimeout: rollout.DrainWait},
	}
}

// TestEachDrainHasTheWholeTimeout drains a node twice in one visit. The second drain begins long after the hold.
func TestEachDrainHasTheWholeTimeout(t *testing.T) {
	d, web := newDrainTest(t), rollout.Pod{Namespace: "a", Name: "web", UID: "web"}
	for _, step := range []struct {
		after time.Duration
		pods  []rollout.Pod
		want  rollout.Reason
	}{
		{0, []rollout.Pod{web}, rollout.ReasonPodLeaving},
		{9 * time.Minute, []rollout.Pod{web}, rollout.ReasonPodLeaving},
		{11 * time.Minute, []rollout.Pod{web}, rollout.ReasonDrainTimeout},
		{12 * time.Minute, nil, rollout.ReasonWorking},
		{60 * time.Minute, []rollout.Pod{web}, rollout.ReasonPodLeaving},
		{69 * time.Minute, []rollout.Pod{web}, rollout.ReasonPodLeaving},
		{70 * time.Minute, []rollout.Pod{web}, rollout.ReasonDrainTimeout},
	} {
		d.now = noon.Add(step.after)
		if got, _ := d.pass(step.pods...); got != step.want {
			t.Errorf("after %s: %s, want %s", step.after, got, step.want)
		}
	}
}

// TestDrainOfACordonWithoutATime reaches its timeout though every pass compiles the hold as placed now: a predecessor did not
// record when it cordoned the node.
func TestDrainOfACordonWithoutATime(t *testing.T) {
	d, web := newDrainTest(t), rollout.Pod{Namespace: "a", Name: "web", UID: "web"}
	d.heldAt = func() time.Time { return d.now }
	d.pass(web)
	d.now = noon.Add(10 * time.Minute)
	if got, _ := d.pass(web); got != rollout.ReasonDrainTimeout {
		t.Errorf("after the timeout: %s", got)
	}
}

// TestForceAsksFirst deletes a pod only after its eviction was requested, however long the drain takes.
func TestForceAsksFirst(t *testing.T) {
	d, web := newDrainTest(t), rollout.Pod{Namespace: "a", Name: "web", UID: "web"}
	d.drain.OnTimeout = rollout.DrainForce
	protected := rollout.Pod{Namespace: "a", Name: "protected", UID: "protected", Wait: true}
	for _, step := range []struct {
		after   time.Duration
		pods    []rollout.Pod
		isAsked bool
		want    []bool // force, of each eviction
	}{
		{0, []rollout.Pod{protected, web}, false, nil},
		{20 * time.Minute, []rollout.Pod{protected, web}, false, nil},
		{21 * time.Minute, []rollout.Pod{web}, false, []bool{false}},
		{22 * time.Minute, []rollout.Pod{web}, true, []bool{true}},
	} {
		d.now, d.isAsked = noon.Add(step.after), step.isAsked
		var got []bool
		_, evictions := d.pass(step.pods...)
		for _, a := range evictions {
			got = append(got, a.Force)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("after %s: evictions with force %v, want %v", step.after, got, step.want)
		}
	}
}

// TestDurationsOfAnotherClock measures an attempt, a proof and a reservation from when this process observed them, and forgets them.
func TestDurationsOfAnotherClock(t *testing.T) {
	d, ref := NewDurations(), rollout.Ref{Kind: "Skyhook", Name: "demo"}
	snapshot := func(now time.Time, objects ...string) rollout.Snapshot {
		s := rollout.Snapshot{Now: now, Ledgers: []rollout.Ledger{{Owner: ref, Admitting: []rollout.Reservation{{Rollout: ref, Node: "n1", Since: noon.Add(5 * time.Hour)}}}}}
		for _, object := range objects {
			s.Rollouts = append(s.Rollouts, rollout.Rollout{Ref: ref, Targets: []*rollout.Target{{Node: "n1", UID: "u1", Visit: rollout.Visit{FinishedAt: noon.Add(5 * time.Hour)}, Proof: &rollout.Proof{Since: noon.Add(-5 * time.Hour)}, Tasks: []rollout.Task{{
				ID: "apply", Object: rollout.TaskObject{Name: object}, Limit: time.Hour, Attempts: rollout.Attempts{Started: noon.Add(-5 * time.Hour), FailedAt: noon.Add(5 * time.Hour), Failed: 1},
			}}}}})
		}
		d.Measure(&s)
		return s
	}
	later := noon.Add(time.Minute)
	snapshot(noon, "pod")
	s := snapshot(later, "pod")
	target := s.Rollouts[0].Targets[0]
	for name, got := range map[string]time.Time{
		"the attempt": target.Tasks[0].Attempts.Observed, "the failure": target.Tasks[0].Attempts.FailedAt, "the end": target.Visit.FinishedAt, "the proof": target.Proof.Observed, "the reservation": s.Ledgers[0].Admitting[0].Observed,
	} {
		if !got.Equal(noon) {
			t.Errorf("%s counts from %s, want %s", name, got, noon)
		}
	}
	snapshot(later)
	if s = snapshot(later, "pod"); !s.Rollouts[0].Targets[0].Tasks[0].Attempts.Observed.Equal(later) {
		t.Errorf("an attempt that was gone meanwhile counts from %s", s.Rollouts[0].Targets[0].Tasks[0].Attempts.Observed)
	}
}

// TestWaitForOtherPods: protected pods are waited for from when one of them was seen first. Others that came when nobody looked are not
// evicted because of those before them; what overlaps is one wait.
func TestWaitForOtherPods(t *testing.T) {
	durations, now := NewDurations(), noon
	one, two, three := rollout.Pod{UID: "1", Wait: true}, rollout.Pod{UID: "2", Wait: true}, rollout.Pod{UID: "3", Wait: true}
	for _, step := range []struct {
		after time.Duration
		pods  []rollout.Pod
		seen  bool
		since time.Duration
	}{
		{0, []rollout.Pod{one}, true, 0},
		{time.Minute, nil, false, 0}, // its pods are not listed
		{2 * time.Minute, []rollout.Pod{one, two}, true, 0},
		{3 * time.Minute, []rollout.Pod{two}, true, 0},
		{4 * time.Minute, []rollout.Pod{three}, true, 4 * time.Minute},
		{5 * time.Minute, []rollout.Pod{three}, true, 4 * time.Minute},
	} {
		target := &rollout.Target{Node: "n1", UID: "u1", Drain: rollout.DrainProgress{Pods: step.pods, PodsSeen: step.seen}}
		s := rollout.Snapshot{Now: now.Add(step.after), Rollouts: []rollout.Rollout{{Ref: rollout.Ref{Kind: "Skyhook", Name: "demo"}, Drain: rollout.Drain{WaitFirst: true}, Targets: []*rollout.Target{target}}}}
		durations.Measure(&s)
		if got := s.Rollouts[0].Targets[0].Drain.ProtectedSince.Sub(now); got != step.since {
			t.Errorf("after %s pods %v are waited for since %s, want %s", step.after, step.pods, got, step.since)
		}
	}
}

// TestMeasureKnownTargets measures targets at random times: as they were in the snapshot before, where their times are kept, and as copies of
// them. Both have the same times, also when the clock is set back, and a target that was given is never changed.
func TestMeasureKnownTargets(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		at := func(now time.Time) time.Time {
			if r.IntN(3) == 0 {
				return time.Time{}
			}
			return now.Add(time.Duration(r.IntN(40)-20) * time.Second)
		}
		newTarget := func(i int, now time.Time) rollout.Target {
			out := rollout.Target{Node: fmt.Sprint("n", i), UID: fmt.Sprint("u", i), Visit: rollout.Visit{Admission: r.IntN(2), AdmittedAt: at(now), FinishedAt: at(now)}, Drain: rollout.DrainProgress{PodsSeen: r.IntN(2) == 0}}
			if r.IntN(4) == 0 {
				out.Drain.HeldAt = at(now)
			}
			for j := range 3 {
				k := rollout.Task{ID: fmt.Sprint("task", j), Attempts: rollout.Attempts{FailedAt: at(now), Started: at(now), Failed: r.IntN(2)}, Object: rollout.TaskObject{Unpulled: r.IntN(3) == 0}}
				if r.IntN(2) == 0 {
					k.Object.Name, k.Limit, k.State = fmt.Sprint("pod", j), time.Hour, rollout.StateRunning
				}
				out.Tasks = append(out.Tasks, k)
			}
			switch r.IntN(6) {
			case 0:
				out.Proof = &rollout.Proof{Since: at(now)}
			case 1:
				out.Check = &rollout.Check{Object: "check", Created: at(now)}
			case 2:
				out.Pull = &rollout.Pull{Object: "pull", Created: at(now)}
			}
			return out
		}
		kept, copied, now := NewDurations(), NewDurations(), noon
		given := make([]*rollout.Target, 4)
		for step := range 50 {
			now = now.Add(time.Duration(r.IntN(15)-4) * time.Second)
			same, copies := rollout.Snapshot{Now: now, Rollouts: []rollout.Rollout{{}}}, rollout.Snapshot{Now: now, Rollouts: []rollout.Rollout{{}}}
			var before []rollout.Target
			for i := range given {
				if given[i] == nil || r.IntN(5) == 0 {
					given[i] = new(newTarget(i, now))
				}
				if r.IntN(10) == 0 {
					continue // it is not in this snapshot
				}
				same.Rollouts[0].Targets = append(same.Rollouts[0].Targets, given[i])
				copies.Rollouts[0].Targets = append(copies.Rollouts[0].Targets, new(*given[i]))
				before = append(before, *given[i])
				before[len(before)-1].Tasks = slices.Clone(given[i].Tasks)
			}
			all := slices.Clone(same.Rollouts[0].Targets)
			kept.Measure(&same)
			copied.Measure(&copies)
			if !reflect.DeepEqual(same.Rollouts[0].Targets, copies.Rollouts[0].Targets) {
				t.Fatalf("seed %d, step %d: the targets that were known differ\n%+v\n%+v", seed, step, same.Rollouts[0].Targets, copies.Rollouts[0].Targets)
			}
			for i, target := range all {
				if !reflect.DeepEqual(*target, before[i]) {
					t.Fatalf("seed %d, step %d: the target that was given is changed", seed, step)
				}
			}
		}
	}
}

// TestMeasuredTargetStays: a target of a running task is copied once, and not in each pass.
func TestMeasuredTargetStays(t *testing.T) {
	d, given := NewDurations(), &rollout.Target{Node: "n1", UID: "u1", Tasks: []rollout.Task{{ID: "driver", Object: rollout.TaskObject{Name: "pod"}, Limit: time.Hour, State: rollout.StateRunning, Attempts: rollout.Attempts{Started: noon}}}}
	measure := func(now time.Time) *rollout.Target {
		s := rollout.Snapshot{Now: now, Rollouts: []rollout.Rollout{{Targets: []*rollout.Target{given}}}}
		d.Measure(&s)
		return s.Rollouts[0].Targets[0]
	}
	first := measure(noon)
	if first == given || !first.Tasks[0].Attempts.Observed.Equal(noon) {
		t.Fatalf("the attempt counts as observed at %v", first.Tasks[0].Attempts.Observed)
	}
	if measure(noon.Add(time.Second)) != first {
		t.Error("it was copied again")
	}
}
