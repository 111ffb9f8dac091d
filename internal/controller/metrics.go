// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// metricsCollector is what the metrics show. The gauges are those of the last pass and nothing else, so a series ends with the
// Skyhook, package, policy or compartment it is about, and every value is a sum over nodes.
type metricsCollector struct {
	counters
	phases   *prometheus.HistogramVec
	reaction prometheus.Histogram
	liveness *liveness

	mu       sync.Mutex
	policies []*v1alpha1.DeploymentPolicy // of the last pass
	samples  []skyhookSample
	groups   []rollout.GroupReport
	passedAt time.Time            // of it
	podEnds  map[string]time.Time // by node: when the end of a pod was seen that nothing followed yet
}

// skyhookSample is what a pass found about one Skyhook, summed up: what it was compiled from is as large as the cluster, and not
// kept until the next pass.
type skyhookSample struct {
	skyhook         *v1alpha1.Skyhook
	status          v1alpha1.SkyhookStatus
	packages        []skyhook.Tally
	waiting         map[rollout.Reason]int // nodes that do not work
	oldestAdmission time.Time              // when the admission began that has lasted longest; zero for none
}

func newSample(s *v1alpha1.Skyhook, by *skyhook.Compiled, status v1alpha1.SkyhookStatus, report rollout.Report) skyhookSample {
	t := skyhookSample{skyhook: s, status: status, packages: by.Tallies(), waiting: map[rollout.Reason]int{}}
	for _, v := range report.Verdicts {
		if v.Phase != rollout.PhaseFinished && v.Why.Reason != rollout.ReasonWorking {
			t.waiting[v.Why.Reason]++
		}
	}
	for i := range by.Rollout.Targets {
		if target := &by.Rollout.Targets[i]; target.Admitted && !target.AdmittedAt.IsZero() && (t.oldestAdmission.IsZero() || target.AdmittedAt.Before(t.oldestAdmission)) {
			t.oldestAdmission = target.AdmittedAt
		}
	}
	return t
}

func newMetricsCollector() *metricsCollector {
	return &metricsCollector{
		counters: newCounters(), podEnds: map[string]time.Time{}, liveness: &liveness{},
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
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
func (b *metricsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the gauges of the last pass.
func (b *metricsCollector) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	all, policies, groups, now := b.samples, b.policies, b.groups, b.passedAt
	b.mu.Unlock()
	p := gaugeWriter{out: out}
	p.writeLoop(b.liveness, now)
	p.writeBudgets(groups)
	for _, t := range all {
		p.writeStatus(t)
		p.writePackages(t)
		p.writeCompartments(policies, t)
		p.writeWaiting(t)
		p.writeOldestAdmission(t, now)
	}
}

// register shows the board to a registry.
func (b *metricsCollector) register(r prometheus.Registerer) error {
	for _, c := range append([]prometheus.Collector{b, b.phases, b.reaction}, b.collectors()...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// observePass notes how long the parts of a pass took. Pods that ended before it began and after which it created nothing are
// followed by nothing that could be measured, unless something is still being sent to their node.
func (b *metricsCollector) observePass(began, observed, decided, applied, said time.Time, sending func(node string) bool) {
	b.mu.Lock()
	maps.DeleteFunc(b.podEnds, func(node string, at time.Time) bool { return at.Before(began) && !sending(node) })
	b.mu.Unlock()
	b.phases.WithLabelValues("observe").Observe(observed.Sub(began).Seconds())
	b.phases.WithLabelValues("decide").Observe(decided.Sub(observed).Seconds())
	b.phases.WithLabelValues("apply").Observe(applied.Sub(decided).Seconds())
	b.phases.WithLabelValues("say").Observe(said.Sub(applied).Seconds())
}

// notePodEnd notes that a stage's pod on a node has ended, and podCreated that the next one was created there.
func (b *metricsCollector) notePodEnd(node string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, earlier := b.podEnds[node]; !earlier {
		b.podEnds[node] = now
	}
}

func (b *metricsCollector) notePodCreated(node string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.podEnds[node]; ok {
		b.reaction.Observe(now.Sub(at).Seconds())
		delete(b.podEnds, node)
	}
}

// publish shows what a pass found.
func (b *metricsCollector) publish(o *cluster.Objects, all []skyhookSample, groups []rollout.GroupReport, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples, b.policies, b.groups, b.passedAt = all, o.Policies, groups, now
}

// liveness tells how long the current pass has taken.
type liveness struct{ since atomic.Pointer[time.Time] }

func (l *liveness) passStarted(now time.Time) { l.since.Store(&now) }

func (l *liveness) passEnded() { l.since.Store(nil) }

// sinceStart is how long the current pass has taken; 0 between passes.
func (l *liveness) sinceStart(now time.Time) time.Duration {
	since := l.since.Load()
	if since == nil {
		return 0
	}
	return now.Sub(*since)
}
