// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// nonZeroSeries are the series of a registry that are not zero, each with its value; of a histogram its sum and count.
func nonZeroSeries(t *testing.T, r *prometheus.Registry) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			text := fmt.Sprint(value)
			if h := m.GetHistogram(); f.GetType() == dto.MetricType_HISTOGRAM {
				value, text = float64(h.GetSampleCount()), fmt.Sprintf("%g in %d", h.GetSampleSum(), h.GetSampleCount())
			}
			if value != 0 {
				out = append(out, fmt.Sprintf("%s{%s} %s", f.GetName(), strings.Join(labels, ","), text))
			}
		}
	}
	return out
}

// stoppedSample is the sample of a Skyhook whose compartment stopped in its third batch.
func stoppedSample(now time.Time) skyhookSample {
	return skyhookSample{
		skyhook: &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo"}, Spec: v1alpha1.SkyhookSpec{DeploymentPolicy: "canary"}},
		policy:  "canary",
		status: v1alpha1.SkyhookStatus{
			Status: v1alpha1.StatusErroring, NodesTotal: 9,
			NodeCounts: map[v1alpha1.Status]int32{v1alpha1.StatusComplete: 4, v1alpha1.StatusErroring: 3, v1alpha1.StatusWaiting: 2},
			CompartmentStatuses: map[string]v1alpha1.CompartmentStatus{
				"gpu": {Matched: 9, Ceiling: 3, InProgress: 3, Completed: 4, ProgressPercent: 44, BatchState: &v1alpha1.BatchState{
					CurrentBatch: 3, ConsecutiveFailures: 2, ShouldStop: true}},
				v1alpha1.DefaultCompartment: {Ceiling: 1},
			},
		},
		packages: []report.Tally{{
			Name: "tuning", Version: "1.1.0", Restarts: 7,
			States: map[v1alpha1.State]int{v1alpha1.StateComplete: 4, v1alpha1.StateErroring: 5},
			Stages: map[v1alpha1.Stage]int{v1alpha1.StageConfig: 3, v1alpha1.StagePostInterrupt: 6},
		}},
		drifted:         map[string]int{"tuning": 2},
		answers:         map[string]map[string]int{"tuning": {"none": 6, "wrong": 1}},
		waiting:         map[rollout.Reason]int{rollout.ReasonStopped: 2, rollout.ReasonStageFailed: 3},
		oldestAdmission: now.Add(-90 * time.Second),
		drains: newDrainSample(rollout.Report{Draining: []rollout.Drained{
			{Since: now.Add(-70 * time.Second), All: 5, Waiting: []rollout.PodCount{{Reason: rollout.ReasonPodLeaving, Pods: 3}}},
			{Since: now.Add(-80 * time.Second), All: 2, Waiting: []rollout.PodCount{{Reason: rollout.ReasonProtectedPod, Pods: 1}, {Reason: rollout.ReasonPodLeaving, Pods: 1}}},
		}}),
	}
}

// runningNodeOp is the sample of a NodeOp whose compartment stopped, and finishedNodeOp that of one that has ended.
func runningNodeOp(now time.Time) nodeOpSample {
	suspend := true
	return nodeOpSample{
		op: &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "up"}, Spec: opv1.NodeOpSpec{DeploymentPolicy: "canary", Suspend: &suspend}},
		status: opv1.NodeOpStatus{
			Phase: opv1.PhaseRunning, Counters: opv1.Counters{Total: 20, Completed: 1, Failed: 2, Skipped: 3, InProgress: 4},
			CompartmentStatuses: map[string]v1alpha1.CompartmentStatus{"gpu": {Matched: 9, Ceiling: 3, InProgress: 2, Completed: 4, ProgressPercent: 44, BatchState: &v1alpha1.BatchState{
				CurrentBatch: 5, ConsecutiveFailures: 2, ShouldStop: true}}},
		},
		waiting: map[rollout.Reason]int{rollout.ReasonBudget: 10}, oldestAdmission: now.Add(-30 * time.Second),
		drains: newDrainSample(rollout.Report{Draining: []rollout.Drained{{Since: now.Add(-20 * time.Second), All: 6, Waiting: []rollout.PodCount{{Reason: rollout.ReasonPodLeaving, Pods: 4}}}}}),
	}
}

