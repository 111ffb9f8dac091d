// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// TestStatusIsComputedToBeWritten: while the last write is too recent for another one, the status before stays the one that events and
// samples tell of, and a pass is requested for when the next may be written. The warning about a failure is recorded all the same.
func TestStatusIsComputedToBeWritten(t *testing.T) {
	written := time.Unix(1000, 0)
	now := written.Add(statusInterval / 2)
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "u1"}}
	before := v1alpha1.SkyhookStatus{Status: v1alpha1.StatusInProgress, NodesTotal: 7}
	events := record.NewFakeRecorder(10)
	r := newReporter(cluster.New(cluster.Options{}), nil, events, logr.Discard())
	r.clock = func() time.Time { return now }
	report := func() *passReport {
		o := &cluster.Objects{Lists: cluster.Lists{Skyhooks: []*v1alpha1.Skyhook{s}}}
		ref := plan.Ref("demo")
		p := &passReport{reporter: r, compiled: cluster.Compile(o, now), objects: o, written: map[types.UID]time.Time{}, outcome: cluster.Outcome{Incomplete: map[rollout.Ref]bool{ref: true}, Errors: map[rollout.Ref]string{ref: "no answer"}}}
		p.updateSkyhooks(t.Context())
		r.lastWrites = p.written
		return p
	}
	r.statuses, r.samples = map[types.UID]v1alpha1.SkyhookStatus{"u1": before}, map[types.UID]skyhookSample{"u1": {status: before}}
	r.lastWrites = map[types.UID]time.Time{"u1": written}
	p := report()
	if got := r.statuses["u1"]; got.NodesTotal != 7 {
		t.Errorf("half a second after the last write a status of %d nodes was computed", got.NodesTotal)
	}
	if len(samplesOf(p.objects.Skyhooks, r.samples)) != 1 {
		t.Error("the sample is gone")
	}
	if due := written.Add(statusInterval); !p.next.Equal(due) {
		t.Errorf("the next pass is requested for %v, want %v", p.next, due)
	}
	if len(events.Events) != 1 {
		t.Errorf("%d events, want the warning", len(events.Events))
	}
	now = written.Add(statusInterval)
	if report(); r.statuses["u1"].NodesTotal != 0 {
		t.Error("when it may be written again the status was not computed")
	}
}

// TestStatusInterval: the status of a rollout over many nodes is written less often.
func TestStatusInterval(t *testing.T) {
	for targets, want := range map[int]time.Duration{0: time.Second, 99: time.Second, 1000: 2 * time.Second, 10000: 5 * time.Second} {
		r := &rollout.Rollout{Targets: make([]*rollout.Target, targets)}
		if got := statusIntervalOf(r); got != want {
			t.Errorf("of %d nodes: %s, want %s", targets, got, want)
		}
	}
}

// TestProgressIsWrittenSeldom follows a drain second by second: its progress alone is written every ten seconds, other changes at once, and
// a pass is requested for when the drain is long.
func TestProgressIsWrittenSeldom(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start
	r := &reporter{clock: func() time.Time { return now }, lastWrites: map[types.UID]time.Time{}}
	stored, wrote := v1alpha1.SkyhookStatus{Status: v1alpha1.StatusInProgress}, []int{}
	for second := range 45 {
		now = start.Add(time.Duration(second) * time.Second)
		status := v1alpha1.SkyhookStatus{Status: v1alpha1.StatusInProgress}
		if second >= 10 && second < 40 {
			status.Drains = []v1alpha1.NodeDrain{{Node: "n1", DrainProgress: v1alpha1.DrainProgress{PodsLeft: int32(100 - second)}}}
		}
		if second >= 33 {
			status.Status = v1alpha1.StatusErroring
		}
		p := &passReport{reporter: r, written: map[types.UID]time.Time{}}
		drain := rollout.Drained{Since: start, Long: second >= 10}
		interval := p.requestProgress(&rollout.Rollout{}, rollout.Report{Draining: []rollout.Drained{drain}}, report.HasNews(stored, status))
		isDifferent := stored.Status != status.Status || len(stored.Drains) != len(status.Drains) || len(status.Drains) > 0 && stored.Drains[0].PodsLeft != status.Drains[0].PodsLeft
		if p.writeStatus(interval, "demo", func() (bool, error) { return isDifferent, nil }) {
			stored = status
			wrote = append(wrote, second)
		}
		if due := start.Add(engine.LongDrain); second < 10 && !p.next.Equal(due) {
			t.Errorf("after %d s the next pass is at %v, want %v", second, p.next, due)
		}
		r.lastWrites = p.written
		if p.written["demo"].IsZero() && len(wrote) > 0 { // as when nothing differs: the time of the last write is forgotten
			r.lastWrites["demo"] = start.Add(time.Duration(wrote[len(wrote)-1]) * time.Second)
		}
	}
	want := []int{10, 20, 30, 33, 43}
	if len(wrote) != len(want) {
		t.Fatalf("written after %v s, want %v", wrote, want)
	}
	for i := range want {
		if wrote[i] != want[i] {
			t.Errorf("written after %v s, want %v", wrote, want)
		}
	}
}
