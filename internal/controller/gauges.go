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
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// The gauges. Names and labels are older than this program; dashboards know them.
var (
	gaugeStatus      = gauge("skyhook_status", "1 for the status a Skyhook has, 0 for all others.", "skyhook_name", "status")
	gaugeNodeStatus  = gauge("skyhook_node_status_count", "Nodes of a Skyhook by status.", "skyhook_name", "status")
	gaugeNodeTarget  = gauge("skyhook_node_target_count", "Nodes a Skyhook selects.", "skyhook_name")
	gaugeState       = gauge("skyhook_package_state_count", "Nodes by the state of a package.", "skyhook_name", "package_name", "package_version", "state")
	gaugeStage       = gauge("skyhook_package_stage_count", "Nodes by the stage of a package.", "skyhook_name", "package_name", "package_version", "stage")
	gaugeRestarts    = gauge("skyhook_package_restarts_count", "Restarts of a package's stages that nodes record now.", "skyhook_name", "package_name", "package_version")
	gaugeMatched     = compartment("skyhook_rollout_matched_nodes", "Nodes in a compartment.")
	gaugeCeiling     = compartment("skyhook_rollout_ceiling", "Nodes of a compartment that may be worked on at the same time.")
	gaugeInProgress  = compartment("skyhook_rollout_in_progress", "Nodes of a compartment that are worked on.")
	gaugeCompleted   = compartment("skyhook_rollout_completed", "Nodes of a compartment that are complete.")
	gaugeProgress    = compartment("skyhook_rollout_progress_percent", "Complete nodes of a compartment in percent.")
	gaugeBatch       = compartment("skyhook_rollout_current_batch", "Number of the batch; 0 before the first.")
	gaugeConsecutive = compartment("skyhook_rollout_consecutive_failures", "Failed batches in a row.")
	gaugeStop        = compartment("skyhook_rollout_should_stop", "1 when failures stopped the compartment.")
	gaugeWaiting     = gauge("skyhook_waiting_nodes", "Nodes that owe work and do not work, by reason.", "skyhook_name", "reason")
	gaugeOldest      = gauge("skyhook_oldest_admission_seconds", "Age of the oldest admission that has not ended; 0 for none.", "skyhook_name")
	gaugeUsed        = gauge("skyhook_budget_used", "Seats of a group that are taken.", "group")
	gaugeAvailable   = gauge("skyhook_budget_available", "Seats of a group that are free; +Inf without a budget.", "group")
	gaugeLeading     = gauge("skyhook_leading", "1 when this process runs the loop.")
	gaugePass        = gauge("skyhook_pass_running_seconds", "How long the present pass of the loop has taken; 0 between passes.")
)

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func compartment(name, help string) *prometheus.Desc {
	return gauge(name, help, "skyhook_name", "policy_name", "compartment_name", "strategy")
}

var statuses = []v1alpha1.Status{
	v1alpha1.StatusComplete, v1alpha1.StatusBlocked, v1alpha1.StatusWaiting, v1alpha1.StatusDisabled,
	v1alpha1.StatusPaused, v1alpha1.StatusInProgress, v1alpha1.StatusErroring, v1alpha1.StatusUnknown,
}

var states = []v1alpha1.State{
	v1alpha1.StateComplete, v1alpha1.StateInProgress, v1alpha1.StateSkipped, v1alpha1.StateErroring, v1alpha1.StateUnknown,
}

var stages = []v1alpha1.Stage{
	v1alpha1.StageUninstall, v1alpha1.StageUninstallInterrupt, v1alpha1.StageUpgrade, v1alpha1.StageApply,
	v1alpha1.StageConfig, v1alpha1.StageInterrupt, v1alpha1.StagePostInterrupt,
}

// poster sends gauges.
type poster struct{ out chan<- prometheus.Metric }

