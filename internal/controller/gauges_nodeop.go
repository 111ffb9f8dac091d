// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/upgrade"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxNodeOpSamples limits the NodeOps and NodeOpUpgrades with gauges: finished ones stay until somebody deletes them.
const maxNodeOpSamples = 200

// The gauges of NodeOps and NodeOpUpgrades.
var (
	gaugeOpPhase      = newNodeOpGauge("phase", "1 for the phase a NodeOp has, 0 for all others.", "phase")
	gaugeOpNodes      = newNodeOpGauge("nodes", "Nodes of a NodeOp by status.", "status")
	gaugeOpTarget     = newNodeOpGauge("target_nodes", "Nodes a NodeOp selects.")
	gaugeOpSuspended  = newNodeOpGauge("suspended", "1 while a NodeOp is suspended.")
	gaugeOpWaiting    = newNodeOpGauge("waiting_nodes", "Nodes of a NodeOp that owe work and do not work, by reason.", "reason")
	gaugeOpOldest     = newNodeOpGauge("oldest_admission_seconds", "Age of the oldest admission that has not ended; 0 for none.")
	gaugeUpgradePhase = newNodeOpGauge("upgrade_phase", "1 for the phase a NodeOpUpgrade has, 0 for all others.", "phase")

	nodeOpDrains       = newDrainGauges("skyhook_nodeop_", "a NodeOp", nodeOpLabels...)
	nodeOpCompartments = newCompartmentGauges("skyhook_nodeop_rollout_", "nodeop_namespace", "nodeop_name", "policy_name", "compartment_name")
)

// nodeOpLabels name a NodeOp. Prometheus itself sets namespace.
var nodeOpLabels = []string{"nodeop_namespace", "nodeop_name"}

var (
	phases        = []opv1.Phase{opv1.PhasePending, opv1.PhaseRunning, opv1.PhaseCompleted, opv1.PhaseFailed}
	upgradePhases = append([]opv1.Phase{opv1.PhaseInitializing}, phases...)
)

func newNodeOpGauge(name, help string, labels ...string) *prometheus.Desc {
	return newGauge("skyhook_nodeop_"+name, help, append(slices.Clone(nodeOpLabels), labels...)...)
}

// nodeOpSample sums up what a pass found about one NodeOp.
type nodeOpSample struct {
	op              *opv1.NodeOp
	status          opv1.NodeOpStatus
	waiting         map[rollout.Reason]int // nodes that wait
	oldestAdmission time.Time              // zero for none
	drains          drainSample
}

func newNodeOpSample(op *opv1.NodeOp, compiled *nodeop.Compiled, status opv1.NodeOpStatus, report rollout.Report) nodeOpSample {
	s := nodeOpSample{op: op, status: status, waiting: map[rollout.Reason]int{}, drains: newDrainSample(report)}
	if s.isFinished() {
		return s
	}
	for _, v := range report.Verdicts {
		if v.Phase != rollout.PhaseFinished && v.Why.Reason != rollout.ReasonWorking {
			s.waiting[v.Why.Reason]++
		}
	}
	s.oldestAdmission = findOldestAdmission(compiled.Rollout.Targets)
	return s
}

// findOldestAdmission returns the time of the oldest admission that has not ended; zero if there is none.
func findOldestAdmission(targets []*rollout.Target) (oldest time.Time) {
	for _, t := range targets {
		if t.Visit.Admitted && !t.Visit.AdmittedAt.IsZero() && (oldest.IsZero() || t.Visit.AdmittedAt.Before(oldest)) {
			oldest = t.Visit.AdmittedAt
		}
	}
	return oldest
}

func (s nodeOpSample) isFinished() bool {
	return s.status.Phase == opv1.PhaseCompleted || s.status.Phase == opv1.PhaseFailed
}

// limitSamples returns the samples of unfinished NodeOps, and of the youngest finished ones.
func limitSamples(all []nodeOpSample) []nodeOpSample {
	slices.SortStableFunc(all, func(a, b nodeOpSample) int {
		return cmp.Or(boolToInt(a.isFinished())-boolToInt(b.isFinished()), b.op.CreationTimestamp.Compare(a.op.CreationTimestamp.Time))
	})
	return all[:min(len(all), maxNodeOpSamples)]
}

// writeNodeOp writes the gauges of one NodeOp. Of a finished one only the outcome is left.
func (w gaugeWriter) writeNodeOp(s nodeOpSample, now time.Time) {
	labels := []string{s.op.Namespace, s.op.Name}
	with := func(more ...string) []string { return append(slices.Clone(labels), more...) }
	for _, p := range phases {
		w.write(gaugeOpPhase, boolToInt(s.status.Phase == p), with(string(p))...)
	}
	c := s.status.Counters
	waiting := max(0, c.Total-c.Completed-c.Failed-c.Skipped-c.InProgress)
	for _, n := range []struct {
		status string
		nodes  int32
	}{{"waiting", waiting}, {"in_progress", c.InProgress}, {"completed", c.Completed}, {"skipped", c.Skipped}, {"failed", c.Failed}} {
		w.write(gaugeOpNodes, int(n.nodes), with(n.status)...)
	}
	w.write(gaugeOpTarget, int(c.Total), labels...)
	if s.isFinished() {
		return
	}
	w.write(gaugeOpSuspended, boolToInt(s.op.Spec.Suspend != nil && *s.op.Spec.Suspend), labels...)
	for _, r := range slices.Sorted(maps.Keys(s.waiting)) {
		w.write(gaugeOpWaiting, s.waiting[r], with(string(r))...)
	}
	age := time.Duration(0)
	if !s.oldestAdmission.IsZero() {
		age = max(0, now.Sub(s.oldestAdmission))
	}
	w.write(gaugeOpOldest, int(age.Seconds()), labels...)
	w.writeDrains(nodeOpDrains, s.drains, now, labels...)
	w.writeNodeOpCompartments(s)
}

func (w gaugeWriter) writeNodeOpCompartments(s nodeOpSample) {
	policy := cmp.Or(s.op.Spec.DeploymentPolicy, "none")
	for _, name := range slices.Sorted(maps.Keys(s.status.CompartmentStatuses)) {
		c := s.status.CompartmentStatuses[name]
		sample := compartmentSample{int(c.Matched), int(c.Ceiling), int(c.InProgress), int(c.Completed), int(c.ProgressPercent), 1, 0, false}
		if b := c.BatchState; b != nil {
			sample.batch, sample.failures, sample.isStopped = int(b.CurrentBatch), int(b.ConsecutiveFailures), b.ShouldStop
		}
		w.writeCompartment(nodeOpCompartments, sample, s.op.Namespace, s.op.Name, policy, name)
	}
}

// writeUpgrades writes the phases of NodeOpUpgrades. Everything else about one is said of its NodeOp, which has its name.
func (w gaugeWriter) writeUpgrades(all []*opv1.NodeOpUpgrade) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b *opv1.NodeOpUpgrade) int {
		return cmp.Or(boolToInt(upgrade.IsFinished(a))-boolToInt(upgrade.IsFinished(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	for _, u := range sorted[:min(len(sorted), maxNodeOpSamples)] {
		for _, p := range upgradePhases {
			w.write(gaugeUpgradePhase, boolToInt(u.Status.Phase == p), u.Namespace, u.Name, string(p))
		}
	}
}
