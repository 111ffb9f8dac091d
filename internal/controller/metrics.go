// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// metricsCollector exports the operator's metrics. Its gauges are those of the last pass only, so a series ends with the
// Skyhook, package, policy or compartment it describes. Every value is a sum over nodes.
type metricsCollector struct {
	counters
	phases   *prometheus.HistogramVec
	reaction prometheus.Histogram
	request  prometheus.Histogram
	liveness *liveness

	mu       sync.Mutex
	policies []*v1alpha1.DeploymentPolicy // of the last pass
	samples  []skyhookSample
	nodeOps  []nodeOpSample
	upgrades []*opv1.NodeOpUpgrade
	groups   []rollout.GroupReport
	passedAt time.Time         // when it ended; zero before the first
	podEnds  map[string]podEnd // by node: when a stage's pod ended that no other pod followed yet
}

// skyhookSample sums up what a pass found about one Skyhook. What it was compiled from is as large as the cluster and is not
// kept.
type skyhookSample struct {
	skyhook         *v1alpha1.Skyhook
	policy          string // its DeploymentPolicy; empty for none
	status          v1alpha1.SkyhookStatus
	packages        []report.Tally
	drifted         map[string]int            // nodes on which a package drifted, by its name
	answers         map[string]map[string]int // nodes by what a package said that they need, by its name
	waiting         map[rollout.Reason]int    // nodes that wait
	oldestAdmission time.Time                 // zero for none
	drains          drainSample
}

func newSample(s *v1alpha1.Skyhook, compiled *skyhook.Compiled, status v1alpha1.SkyhookStatus, report rollout.Report) skyhookSample {
	t := skyhookSample{skyhook: s, policy: compiled.PolicyName(), status: status, packages: compiled.Tallies(), drifted: compiled.DriftedNodes(), answers: compiled.Answers(), waiting: map[rollout.Reason]int{}, drains: newDrainSample(report)}
	for _, v := range report.Verdicts {
		if v.Phase != rollout.PhaseFinished && v.Why.Reason != rollout.ReasonWorking {
			t.waiting[v.Why.Reason]++
		}
	}
	t.oldestAdmission = findOldestAdmission(compiled.Rollout.Targets)
	return t
}

// reactionBuckets are fine where the bounds are.
var reactionBuckets = []float64{.005, .01, .02, .03, .04, .05, .075, .1, .125, .15, .175, .2, .225, .25, .3, .4, .5, .75, 1, 2, 5}

// podEnd is when a stage's pod on a node ended.
type podEnd struct {
	at       time.Time
	isServed bool // a request for the node was made since
}

func newMetricsCollector() *metricsCollector {
	return &metricsCollector{
		counters: newCounters(), podEnds: map[string]podEnd{}, liveness: &liveness{},
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skyhook_loop_seconds", Help: "Time one pass of the loop spends observing, deciding, applying and saying.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"part"}),
		reaction: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skyhook_reaction_seconds", Help: "Time from seeing that a stage's pod ended to creating the next pod on its node.",
			Buckets: reactionBuckets,
		}),
		request: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skyhook_request_reaction_seconds", Help: "Time from seeing that a stage's pod ended to the next request for its node.",
			Buckets: reactionBuckets,
		}),
	}
}

// Describe sends nothing, because which series exist depends on the cluster.
func (m *metricsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the gauges of the last pass.
func (m *metricsCollector) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	all, policies, groups, now := m.samples, m.policies, m.groups, m.passedAt
	nodeOps, upgrades := m.nodeOps, m.upgrades
	m.mu.Unlock()
	p := gaugeWriter{out: out}
	p.writeLoop(m.liveness, now)
	p.writeBudgets(groups)
	for _, t := range all {
		p.writeStatus(t)
		p.writePackages(t)
		p.writeCompartments(policies, t)
		p.writeWaiting(t)
		p.writeOldestAdmission(t, now)
		p.writeDrains(skyhookDrains, t.drains, now, t.skyhook.Name)
	}
	for _, s := range nodeOps {
		p.writeNodeOp(s, now)
	}
	p.writeUpgrades(upgrades)
}

// registerAll registers all metrics.
func (m *metricsCollector) registerAll(r prometheus.Registerer) error {
	for _, c := range append([]prometheus.Collector{m, m.phases, m.reaction, m.request}, m.collectors()...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// newBuildInfo returns the metric that says which version runs.
func newBuildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skyhook_build_info", Help: "1; its labels say which version of the operator runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// observePass observes how long the phases of a pass took. It forgets pods that ended before the pass and after which it
// created none, unless writes to their node are in flight: there is no reaction to measure.
func (m *metricsCollector) observePass(began, observed, decided, applied, said time.Time, sending func(node string) bool) {
	m.mu.Lock()
	maps.DeleteFunc(m.podEnds, func(node string, end podEnd) bool { return end.at.Before(began) && !sending(node) })
	m.mu.Unlock()
	m.phases.WithLabelValues("observe").Observe(observed.Sub(began).Seconds())
	m.phases.WithLabelValues("decide").Observe(decided.Sub(observed).Seconds())
	m.phases.WithLabelValues("apply").Observe(applied.Sub(decided).Seconds())
	m.phases.WithLabelValues("say").Observe(said.Sub(applied).Seconds())
}

// notePodEnd notes that a stage's pod on a node has ended.
func (m *metricsCollector) notePodEnd(node string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, earlier := m.podEnds[node]; !earlier {
		m.podEnds[node] = podEnd{at: now}
	}
}

// noteRequest observes the time since a pod ended on a node, if a pass that saw that makes a request for it.
func (m *metricsCollector) noteRequest(node string, observed, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end, ok := m.podEnds[node]
	if !ok || end.isServed || observed.Before(end.at) {
		return
	}
	m.request.Observe(now.Sub(end.at).Seconds())
	end.isServed = true
	m.podEnds[node] = end
}

// awaitsRequest reports whether a pod ended on a node and no request was made for it since.
func (m *metricsCollector) awaitsRequest(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	end, ok := m.podEnds[node]
	return ok && !end.isServed
}

// notePodCreated observes the time since the pod before ended.
func (m *metricsCollector) notePodCreated(node string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if end, ok := m.podEnds[node]; ok {
		m.reaction.Observe(now.Sub(end.at).Seconds())
		delete(m.podEnds, node)
	}
}

// publish replaces the gauges by those of a pass.
func (m *metricsCollector) publish(o *cluster.Objects, all []skyhookSample, nodeOps []nodeOpSample, groups []rollout.GroupReport, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples, m.policies, m.groups, m.passedAt = all, o.Policies, groups, now
	m.nodeOps, m.upgrades = limitSamples(nodeOps), o.Upgrades
}

// liveness measures how long the current pass has taken.
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
