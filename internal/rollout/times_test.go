// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// ranOn returns a target on which stages of a package ran one after the other, from noon on.
func ranOn(pkg string, seconds ...int64) *Target {
	runs, at := Runs{Package: pkg}, noon
	for i, s := range seconds {
		run := StageTime{Stage: []string{"apply", "config"}[i], At: at, Seconds: s}
		runs.Stages, at = append(runs.Stages, run), at.Add(run.Took())
	}
	return &Target{Visit: Visit{LastAdmittedAt: noon, Runs: []Runs{runs}}}
}

// newWork returns a rollout with a target on which stages are still to run, and others.
func newWork(name string, ids []string, others ...*Target) Rollout {
	t := &Target{}
	for i, id := range ids {
		k := Task{ID: id}
		if i > 0 {
			k.After = ids[i-1 : i]
		}
		t.Tasks = append(t.Tasks, k)
	}
	return Rollout{Ref: ParseRef(name), Targets: append([]*Target{t}, others...)}
}

func repeated(t *Target, n int) (out []*Target) {
	for range n {
		out = append(out, t)
	}
	return out
}

// TestEstimates: what is known of a package version counts, then that of its other versions, then that of other packages.
func TestEstimates(t *testing.T) {
	ids := []string{"tuning|2/apply", "tuning|2/config"}
	for name, c := range map[string]struct {
		ran   []*Target
		want  time.Duration
		basis Basis
		runs  int
	}{
		"nothing":                         {nil, 4 * time.Minute, BasisAssumed, 0},
		"this version":                    {append(repeated(ranOn("tuning|2", 30, 20), 5), repeated(ranOn("tuning|1", 300, 200), 50)...), 50 * time.Second, BasisVersion, 5},
		"one node, and nothing else":      {append(repeated(ranOn("tuning|2", 30, 20), 1), ranOn("shell|1", 300, 200)), 50 * time.Second, BasisVersion, 1},
		"another version":                 {repeated(ranOn("tuning|1", 300, 200), 3), 500 * time.Second, BasisPackage, 3},
		"few of this, and another":        {append(repeated(ranOn("tuning|2", 30, 20), 4), repeated(ranOn("tuning|1", 300, 200), 50)...), 500 * time.Second, BasisPackage, 54},
		"other packages":                  {[]*Target{ranOn("shell|1", 7, 5)}, 12 * time.Second, BasisOthers, 1},
		"another stage of other packages": {[]*Target{ranOn("shell|1", 7)}, 14 * time.Second, BasisOthers, 1},
		"a time that a person wrote":      {repeated(ranOn("tuning|2", -5, 20), 5), 20 * time.Second, BasisVersion, 5},
	} {
		r := newWork("Skyhook/demo", ids, c.ran...)
		got := NewTimes([]Rollout{r}).Visit(&r, r.Targets[0].Tasks)
		if got.Median() != c.want || got.Basis != c.basis || got.Runs != c.runs {
			t.Errorf("%s: %s from basis %d and %d runs, want %s from %d and %d", name, got.Median(), got.Basis, got.Runs, c.want, c.basis, c.runs)
		}
	}
}

// TestEstimateOfNodeOp: the command of a NodeOp is as long as it was on its own nodes, and otherwise as that of other NodeOps.
func TestEstimateOfNodeOp(t *testing.T) {
	ran := func(seconds int64) *Target {
		return &Target{Visit: Visit{Runs: []Runs{{Stages: []StageTime{{Stage: "command", At: noon, Seconds: seconds}}}}}}
	}
	one, two, three := newWork("NodeOp/a/one", []string{"command"}, repeated(ran(10), 5)...), newWork("NodeOp/a/two", []string{"command"}, repeated(ran(90), 5)...), newWork("NodeOp/a/three", []string{"command"})
	times := NewTimes([]Rollout{one, two, three})
	for _, c := range []struct {
		of    Rollout
		want  time.Duration
		basis Basis
	}{{one, 10 * time.Second, BasisVersion}, {two, 90 * time.Second, BasisVersion}, {three, 90 * time.Second, BasisPackage}} {
		if got := times.Task(&c.of, "command"); got.Median() != c.want || got.Basis != c.basis {
			t.Errorf("%s: %s from basis %d, want %s from %d", c.of.Ref, got.Median(), got.Basis, c.want, c.basis)
		}
	}
}

