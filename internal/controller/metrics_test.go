// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// gauges lists the series of a Skyhook that are not zero.
func (s *fixture) gauges(name string) []string {
	s.Helper()
	families, err := s.registry.Gather()
	s.Must(err)
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values, ours := []string{}, false
			for _, l := range m.GetLabel() {
				ours = ours || l.GetName() == "skyhook_name" && l.GetValue() == name
				if l.GetName() != "skyhook_name" {
					values = append(values, l.GetName()+"="+l.GetValue())
				}
			}
			if ours && f.GetType() == dto.MetricType_GAUGE && f.GetName() != "skyhook_oldest_admission_seconds" && m.GetGauge().GetValue() != 0 {
				out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(values, ","), m.GetGauge().GetValue()))
			}
		}
	}
	return out
}

// The values are sums over nodes, and the series end with the object they describe.
func TestMetrics(t *testing.T) {
	w := newFixture(t, 5)
	w.kubelet.SetOutcome(func(p *corev1.Pod) testenv.Outcome {
		stage := testenv.StageOf(p)
		switch {
		case slices.Contains([]string{"n1", "n2"}, p.Spec.NodeName) && stage == "config":
			return testenv.Fails
		case p.Spec.NodeName == "n3" && stage == "apply":
			return testenv.Hangs
		}
		return testenv.Succeeds
	})
	w.Apply(strings.Split(demo, "    extra:")[0])
	w.startOperator()
	want := []string{
		"skyhook_node_status_count{status=complete} 2",
		"skyhook_node_status_count{status=erroring} 2",
		"skyhook_node_status_count{status=in_progress} 1",
		"skyhook_node_target_count{} 5",
		"skyhook_package_restarts_count{package_name=tuning,package_version=1.1.0} 2",
		"skyhook_package_stage_count{package_name=tuning,package_version=1.1.0,stage=apply} 1",
		"skyhook_package_stage_count{package_name=tuning,package_version=1.1.0,stage=config} 4",
		"skyhook_package_state_count{package_name=tuning,package_version=1.1.0,state=complete} 2",
		"skyhook_package_state_count{package_name=tuning,package_version=1.1.0,state=erroring} 2",
		"skyhook_package_state_count{package_name=tuning,package_version=1.1.0,state=in_progress} 1",
		"skyhook_rollout_ceiling{compartment_name=__default__,policy_name=legacy,strategy=fixed} 5",
		"skyhook_rollout_completed{compartment_name=__default__,policy_name=legacy,strategy=fixed} 2",
		"skyhook_rollout_current_batch{compartment_name=__default__,policy_name=legacy,strategy=fixed} 1",
		"skyhook_rollout_in_progress{compartment_name=__default__,policy_name=legacy,strategy=fixed} 3",
		"skyhook_rollout_matched_nodes{compartment_name=__default__,policy_name=legacy,strategy=fixed} 5",
		"skyhook_rollout_progress_percent{compartment_name=__default__,policy_name=legacy,strategy=fixed} 40",
		"skyhook_status{status=in_progress} 1",
		"skyhook_waiting_nodes{reason=StageFailed} 2",
	}
	diff := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("series that are not zero, last seen (-want +got):\n%s", diff)
		}
	})
	w.Eventually("two nodes are complete and two fail", func() bool { // the series may be read while they are written
		diff = cmp.Diff(want, w.gauges("demo"))
		return diff == ""
	})
	w.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Succeeds })
	w.Must(w.Client.Delete(t.Context(), w.GetSkyhook("demo")))
	w.Eventually("the Skyhook and its series are gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(t.Context(), client.ObjectKey{Name: "demo"}, &v1alpha1.Skyhook{})) && len(w.gauges("demo")) == 0
	})
}

// The time from the end of a pod to the next creation is measured once, from the first of several ends, and not at all when
// no pod follows.
func TestReaction(t *testing.T) {
	b := newMetricsCollector()
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	b.notePodEnd("n1", at(1))
	b.notePodEnd("n1", at(1.5))
	b.notePodCreated("n1", at(1.7))
	b.notePodCreated("n1", at(9))
	b.notePodEnd("n2", at(2))
	b.notePodEnd("n4", at(2.5))
	sending := func(node string) bool { return node == "n4" }
	b.observePass(at(3), at(3), at(3), at(3), at(3), sending)
	b.notePodCreated("n2", at(8))
	b.notePodEnd("n3", at(4))
	b.observePass(at(3.5), at(4), at(4), at(4), at(4), sending) // began before the end was seen
	b.notePodCreated("n3", at(4.1))
	b.notePodCreated("n4", at(4.5)) // sent by an earlier pass
	var m dto.Metric
	if err := b.reaction.Write(&m); err != nil {
		t.Fatal(err)
	}
	if n, sum := m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(); n != 3 || sum < 2.799 || sum > 2.801 {
		t.Errorf("%d reactions of %f s together, want 0.7 s, 0.1 s and 2 s", n, sum)
	}
}

func TestResource(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/nodes/n1":                                            "nodes",
		"/api/v1/nodes/n1/status":                                     "nodes/status",
		"/api/v1/namespaces/skyhook/pods":                             "pods",
		"/api/v1/namespaces/skyhook/pods/a-b":                         "pods",
		"/api/v1/namespaces/default/pods/a-b/eviction":                "pods/eviction",
		"/apis/skyhook.nvidia.com/v1alpha1/skyhooks/demo/status":      "skyhooks/status",
		"/apis/coordination.k8s.io/v1/namespaces/skyhook/leases/3c22": "leases",
		"/api/v1/namespaces/skyhook":                                  "namespaces",
		"/version":                                                    "other",
		"/":                                                           "other",
		"/apis/coordination.k8s.io/v1/namespaces/skyhook/leases/x/y/z/w": "leases/y",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// The time from the end of a pod to the next request for its node is measured once, and only for a plan that was made when the end was
// known. Until then the node awaits a request.
func TestRequestReaction(t *testing.T) {
	b := newMetricsCollector()
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	b.noteRequest("n1", at(0), at(0.5))
	b.notePodEnd("n1", at(1))
	b.noteRequest("n1", at(0.9), at(1.1))
	if !b.awaitsRequest("n1") || b.awaitsRequest("n2") {
		t.Error("n1 does not await a request, or n2 does")
	}
	b.noteRequest("n1", at(1.2), at(1.4))
	if b.awaitsRequest("n1") {
		t.Error("n1 awaits a request that was made")
	}
	b.noteRequest("n1", at(2), at(3))
	b.notePodCreated("n1", at(3.5))
	var m dto.Metric
	if err := b.request.Write(&m); err != nil {
		t.Fatal(err)
	}
	if n, sum := m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(); n != 1 || sum < 0.399 || sum > 0.401 {
		t.Errorf("%d reactions of %f s together, want 0.4 s", n, sum)
	}
}
