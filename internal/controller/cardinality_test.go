// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// compileSkyhooks compiles Skyhooks of five packages each on a number of nodes.
func compileSkyhooks(hooks, nodes int) (all []*skyhook.Compiled, s rollout.Snapshot) {
	var list []*node.Node
	for i := range nodes {
		list = append(list, node.Parse(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{"pool": "gpu"}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, nil))
		s.Nodes = append(s.Nodes, rollout.Node{Name: list[i].Name, UID: list[i].UID, Ready: true, Known: true})
	}
	s.Now = time.Unix(1000, 0)
	for h := range hooks {
		packages := map[string]v1alpha1.Package{}
		for p := range 5 {
			packages[fmt.Sprintf("p%d", p)] = v1alpha1.Package{Version: "1.0.0", Image: "registry.example/p", Interrupt: &v1alpha1.Interrupt{Type: v1alpha1.InterruptReboot}}
		}
		hook := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hook%d", h), UID: types.UID(fmt.Sprint("h", h))}}
		hook.Spec.Packages, hook.Spec.Drift = packages, &v1alpha1.Drift{}
		c := skyhook.Compile(&plan.Input{Skyhook: hook, Nodes: list, Now: s.Now, Config: plan.Config{Namespace: "skyhook"}})
		s.Rollouts, s.Groups, s.Ledgers = append(s.Rollouts, c.Rollout), append(s.Groups, c.Groups...), append(s.Ledgers, c.Ledger)
		all = append(all, c)
	}
	return all, s
}

// The number of series depends on Skyhooks, packages, compartments and fixed lists, not on nodes: 5,000 nodes have the same
// as 100. Even if each Skyhook waited for every reason and every counter had every label, there are at most 2,190.
func TestCardinality(t *testing.T) {
	small, large := everySeries(t, 100), everySeries(t, 5000)
	if diff := cmp.Diff(small, large); diff != "" {
		t.Errorf("the series depend on the number of nodes (-100 +5,000)\n%s", diff)
	}
	if len(large) > 2190 {
		t.Errorf("%d series for 10 Skyhooks of 5 packages on 5,000 nodes, want at most 2,190", len(large))
	}
}

// everySeries lists the series that 10 Skyhooks of 5 packages can cause on a number of nodes.
func everySeries(t *testing.T, nodes int) []string {
	t.Helper()
	b := newMetricsCollector()
	compiled, s := compileSkyhooks(10, nodes)
	plan := engine.Decide(s)
	reasons := words(t, "../rollout/reason.go", `Reason = "([A-Za-z]+)"`)
	var all []skyhookSample
	for i, c := range compiled {
		hook := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: c.Skyhook()}}
		one := newSample(hook, c, c.Status(plan.Reports[i], plan.Groups), plan.Reports[i])
		for reason := range one.waiting {
			if !slices.Contains(reasons, string(reason)) {
				t.Errorf("%q is no reason of the closed list", reason)
			}
		}
		for _, reason := range reasons {
			one.waiting[rollout.Reason(reason)]++
		}
		for _, reason := range drainReasons {
			one.drains.left[reason]++
		}
		all = append(all, one)
		b.nodeDuration.WithLabelValues(hook.Name).Observe(1)
	}
	b.publish(&cluster.Objects{}, all, nil, plan.Groups, s.Now)
	for _, stage := range node.Stages {
		b.stageDuration.WithLabelValues(string(stage)).Observe(1)
		for _, reason := range []rollout.Reason{
			rollout.ReasonStageFailed, rollout.ReasonDeadline, rollout.ReasonImagePull, rollout.ReasonKubeletRejected,
			rollout.ReasonPodLost, rollout.ReasonRetry, rollout.ReasonRebootNotStarted, rollout.ReasonRebootTimeout,
		} {
			b.failures.WithLabelValues(string(stage), string(reason)).Inc()
		}
	}
	for _, verb := range words(t, "../rollout/plan.go", `Verb = "([a-z]+)"`) {
		b.actions.WithLabelValues(verb).Inc()
	}
	for _, status := range []int{201, 404, 429, 503} {
		b.countEviction(status)
	}
	b.countPass(nil)
	b.countPass(errors.New("some error"))
	b.observePass(s.Now, s.Now, s.Now, s.Now, s.Now, func(string) bool { return false })
	writes(t, b)
	return series(t, b)
}