// TestRestOfVisit: the part of a visit counts in which no stage ran, of stages that ran in it.
func TestRestOfVisit(t *testing.T) {
	visited := ranOn("tuning|2", 30, 20)
	visited.Visit.Took = 70 * time.Second
	visited.Visit.Runs = append(visited.Visit.Runs, Runs{"shell|1", []StageTime{{Stage: "apply", At: noon.Add(40 * time.Second), Seconds: 15}, {Stage: "config", At: noon.Add(-time.Hour), Seconds: 600}}})
	unknown := &Target{Visit: Visit{LastAdmittedAt: noon, Took: time.Hour}} // by an operator that recorded no stages
	r := newWork("Skyhook/demo", []string{"tuning|2/apply"}, visited, unknown)
	times := NewTimes([]Rollout{r})
	if got := times.Rest(&r).Median(); got != 15*time.Second {
		t.Errorf("the rest is %s, want 15s", got)
	}
	if got := times.Visit(&r, r.Targets[0].Tasks); got.Median() != 45*time.Second {
		t.Errorf("a visit is %s, want 45s", got.Median())
	}
}

// TestSample: of a large rollout a sample counts, with all nodes that recorded something since it has work while they are few.
func TestSample(t *testing.T) {
	r := newWork("Skyhook/demo", []string{"tuning|2/apply"}, repeated(ranOn("tuning|1", 100), 5*maxSampled)...)
	r.Since = noon.Add(time.Hour)
	for at := range 5 {
		ran := ranOn("tuning|2", 50)
		ran.Visit.LastAdmittedAt = r.Since
		r.Targets[1+50*at] = ran
	}
	times := NewTimes([]Rollout{r})
	if got := times.Task(&r, "tuning|2/apply"); got.Runs != 5 || got.Median() != 50*time.Second {
		t.Errorf("of this version there are %d runs of %s, want all five", got.Runs, got.Median())
	}
	if got := times.Task(&r, "tuning|1/apply"); got.Runs < maxSampled/2 || got.Runs > maxSampled {
		t.Errorf("%d runs are read of the earlier version, want at most %d", got.Runs, maxSampled)
	}
}

// TestSlowTail: a batch waits for its slowest node, and twenty nodes that follow each other have all slots.
func TestSlowTail(t *testing.T) {
	var ran []*Target
	for i := range int64(100) {
		ran = append(ran, ranOn("tuning|2", 10+i/90*50))
	}
	r := newWork("Skyhook/demo", []string{"tuning|2/apply"}, ran...)
	e := NewTimes([]Rollout{r}).Visit(&r, r.Targets[0].Tasks)
	if e.Median() != 10*time.Second || e.SlowTenth() != time.Minute {
		t.Errorf("half of the nodes take %s, the slowest tenth %s", e.Median(), e.SlowTenth())
	}
	if seen := e.Slowest(7, slots); seen != time.Minute {
		t.Errorf("twenty nodes take %s, want that of the slowest", seen)
	}
	for _, order := range []int{-1, -21, math.MaxInt, math.MinInt} { // as a person may write it to a node
		if slot := SlotOf(order); slot < 0 || slot >= slots {
			t.Errorf("place %d has slot %d", order, slot)
		}
	}
	if got := fmt.Sprint(e.Slowest(0, 2), e.InWindow(0, 40, 1), e.InWindow(0, 40, 4), e.InWindow(0, 5, 5)); got != "10s 10m0s 2m30s 1m0s" {
		t.Errorf("two nodes, forty one at a time, four at a time, and five at once take %s", got)
	}
}

// TestVisitOfTasks: tasks that do not wait for each other run at the same time, unless the rollout is serial. Those that are done, and those
// that wait for themselves, take no time.
func TestVisitOfTasks(t *testing.T) {
	r := newWork("Skyhook/demo", []string{"tuning|2/apply", "tuning|2/config"}, ranOn("tuning|2", 30, 20), ranOn("shell|1", 15))
	r.Targets[0].Tasks = append(r.Targets[0].Tasks, Task{ID: "shell|1/apply"}, Task{ID: "done", State: StateDone})
	times := NewTimes([]Rollout{r})
	parallel := times.Visit(&r, r.Targets[0].Tasks)
	r.Serial = true
	serial := times.Visit(&r, r.Targets[0].Tasks)
	r.Serial, r.Targets[0].Tasks[0].After = false, []string{"tuning|2/config"}
	circle := times.Visit(&r, r.Targets[0].Tasks)
	if got := fmt.Sprint(parallel.Median(), serial.Median(), circle.Median()); got != "50s 1m5s 50s" {
		t.Errorf("the visits take %s", got)
	}
}