func finishedNodeOp() nodeOpSample {
	return nodeOpSample{op: &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "done"}}, status: opv1.NodeOpStatus{Phase: opv1.PhaseFailed, Counters: opv1.Counters{Total: 2, Failed: 2}}}
}

// TestSampleNamesPolicy shows that the metrics of a Skyhook have the name of its policy, the default one too.
func TestSampleNamesPolicy(t *testing.T) {
	for _, c := range []struct{ named, byDefault, want string }{{"", "", ""}, {"canary", "fleet", "canary"}, {"", "fleet", "fleet"}} {
		hook := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo"}, Spec: v1alpha1.SkyhookSpec{DeploymentPolicy: c.named}}
		compiled := skyhook.Compile(&plan.Input{Skyhook: hook, Config: plan.Config{DefaultPolicy: c.byDefault}})
		if got := newSample(hook, compiled, v1alpha1.SkyhookStatus{}, rollout.Report{}).policy; got != c.want {
			t.Errorf("policy %q with the default %q: %q", c.named, c.byDefault, got)
		}
	}
}

// Every gauge has the value of the last pass, under the labels that docs/metrics.md names; every counter and histogram has
// the sum of its observations.
func TestEveryMetricHasItsValue(t *testing.T) {
	now := time.Unix(100_000, 0)
	b := newMetricsCollector()
	r := prometheus.NewRegistry()
	if err := b.registerAll(r); err != nil {
		t.Fatal(err)
	}
	if got := nonZeroSeries(t, r); len(got) > 0 {
		t.Errorf("before the first pass there is %v", got)
	}
	policy := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "canary"}}
	policy.Spec.Compartments = []v1alpha1.Compartment{{Name: "gpu"}}
	policy.Spec.Compartments[0].Strategy = &v1alpha1.Strategy{Linear: &v1alpha1.LinearStrategy{}}
	upgrade := &opv1.NodeOpUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "up"}, Status: opv1.NodeOpUpgradeStatus{Phase: opv1.PhaseInitializing}}
	b.publish(&cluster.Objects{Lists: cluster.Lists{Policies: []*v1alpha1.DeploymentPolicy{policy}, Upgrades: []*opv1.NodeOpUpgrade{upgrade}}}, []skyhookSample{stoppedSample(now)}, []nodeOpSample{finishedNodeOp(), runningNodeOp(now)}, []rollout.GroupReport{
		{Group: rollout.ParseGroupRef("Skyhook/demo/gpu"), Ceiling: 3, Busy: 2}, {Group: rollout.ParseGroupRef("over"), Ceiling: 1, Busy: 4}, {Group: rollout.ParseGroupRef("unlimited"), Ceiling: rollout.Unlimited, Busy: 5},
	}, now)
	b.liveness.passStarted(time.Now().Add(-5 * time.Minute))
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	b.observePass(now, at(250), at(750), at(1750), at(3750), func(string) bool { return false })
	b.notePodEnd("n1", at(0))
	b.noteRequest("n1", at(100), at(250))
	b.notePodCreated("n1", at(500))
	b.countPass(nil)
	b.countPass(nil)
	b.countPass(errors.New("some error"))
	b.actions.WithLabelValues("run").Add(4)
	b.stageDuration.WithLabelValues("apply").Observe(30)
	b.failures.WithLabelValues("config", "StageFailed").Inc()
	b.nodeDuration.WithLabelValues("demo").Observe(600)
	b.reboots.Inc()
	b.nodeOpStages.WithLabelValues("command").Observe(12)
	b.nodeOpFailures.WithLabelValues("command", "StageFailed").Inc()
	b.nodeOpNodes.Observe(70)
	b.answer(t, http.MethodGet, "/api/v1/nodes", 200)
	b.answer(t, http.MethodPatch, "/api/v1/nodes/n1", 200)
	b.answer(t, http.MethodPatch, "/api/v1/nodes/n2", 409)
	for _, status := range []int{201, 201, 429, 500, 404, 503} {
		b.answer(t, http.MethodPost, "/api/v1/namespaces/shop/pods/web/eviction", status)
	}
	got := slices.DeleteFunc(nonZeroSeries(t, r), func(line string) bool { // it grows meanwhile
		return strings.HasPrefix(line, "skyhook_pass_running_seconds{} 30")
	})
	if diff := cmp.Diff(everyValue, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	covered := strings.Join(everyValue, "\n") + "\nskyhook_pass_running_seconds{\nskyhook_other_operator{\nskyhook_other_operator_since_seconds{\nskyhook_build_info{" // the others by TestOtherOperator and TestBuildInfo
	for name := range everyMetric(t) {
		if !strings.Contains(covered, name+"{") {
			t.Errorf("no value of %s is tested", name)
		}
	}
	b.liveness.passEnded()
	for _, line := range nonZeroSeries(t, r) {
		if strings.HasPrefix(line, "skyhook_pass_running_seconds") {
			t.Errorf("between passes there is %s", line)
		}
	}
}