func (p poster) put(d *prometheus.Desc, value int, labels ...string) {
	p.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (p poster) status(t told) {
	name := t.skyhook.Name
	for _, s := range statuses {
		p.put(gaugeStatus, one(t.status.Status == s), name, string(s))
		p.put(gaugeNodeStatus, t.status.NodeCounts[s], name, string(s))
	}
	p.put(gaugeNodeTarget, t.status.NodesTotal, name)
}

func (p poster) packages(t told) {
	name := t.skyhook.Name
	for _, c := range t.tallies {
		for _, s := range states {
			p.put(gaugeState, c.States[s], name, c.Name, c.Version, string(s))
		}
		for _, s := range stages {
			p.put(gaugeStage, c.Stages[s], name, c.Name, c.Version, string(s))
		}
		p.put(gaugeRestarts, c.Restarts, name, c.Name, c.Version)
	}
}

func (p poster) rollout(policies []*v1alpha1.DeploymentPolicy, t told) {
	policy := "legacy"
	if t.skyhook.Spec.DeploymentPolicy != "" {
		policy = t.skyhook.Spec.DeploymentPolicy
	}
	strategies := strategiesOf(policies, t.skyhook)
	for _, c := range slices.Sorted(maps.Keys(t.status.CompartmentStatuses)) {
		s := t.status.CompartmentStatuses[c]
		strategy := strategies[c]
		if strategy == "" {
			strategy = "unknown"
		}
		labels := []string{t.skyhook.Name, policy, c, strategy}
		p.put(gaugeMatched, s.Matched, labels...)
		p.put(gaugeCeiling, s.Ceiling, labels...)
		p.put(gaugeInProgress, s.InProgress, labels...)
		p.put(gaugeCompleted, s.Completed, labels...)
		p.put(gaugeProgress, s.ProgressPercent, labels...)
		batch := v1alpha1.BatchState{}
		if s.BatchState != nil {
			batch = *s.BatchState
		}
		p.put(gaugeBatch, batch.CurrentBatch, labels...)
		p.put(gaugeConsecutive, batch.ConsecutiveFailures, labels...)
		p.put(gaugeStop, one(batch.ShouldStop), labels...)
	}
}

// strategiesOf names the strategy of each compartment.
func strategiesOf(policies []*v1alpha1.DeploymentPolicy, s *v1alpha1.Skyhook) map[string]string {
	if s.Spec.DeploymentPolicy == "" {
		return map[string]string{v1alpha1.DefaultCompartment: "fixed"}
	}
	out := map[string]string{}
	for _, p := range policies {
		if p.Name != s.Spec.DeploymentPolicy {
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

// waiting counts the nodes that do not work, by reason: a closed list, so the number of series is bounded.
func (p poster) waiting(t told) {
	for _, r := range slices.Sorted(maps.Keys(t.waiting)) {
		p.put(gaugeWaiting, t.waiting[r], t.skyhook.Name, string(r))
	}
}

// oldest is how long ago the longest admission began that has not ended.
func (p poster) oldest(t told, now time.Time) {
	age := time.Duration(0)
	if !t.oldest.IsZero() {
		age = max(0, now.Sub(t.oldest))
	}
	p.put(gaugeOldest, int(age.Seconds()), t.skyhook.Name)
}

// budgets are the seats of each group.
func (p poster) budgets(groups []rollout.GroupReport) {
	for _, g := range groups {
		name := g.Group.String()
		p.put(gaugeUsed, g.Busy, name)
		available := math.Inf(1)
		if g.Ceiling != rollout.Unlimited {
			available = float64(max(0, g.Ceiling-g.Busy))
		}
		p.out <- prometheus.MustNewConstMetric(gaugeAvailable, prometheus.GaugeValue, available, name)
	}
}

// loop says whether this process leads, and whether a pass hangs.
func (p poster) loop(pulse *pulse, last time.Time) {
	p.put(gaugeLeading, one(!last.IsZero()))
	p.put(gaugePass, int(pulse.running(time.Now()).Seconds()))
}