// TestNodeOpCardinality shows that the series of NodeOps do not grow with NodeOps that have ended: unfinished ones come first, then the
// youngest finished ones.
func TestNodeOpCardinality(t *testing.T) {
	now := time.Unix(100_000, 0)
	count := func(finished int) (samples []nodeOpSample, n int) {
		b := newMetricsCollector()
		for i := range finished {
			s := finishedNodeOp()
			s.op.Name, s.op.CreationTimestamp = fmt.Sprint("done-", i), metav1.NewTime(now.Add(time.Duration(i)*time.Second))
			samples = append(samples, s)
		}
		samples = append(samples, runningNodeOp(now))
		b.publish(&cluster.Objects{}, nil, samples, nil, now)
		for _, line := range series(t, b) {
			if strings.HasPrefix(line, "skyhook_nodeop_") {
				n++
			}
		}
		return b.nodeOps, n
	}
	few, n := count(maxNodeOpSamples - 1)
	many, m := count(5 * maxNodeOpSamples)
	if n != m || len(few) != maxNodeOpSamples || len(many) != maxNodeOpSamples {
		t.Errorf("%d series of %d NodeOps, and %d of %d", n, len(few), m, len(many))
	}
	if many[0].op.Name != "up" || many[1].op.Name != fmt.Sprint("done-", 5*maxNodeOpSamples-1) {
		t.Errorf("the first are %s and %s", many[0].op.Name, many[1].op.Name)
	}
}

// TestNodeOpCounters shows that stages of NodeOps are counted when they end, with their duration, and reboots with those of Skyhooks.
func TestNodeOpCounters(t *testing.T) {
	now := time.Unix(1000, 0)
	ref := rollout.ParseRef("NodeOp/ops/up")
	task := func(id string) rollout.Task {
		return rollout.Task{ID: id, Object: rollout.TaskObject{Name: id}, Attempts: rollout.Attempts{Started: now.Add(-time.Minute)}}
	}
	s := rollout.Snapshot{Now: now, Rollouts: []rollout.Rollout{{Ref: ref, Targets: []*rollout.Target{
		{Node: "n1", Visit: rollout.Visit{Admitted: true, AdmittedAt: now.Add(-time.Hour)}, Tasks: []rollout.Task{task("command"), task("reboot")}},
	}}}}
	b := newMetricsCollector()
	record := func(task string, state rollout.State) rollout.Action {
		return rollout.Action{Verb: rollout.VerbRecord, Rollout: ref, Node: "n1", Task: task, State: state, Why: rollout.Why{Reason: rollout.ReasonStageFailed}}
	}
	b.countOutcomes(nil, s, []rollout.Action{
		record("command", rollout.StateFailing), record("command", rollout.StateDone), record("reboot", rollout.StateDone), record("gone", rollout.StateDone),
		{Verb: rollout.VerbRetire, Rollout: ref, Node: "n1", Postpone: true}, {Verb: rollout.VerbRetire, Rollout: ref, Node: "n1"},
	})
	registry := prometheus.NewRegistry()
	if err := b.registerAll(registry); err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(nonZeroSeries(t, registry), func(line string) bool { return strings.HasPrefix(line, "skyhook_actions_total") })
	want := []string{
		"skyhook_nodeop_node_duration_seconds{} 3600 in 1", "skyhook_nodeop_stage_duration_seconds{command} 60 in 1", "skyhook_nodeop_stage_duration_seconds{reboot} 60 in 1",
		"skyhook_nodeop_stage_failures_total{StageFailed,command} 1", "skyhook_reboots_total{} 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// drainReasons are the reasons why pods have not left a node.
var drainReasons = []rollout.Reason{
	rollout.ReasonProtectedPod, rollout.ReasonPodKept, rollout.ReasonRefused, rollout.ReasonPodDisruptionBudget, rollout.ReasonPodLeaving, rollout.ReasonUpNext,
}

// writes counts each write that the operator has a permission for.
func writes(t *testing.T, b *metricsCollector) {
	t.Helper()
	text, err := os.ReadFile("../../chart/files/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if verb != "get" && verb != "list" && verb != "watch" {
						b.apiWrites.WithLabelValues(verb, resource).Inc()
					}
				}
			}
		}
	}
}

