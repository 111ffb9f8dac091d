// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// counters count what was done. No label holds the name of a node, a pod or a package, so that the number of series does not
// grow with the cluster.
type counters struct {
	actions       *prometheus.CounterVec
	stageDuration *prometheus.HistogramVec
	failures      *prometheus.CounterVec
	reboots       prometheus.Counter
	nodeDuration  *prometheus.HistogramVec
	evictions     *prometheus.CounterVec

	nodeOpStages   *prometheus.HistogramVec
	nodeOpFailures *prometheus.CounterVec
	nodeOpNodes    prometheus.Histogram

	apiWrites *prometheus.CounterVec
	passes    *prometheus.CounterVec
}

func newCounters() counters {
	long := []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200}
	return counters{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skyhook_actions_total", Help: "Actions carried out, by verb.",
		}, []string{"verb"}),
		stageDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skyhook_stage_duration_seconds", Help: "Time from the start of a stage's pod to its recorded success, by stage.", Buckets: long,
		}, []string{"stage"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skyhook_stage_failures_total", Help: "Failed attempts that were recorded, by stage and reason.",
		}, []string{"stage", "reason"}),
		reboots: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skyhook_reboots_total", Help: "Reboots that were asked for and proven.",
		}),
		nodeDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skyhook_node_duration_seconds", Help: "Time from a node's admission until it was given back, by Skyhook.", Buckets: []float64{60, 300, 900, 1800, 3600, 7200, 14400},
		}, []string{"skyhook_name"}),
		nodeOpStages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skyhook_nodeop_stage_duration_seconds", Help: "Time from the start of a NodeOp's check, command or reboot on a node to its recorded success, by stage.", Buckets: long,
		}, []string{"stage"}),
		nodeOpFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skyhook_nodeop_stage_failures_total", Help: "Failures of checks, commands and reboots of NodeOps that were recorded, by stage and reason.",
		}, []string{"stage", "reason"}),
		nodeOpNodes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skyhook_nodeop_node_duration_seconds", Help: "Time from a node's admission by a NodeOp until it was given back.", Buckets: []float64{60, 300, 900, 1800, 3600, 7200, 14400},
		}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skyhook_evictions_total", Help: "Evictions asked for, by outcome: accepted, refused, gone or error.",
		}, []string{"outcome"}),
		apiWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skyhook_api_writes_total", Help: "Write requests sent to the API server.",
		}, []string{"verb", "resource"}),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skyhook_passes_total", Help: "Passes of the loop, by result: ok or error.",
		}, []string{"result"}),
	}
}

func (t counters) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.actions, t.stageDuration, t.failures, t.reboots, t.nodeDuration, t.evictions, t.apiWrites, t.passes, t.nodeOpStages, t.nodeOpFailures, t.nodeOpNodes}
}

// countActions counts actions that were applied, how long stages and nodes took, and what failed.
func (t counters) countActions(d cluster.AppliedActions) {
	t.countOutcomes(d.From.Skyhooks, d.From.Snapshot, d.Actions)
}

func (t counters) countOutcomes(by map[rollout.Ref]*skyhook.Compiled, s rollout.Snapshot, done []rollout.Action) {
	for _, a := range done {
		t.actions.WithLabelValues(string(a.Verb)).Inc()
		if a.Verb != rollout.VerbRetire && a.Verb != rollout.VerbRecord {
			continue
		}
		target, c := admittedTarget(s, a), by[a.Rollout]
		if target != nil && a.Rollout.Kind == nodeop.Kind {
			t.countNodeOp(target, a, s.Now)
		}
		if target == nil || c == nil {
			continue
		}
		switch a.Verb {
		case rollout.VerbRetire:
			if !target.Visit.AdmittedAt.IsZero() && !a.Skip && !a.Postpone {
				t.nodeDuration.WithLabelValues(c.Skyhook()).Observe(s.Now.Sub(target.Visit.AdmittedAt).Seconds())
			}
		case rollout.VerbRecord:
			t.countRecord(c, target, a, s.Now)
		}
	}
}

