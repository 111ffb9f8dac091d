// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// board is what the metrics show. The gauges are those of the last pass and nothing else, so a series ends with the
// Skyhook, package, policy or compartment it is about, and every value is a sum over nodes.
type board struct {
	tallies
	loop     *prometheus.HistogramVec
	reaction prometheus.Histogram
	pulse    *pulse

	mu       sync.Mutex
	policies []*v1alpha1.DeploymentPolicy // of the last pass
	told     []told
	groups   []rollout.GroupReport
	now      time.Time            // of it
	ended    map[string]time.Time // by node: when the end of a pod was seen that nothing followed yet
}

// told is what a pass found about one Skyhook, summed up: what it was compiled from is as large as the cluster, and not
// kept until the next pass.
type told struct {
	skyhook *v1alpha1.Skyhook
	status  v1alpha1.SkyhookStatus
	tallies []skyhook.Tally
	waiting map[rollout.Reason]int // nodes that do not work
	oldest  time.Time              // when the admission began that has lasted longest; zero for none
}

func sumUp(s *v1alpha1.Skyhook, by *skyhook.Compiled, status v1alpha1.SkyhookStatus, report rollout.Report) told {
	t := told{skyhook: s, status: status, tallies: by.Tallies(), waiting: map[rollout.Reason]int{}}
	for _, v := range report.Verdicts {
		if v.Phase != rollout.PhaseFinished && v.Why.Reason != rollout.ReasonWorking {
			t.waiting[v.Why.Reason]++
		}
	}
	for i := range by.Rollout.Targets {
		if target := &by.Rollout.Targets[i]; target.Admitted && !target.AdmittedAt.IsZero() && (t.oldest.IsZero() || target.AdmittedAt.Before(t.oldest)) {
			t.oldest = target.AdmittedAt
		}
	}
	return t
}

func newBoard() *board {
	return &board{
		tallies: newTallies(), ended: map[string]time.Time{}, pulse: &pulse{},
		loop: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skyhook_loop_seconds", Help: "Time one pass of the loop spends observing, deciding, applying and saying.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"part"}),
		reaction: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skyhook_reaction_seconds", Help: "Time from seeing that a stage's pod ended to creating the next pod on its node.",
			Buckets: []float64{.005, .01, .02, .03, .04, .05, .075, .1, .125, .15, .175, .2, .225, .25, .3, .4, .5, .75, 1, 2, 5},
		}),
	}
}

// Describe sends nothing: the gauges depend on what the cluster holds.
func (b *board) Describe(chan<- *prometheus.Desc) {}

// Collect sends the gauges of the last pass.
func (b *board) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	all, policies, groups, now := b.told, b.policies, b.groups, b.now
	b.mu.Unlock()
	p := poster{out: out}
	p.loop(b.pulse, now)
	p.budgets(groups)
	for _, t := range all {
		p.status(t)
		p.packages(t)
		p.rollout(policies, t)
		p.waiting(t)
		p.oldest(t, now)
	}
}

// register shows the board to a registry.
func (b *board) register(r prometheus.Registerer) error {
	for _, c := range append([]prometheus.Collector{b, b.loop, b.reaction}, b.all()...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// passed notes how long the parts of a pass took. Pods that ended before it began and after which it created nothing are
// followed by nothing that could be measured, unless something is still being sent to their node.
func (b *board) passed(began, observed, decided, applied, said time.Time, sending func(node string) bool) {
	b.mu.Lock()
	maps.DeleteFunc(b.ended, func(node string, at time.Time) bool { return at.Before(began) && !sending(node) })
	b.mu.Unlock()
	b.loop.WithLabelValues("observe").Observe(observed.Sub(began).Seconds())
	b.loop.WithLabelValues("decide").Observe(decided.Sub(observed).Seconds())
	b.loop.WithLabelValues("apply").Observe(applied.Sub(decided).Seconds())
	b.loop.WithLabelValues("say").Observe(said.Sub(applied).Seconds())
}

// podEnded notes that a stage's pod on a node has ended, and podCreated that the next one was created there.
func (b *board) podEnded(node string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, earlier := b.ended[node]; !earlier {
		b.ended[node] = now
	}
}

func (b *board) podCreated(node string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.ended[node]; ok {
		b.reaction.Observe(now.Sub(at).Seconds())
		delete(b.ended, node)
	}
}

// post shows what a pass found.
func (b *board) post(o *cluster.Objects, all []told, groups []rollout.GroupReport, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told, b.policies, b.groups, b.now = all, o.Policies, groups, now
}
