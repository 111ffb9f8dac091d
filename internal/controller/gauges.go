// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// The gauges. Dashboards rely on their names and labels.
var (
	gaugeStatus     = newGauge("skyhook_status", "1 for the status a Skyhook has, 0 for all others.", "skyhook_name", "status")
	gaugeNodeStatus = newGauge("skyhook_node_status_count", "Nodes of a Skyhook by status.", "skyhook_name", "status")
	gaugeNodeTarget = newGauge("skyhook_node_target_count", "Nodes a Skyhook selects.", "skyhook_name")
	gaugeState      = newGauge("skyhook_package_state_count", "Nodes by the state of a package.", "skyhook_name", "package_name", "package_version", "state")
	gaugeStage      = newGauge("skyhook_package_stage_count", "Nodes by the stage of a package.", "skyhook_name", "package_name", "package_version", "stage")
	gaugeRestarts   = newGauge("skyhook_package_restarts_count", "Restarts of a package's stages that nodes record now.", "skyhook_name", "package_name", "package_version")
	gaugeDrifted    = newGauge("skyhook_drifted_nodes", "Nodes on which a package is not as it was left.", "skyhook_name", "package_name")
	gaugeAnswers    = newGauge("skyhook_preflight_nodes", "Nodes by what a package said last that they need.", "skyhook_name", "package_name", "answer")
	gaugeWaiting    = newGauge("skyhook_waiting_nodes", "Nodes that owe work and do not work, by reason.", "skyhook_name", "reason")
	gaugeOldest     = newGauge("skyhook_oldest_admission_seconds", "Age of the oldest admission that has not ended; 0 for none.", "skyhook_name")
	gaugeUsed       = newGauge("skyhook_budget_used", "Seats of a group that are taken.", "group")
	gaugeAvailable  = newGauge("skyhook_budget_available", "Seats of a group that are free; +Inf without a budget.", "group")
	gaugeLeading    = newGauge("skyhook_leading", "1 when this process runs the loop.")
	gaugePass       = newGauge("skyhook_pass_running_seconds", "How long the present pass of the loop has taken; 0 between passes.")
)

func newGauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var statuses = []v1alpha1.Status{
	v1alpha1.StatusComplete, v1alpha1.StatusBlocked, v1alpha1.StatusWaiting, v1alpha1.StatusDisabled,
	v1alpha1.StatusPaused, v1alpha1.StatusInProgress, v1alpha1.StatusErroring, v1alpha1.StatusUnknown,
}

// gaugeWriter sends gauges to Prometheus.
type gaugeWriter struct{ out chan<- prometheus.Metric }

func (w gaugeWriter) write(d *prometheus.Desc, value int, labels ...string) {
	w.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (w gaugeWriter) writeStatus(t skyhookSample) {
	name := t.skyhook.Name
	for _, s := range statuses {
		w.write(gaugeStatus, boolToInt(t.status.Status == s), name, string(s))
		w.write(gaugeNodeStatus, int(t.status.NodeCounts[s]), name, string(s))
	}
	w.write(gaugeNodeTarget, int(t.status.NodesTotal), name)
}

func (w gaugeWriter) writePackages(t skyhookSample) {
	name := t.skyhook.Name
	for _, c := range t.packages {
		for _, s := range node.States {
			w.write(gaugeState, c.States[s], name, c.Name, c.Version, string(s))
		}
		for _, s := range node.Stages {
			w.write(gaugeStage, c.Stages[s], name, c.Name, c.Version, string(s))
		}
		w.write(gaugeRestarts, c.Restarts, name, c.Name, c.Version)
	}
	for _, pkg := range slices.Sorted(maps.Keys(t.drifted)) {
		w.write(gaugeDrifted, t.drifted[pkg], name, pkg)
	}
	for _, pkg := range slices.Sorted(maps.Keys(t.answers)) {
		for _, answer := range slices.Sorted(maps.Keys(t.answers[pkg])) {
			w.write(gaugeAnswers, t.answers[pkg][answer], name, pkg, answer)
		}
	}
}

func (w gaugeWriter) writeCompartments(policies []*v1alpha1.DeploymentPolicy, t skyhookSample) {
	policy := "legacy"
	if t.policy != "" {
		policy = t.policy
	}
	strategies := strategyNames(policies, t.policy)
	for _, c := range slices.Sorted(maps.Keys(t.status.CompartmentStatuses)) {
		s := t.status.CompartmentStatuses[c]
		strategy := strategies[c]
		if strategy == "" {
			strategy = "unknown"
		}
		sample := compartmentSample{int(s.Matched), int(s.Ceiling), int(s.InProgress), int(s.Completed), int(s.ProgressPercent), 1, 0, false}
		if b := s.BatchState; b != nil {
			sample.batch, sample.failures, sample.isStopped = int(b.CurrentBatch), int(b.ConsecutiveFailures), b.ShouldStop
		}
		w.writeCompartment(skyhookCompartments, sample, t.skyhook.Name, policy, c, strategy)
	}
}

// strategyNames names the strategy of each compartment.
func strategyNames(policies []*v1alpha1.DeploymentPolicy, policy string) map[string]string {
	if policy == "" {
		return map[string]string{v1alpha1.DefaultCompartment: "fixed"}
	}
	out := map[string]string{}
	for _, p := range policies {
		if p.Name != policy {
			continue
		}
		out[v1alpha1.DefaultCompartment] = strategyName(&p.Spec.Default.Strategy)
		for _, c := range p.Spec.Compartments {
			out[c.Name] = strategyName(c.Strategy)
		}
	}
	return out
}

func strategyName(s *v1alpha1.Strategy) string {
	switch {
	case s == nil:
		return "unknown"
	case s.Fixed != nil:
		return "fixed"
	case s.Linear != nil:
		return "linear"
	case s.Exponential != nil:
		return "exponential"
	}
	return "unknown"
}

// writeWaiting counts the nodes that wait, by reason. The list of reasons is fixed, so the number of series is bounded.
func (w gaugeWriter) writeWaiting(t skyhookSample) {
	for _, r := range slices.Sorted(maps.Keys(t.waiting)) {
		w.write(gaugeWaiting, t.waiting[r], t.skyhook.Name, string(r))
	}
}

// writeOldestAdmission writes the age of the oldest admission that has not ended.
func (w gaugeWriter) writeOldestAdmission(t skyhookSample, now time.Time) {
	age := time.Duration(0)
	if !t.oldestAdmission.IsZero() {
		age = max(0, now.Sub(t.oldestAdmission))
	}
	w.write(gaugeOldest, int(age.Seconds()), t.skyhook.Name)
}

// writeBudgets writes how much of each group's budget is used.
func (w gaugeWriter) writeBudgets(groups []rollout.GroupReport) {
	for _, g := range groups {
		name := g.Group.String()
		w.write(gaugeUsed, g.Busy, name)
		available := math.Inf(1)
		if g.Ceiling != rollout.Unlimited {
			available = float64(max(0, g.Ceiling-g.Busy))
		}
		w.out <- prometheus.MustNewConstMetric(gaugeAvailable, prometheus.GaugeValue, available, name)
	}
}

// writeLoop writes whether this process leads, and how long the current pass has taken.
func (w gaugeWriter) writeLoop(current *liveness, last time.Time) {
	w.write(gaugeLeading, boolToInt(!last.IsZero()))
	w.write(gaugePass, int(current.sinceStart(time.Now()).Seconds()))
}