// answer sends a request through the counting transport, to which the API server responds with a status.
func (b *metricsCollector) answer(t *testing.T, method, path string, status int) {
	t.Helper()
	server := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
	})
	r, err := http.NewRequestWithContext(t.Context(), method, "https://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := countingTransport{next: server, writes: b.apiWrites, onEviction: b.countEviction}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var everyValue = []string{
	"skyhook_actions_total{run} 4",
	"skyhook_api_writes_total{nodes,patch} 2",
	"skyhook_api_writes_total{pods/eviction,post} 6",
	"skyhook_budget_available{Skyhook/demo/gpu} 1",
	"skyhook_budget_available{unlimited} +Inf",
	"skyhook_budget_used{Skyhook/demo/gpu} 2",
	"skyhook_budget_used{over} 4",
	"skyhook_budget_used{unlimited} 5",
	"skyhook_drain_pods{demo} 7",
	"skyhook_drain_pods_left{PodLeaving,demo} 4",
	"skyhook_drain_pods_left{ProtectedPod,demo} 1",
	"skyhook_draining_nodes{demo} 2",
	"skyhook_drifted_nodes{tuning,demo} 2",
	"skyhook_evictions_total{accepted} 2",
	"skyhook_evictions_total{error} 1",
	"skyhook_evictions_total{gone} 1",
	"skyhook_evictions_total{refused} 2",
	"skyhook_leading{} 1",
	"skyhook_loop_seconds{apply} 1 in 1",
	"skyhook_loop_seconds{decide} 0.5 in 1",
	"skyhook_loop_seconds{observe} 0.25 in 1",
	"skyhook_loop_seconds{say} 2 in 1",
	"skyhook_node_duration_seconds{demo} 600 in 1",
	"skyhook_node_status_count{demo,complete} 4",
	"skyhook_node_status_count{demo,erroring} 3",
	"skyhook_node_status_count{demo,waiting} 2",
	"skyhook_node_target_count{demo} 9",
	"skyhook_nodeop_drain_pods{up,ops} 6",
	"skyhook_nodeop_drain_pods_left{up,ops,PodLeaving} 4",
	"skyhook_nodeop_draining_nodes{up,ops} 1",
	"skyhook_nodeop_node_duration_seconds{} 70 in 1",
	"skyhook_nodeop_nodes{done,ops,failed} 2",
	"skyhook_nodeop_nodes{up,ops,completed} 1",
	"skyhook_nodeop_nodes{up,ops,failed} 2",
	"skyhook_nodeop_nodes{up,ops,in_progress} 4",
	"skyhook_nodeop_nodes{up,ops,skipped} 3",
	"skyhook_nodeop_nodes{up,ops,waiting} 10",
	"skyhook_nodeop_oldest_admission_seconds{up,ops} 30",
	"skyhook_nodeop_oldest_drain_seconds{up,ops} 20",
	"skyhook_nodeop_phase{done,ops,Failed} 1",
	"skyhook_nodeop_phase{up,ops,Running} 1",
	"skyhook_nodeop_rollout_ceiling{gpu,up,ops,canary} 3",
	"skyhook_nodeop_rollout_completed{gpu,up,ops,canary} 4",
	"skyhook_nodeop_rollout_consecutive_failures{gpu,up,ops,canary} 2",
	"skyhook_nodeop_rollout_current_batch{gpu,up,ops,canary} 5",
	"skyhook_nodeop_rollout_in_progress{gpu,up,ops,canary} 2",
	"skyhook_nodeop_rollout_matched_nodes{gpu,up,ops,canary} 9",
	"skyhook_nodeop_rollout_progress_percent{gpu,up,ops,canary} 44",
	"skyhook_nodeop_rollout_should_stop{gpu,up,ops,canary} 1",
	"skyhook_nodeop_stage_duration_seconds{command} 12 in 1",
	"skyhook_nodeop_stage_failures_total{StageFailed,command} 1",
	"skyhook_nodeop_suspended{up,ops} 1",
	"skyhook_nodeop_target_nodes{done,ops} 2",
	"skyhook_nodeop_target_nodes{up,ops} 20",
	"skyhook_nodeop_upgrade_phase{up,ops,Initializing} 1",
	"skyhook_nodeop_waiting_nodes{up,ops,Budget} 10",
	"skyhook_oldest_admission_seconds{demo} 90",
	"skyhook_oldest_drain_seconds{demo} 80",
	"skyhook_package_restarts_count{tuning,1.1.0,demo} 7",
	"skyhook_package_stage_count{tuning,1.1.0,demo,config} 3",
	"skyhook_package_stage_count{tuning,1.1.0,demo,post-interrupt} 6",
	"skyhook_package_state_count{tuning,1.1.0,demo,complete} 4",
	"skyhook_package_state_count{tuning,1.1.0,demo,erroring} 5",
	"skyhook_passes_total{error} 1",
	"skyhook_passes_total{ok} 2",
	"skyhook_preflight_nodes{none,tuning,demo} 6",
	"skyhook_preflight_nodes{wrong,tuning,demo} 1",
	"skyhook_reaction_seconds{} 0.5 in 1",
	"skyhook_reboots_total{} 1",
	"skyhook_request_reaction_seconds{} 0.25 in 1",
	"skyhook_rollout_ceiling{__default__,canary,demo,unknown} 1",
	"skyhook_rollout_ceiling{gpu,canary,demo,linear} 3",
	"skyhook_rollout_completed{gpu,canary,demo,linear} 4",
	"skyhook_rollout_consecutive_failures{gpu,canary,demo,linear} 2",
	"skyhook_rollout_current_batch{__default__,canary,demo,unknown} 1",
	"skyhook_rollout_current_batch{gpu,canary,demo,linear} 3",
	"skyhook_rollout_in_progress{gpu,canary,demo,linear} 3",
	"skyhook_rollout_matched_nodes{gpu,canary,demo,linear} 9",
	"skyhook_rollout_progress_percent{gpu,canary,demo,linear} 44",
	"skyhook_rollout_should_stop{gpu,canary,demo,linear} 1",
	"skyhook_stage_duration_seconds{apply} 30 in 1",
	"skyhook_stage_failures_total{StageFailed,config} 1",
	"skyhook_status{demo,erroring} 1",
	"skyhook_waiting_nodes{StageFailed,demo} 3",
	"skyhook_waiting_nodes{Stopped,demo} 2",
}
