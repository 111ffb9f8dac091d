// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

var metricName = regexp.MustCompile(`skyhook_[a-z_]+`)

// labelNames match the pattern of metric names.
var labelNames = []string{"skyhook_name"}

// Every metric that the dashboard, the alerts and docs/metrics.md name exists, and docs/metrics.md names all.
func TestMonitoring(t *testing.T) {
	known := everyMetric(t)
	documented := map[string]bool{}
	for _, file := range []string{"../../chart/files/dashboards/skyhook.json", "../../chart/files/rules/skyhook.yaml", "../../docs/metrics.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(text), -1) {
			if name == labelNames[0] {
				continue
			}
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if cut, ok := strings.CutSuffix(name, suffix); ok && known[cut] {
					base = cut
				}
			}
			if !known[base] {
				t.Errorf("%s names %s, which the operator does not have", file, name)
			}
			if strings.HasSuffix(file, ".md") {
				documented[base] = true
			}
		}
	}
	for name := range known {
		if !documented[name] {
			t.Errorf("docs/metrics.md does not name %s", name)
		}
	}
}

// everyMetric lists the metrics of an operator in which everything happened once.
func everyMetric(t *testing.T) map[string]bool {
	t.Helper()
	b := newMetricsCollector()
	compiled, s := compileSkyhooks(1, 2)
	plan := engine.Decide(s)
	hook := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	one := newSample(hook, compiled[0], compiled[0].Status(plan.Reports[0], plan.Groups), plan.Reports[0])
	one.answers = map[string]map[string]int{"tuning": {"none": 1}}
	one.waiting[rollout.ReasonBudget], one.drains.left[rollout.ReasonPodLeaving] = 1, 1
	op := runningNodeOp(s.Now)
	b.publish(&cluster.Objects{Lists: cluster.Lists{Upgrades: []*opv1.NodeOpUpgrade{{}}}}, []skyhookSample{one}, []nodeOpSample{op}, plan.Groups, s.Now)
	b.nodeOpStages.WithLabelValues("command").Observe(1)
	b.nodeOpFailures.WithLabelValues("command", "StageFailed").Inc()
	b.stageDuration.WithLabelValues("apply").Observe(1)
	b.failures.WithLabelValues("apply", "StageFailed").Inc()
	b.nodeDuration.WithLabelValues("demo").Observe(1)
	b.countEviction(201)
	b.countPass(nil)
	b.actions.WithLabelValues("run").Inc()
	b.apiWrites.WithLabelValues("patch", "nodes").Inc()
	b.phases.WithLabelValues("apply").Observe(1)
	others := newOtherOperators("skyhook", record.NewFakeRecorder(1), logr.Discard())
	others.gauge.WithLabelValues("elsewhere").Set(1)
	others.since.WithLabelValues("elsewhere").Set(1)
	r := prometheus.NewRegistry()
	if err := errors.Join(b.registerAll(r), r.Register(newBuildInfo("v1.2.3")), r.Register(others.gauge), r.Register(others.since)); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range families {
		out[f.GetName()] = f.GetType() != dto.MetricType_UNTYPED
	}
	return out
}

// predecessorCounts are the gauges whose names end in _count because those of a predecessor do.
var predecessorCounts = []string{
	"skyhook_node_status_count", "skyhook_node_target_count", "skyhook_package_state_count", "skyhook_package_stage_count", "skyhook_package_restarts_count",
}

// TestMetricNames: no other name ends as the series of a histogram do.
func TestMetricNames(t *testing.T) {
	for name := range everyMetric(t) {
		if strings.HasSuffix(name, "_count") && !slices.Contains(predecessorCounts, name) {
			t.Errorf("%s is no part of a histogram: name what it counts, as skyhook_nodeop_nodes does", name)
		}
	}
}

// TestBuildInfo: one series says which version runs.
func TestBuildInfo(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(newBuildInfo("v1.2.3"))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, l := range families[0].GetMetric()[0].GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["version"] != "v1.2.3" || labels["goversion"] != runtime.Version() {
		t.Errorf("skyhook_build_info has the labels %v", labels)
	}
}