// admittedTarget finds the target of an action; nil if it was not admitted. It searches, because few actions are counted at a time.
func admittedTarget(s rollout.Snapshot, a rollout.Action) *rollout.Target {
	for i := range s.Rollouts {
		if s.Rollouts[i].Ref != a.Rollout {
			continue
		}
		targets := s.Rollouts[i].Targets
		if at := slices.IndexFunc(targets, func(t *rollout.Target) bool { return t.Visit.Admitted && t.Node == a.Node }); at >= 0 {
			return targets[at]
		}
	}
	return nil
}

func (t counters) countRecord(c *skyhook.Compiled, target *rollout.Target, a rollout.Action, now time.Time) {
	if stage, isOver := report.StageOf(a.Task), a.State == rollout.StateDone && a.Object != "" && !a.Why.Since.IsZero(); isOver && stage != "" {
		t.stageDuration.WithLabelValues(string(stage)).Observe(a.Took.Seconds()) // its pod has gone on already
		return
	}
	purpose, ok := c.Purpose(a.Node, a.Task)
	if !ok {
		return
	}
	switch a.State {
	case rollout.StateFailing:
		t.failures.WithLabelValues(string(purpose.Stage), string(a.Why.Reason)).Inc()
	case rollout.StateDone:
		for i := range target.Tasks {
			if k := &target.Tasks[i]; k.ID == a.Task && !k.Attempts.Started.IsZero() && k.Object.Name != "" {
				t.stageDuration.WithLabelValues(string(purpose.Stage)).Observe(max(0, endOf(k, now).Sub(k.Attempts.Started).Seconds())) // Started is by another clock
				if k.Need == rollout.NeedAlone && purpose.Interrupt != nil && purpose.Interrupt.Type == v1alpha1.InterruptReboot {
					t.reboots.Inc()
				}
			}
		}
	}
}

// endOf returns when a task that is recorded now has ended. That is by the clock of its node, so no more than a record may wait.
func endOf(k *rollout.Task, now time.Time) time.Time {
	if k.Attempts.Ended.IsZero() || k.Attempts.Ended.After(now) {
		return now
	}
	return rollout.LaterOf(k.Attempts.Ended, now.Add(-cluster.MaxUnrecorded))
}

// countNodeOp counts how long the stages of a NodeOp and its nodes took, and what failed.
func (t counters) countNodeOp(target *rollout.Target, a rollout.Action, now time.Time) {
	at := slices.IndexFunc(target.Tasks, func(k rollout.Task) bool { return k.ID == a.Task })
	switch {
	case a.Verb == rollout.VerbRetire && !a.Skip && !a.Postpone && !target.Visit.AdmittedAt.IsZero():
		t.nodeOpNodes.Observe(max(0, now.Sub(target.Visit.AdmittedAt).Seconds()))
	case a.Verb != rollout.VerbRecord || at < 0:
	case a.State == rollout.StateFailing:
		t.nodeOpFailures.WithLabelValues(a.Task, string(a.Why.Reason)).Inc()
	case a.State == rollout.StateDone:
		k := &target.Tasks[at]
		if !k.Attempts.Started.IsZero() && k.Object.Name != "" {
			t.nodeOpStages.WithLabelValues(a.Task).Observe(max(0, now.Sub(k.Attempts.Started).Seconds())) // Started is by another clock
		}
		if a.Task == nodeop.TaskReboot {
			t.reboots.Inc()
		}
	}
}

// countEviction counts an eviction by the HTTP status of its response.
func (t counters) countEviction(status int) {
	outcome := "error"
	switch {
	case status < 300:
		outcome = "accepted"
	case status == 404 || status == 409:
		outcome = "gone"
	case status >= 400 && status <= 500:
		outcome = "refused"
	}
	t.evictions.WithLabelValues(outcome).Inc()
}

// countPass counts a pass.
func (t counters) countPass(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	t.passes.WithLabelValues(result).Inc()
}