// words lists what a pattern finds in a file; it fails when that is too little to be true.
func words(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	if len(out) < 5 {
		t.Fatalf("%s has only %v", file, out)
	}
	return out
}

// series lists the series of a collector, one line for each.
func series(t *testing.T, b *metricsCollector) []string {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := b.registerAll(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += "," + l.GetName() + "=" + l.GetValue()
			}
			if f.GetType() != dto.MetricType_HISTOGRAM {
				out = append(out, line)
				continue
			}
			for _, bucket := range m.GetHistogram().GetBucket() {
				out = append(out, fmt.Sprintf("%s,le=%g", line, bucket.GetUpperBound()))
			}
			out = append(out, line+",le=+Inf", line+" sum", line+" count")
		}
	}
	return out
}

// Stages and reboots are counted once when they end, with their duration, and evictions by their response.
func TestCounters(t *testing.T) {
	all, s := compileSkyhooks(1, 2)
	b := newMetricsCollector()
	c := all[0]
	r := &c.Rollout
	target := r.Targets[0]
	target.Visit.Admitted, target.Visit.AdmittedAt = true, s.Now.Add(-time.Hour)
	var reboot, apply rollout.Task
	for i := range target.Tasks {
		k := &target.Tasks[i]
		k.Object.Name, k.Attempts.Started = "pod", s.Now.Add(-time.Minute)
		if k.Need == rollout.NeedAlone {
			k.Attempts.Ended = s.Now.Add(-2 * time.Second)
			reboot = *k
		} else {
			k.Attempts.Ended = s.Now.Add(-time.Hour) // by a clock that is wrong: a record waits for some seconds only
			apply = *k
		}
	}
	s.Rollouts[0] = *r
	b.countOutcomes(map[rollout.Ref]*skyhook.Compiled{r.Ref: c}, s, []rollout.Action{
		{Verb: rollout.VerbRecord, Rollout: r.Ref, Node: target.Node, Task: apply.ID, State: rollout.StateFailing, Why: rollout.Why{Reason: rollout.ReasonStageFailed}},
		{Verb: rollout.VerbRecord, Rollout: r.Ref, Node: target.Node, Task: apply.ID, State: rollout.StateDone},
		{Verb: rollout.VerbRecord, Rollout: r.Ref, Node: target.Node, Task: reboot.ID, State: rollout.StateDone},
		{Verb: rollout.VerbRetire, Rollout: r.Ref, Node: target.Node},
		{Verb: rollout.VerbRecord, Rollout: rollout.ParseRef("Skyhook/gone"), Node: target.Node, State: rollout.StateDone},
	})
	for _, status := range []int{201, 429, 404, 503} {
		b.countEviction(status)
	}
	registry := prometheus.NewRegistry()
	if err := b.registerAll(registry); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"skyhook_actions_total": 5, "skyhook_stage_failures_total": 1, "skyhook_reboots_total": 1, "skyhook_evictions_total": 4,
	} {
		if got := sumCounter(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, h := range []struct {
		name string
		n    uint64
		sum  float64
	}{{"skyhook_stage_duration_seconds", 2, 58 + 55}, {"skyhook_node_duration_seconds", 1, 3600}} {
		n, total := histogram(t, registry, h.name)
		if n != h.n || total != h.sum {
			t.Errorf("%s: %d with %v s, want %d with %v s", h.name, n, total, h.n, h.sum)
		}
	}
}

func histogram(t *testing.T, r *prometheus.Registry, name string) (n uint64, sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n, sum = n+m.GetHistogram().GetSampleCount(), sum+m.GetHistogram().GetSampleSum()
			}
		}
	}
	return n, sum
}
