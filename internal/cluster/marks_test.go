// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// patchRecorder keeps the patches of nodes, without those of their status.
type patchRecorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	all  []nodePatch
}

type nodePatch struct {
	Metadata struct {
		Labels      map[string]*string `json:"labels"`
		Annotations map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable *bool          `json:"unschedulable"`
		Taints        []corev1.Taint `json:"taints"`
	} `json:"spec"`
}

func (r *patchRecorder) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodPatch && strings.Contains(q.URL.Path, "/nodes/") {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		var p nodePatch
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, err
		}
		r.mu.Lock()
		if isConditionsOnly := len(p.Metadata.Annotations) == 0 && strings.HasSuffix(q.URL.Path, "/status"); !isConditionsOnly {
			r.all = append(r.all, p)
		}
		r.mu.Unlock()
	}
	return r.next.RoundTrip(q)
}

const everyMark = "{marks: [Conditions, ExcludeFromLoadBalancers, DisableScaleDown, DoNotDisrupt, Description]}"

// markedDriver is driver with marks.
func markedDriver(marks string) string {
	return strings.Replace(driver, "  packages:", "  nodeMarks: "+marks+"\n  packages:", 1)
}

// lifecycle are the lifecycle conditions of a node that are true.
func lifecycle(n *corev1.Node) []string {
	var out []string
	for _, t := range []corev1.NodeConditionType{corev1.NodeMaintenancePlanned, corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress} {
		for _, c := range n.Status.Conditions {
			if c.Type == t && c.Status == corev1.ConditionTrue {
				out = append(out, string(t))
			}
		}
	}
	return out
}

// playMarked carries a Skyhook out on one node, and returns the patches of the node and the sets of lifecycle conditions that it had.
func (s *scenario) playMarked(manifest string) (patches []nodePatch, seen []string) {
	s.Helper()
	r := &patchRecorder{}
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper { r.next = next; return r })
	s.Apply(manifest)
	for range 40 {
		s.pass()
		if now := strings.Join(lifecycle(s.GetNode("n1")), " "); len(seen) == 0 || seen[len(seen)-1] != now {
			seen = append(seen, now)
		}
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	return r.all, seen
}

// TestMarks: the marks of a held node come with the cordon and go with it, and cost no further patch of the node.
func TestMarks(t *testing.T) {
	var plain, patches []nodePatch
	t.Run("without marks", func(t *testing.T) { plain, _ = newScenario(t, 1).playMarked(driver) })
	t.Run("with marks", func(t *testing.T) { patches = testMarks(t) })
	if len(plain) != len(patches) {
		t.Errorf("with marks the node is patched %d times, and without %d times", len(patches), len(plain))
	}
}

func testMarks(t *testing.T) (patches []nodePatch) {
	t.Helper()
	s := newScenario(t, 1)
	s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"false"}}}`)
	before := s.GetNode("n1")
	patches, seen := s.playMarked(markedDriver(everyMark))
	s.requireVerdict("driver", "n1", "Finished")
	held, released := -1, -1
	for i, p := range patches {
		_, isMarked := p.Metadata.Labels[v1alpha1.LabelExcludeBalancers]
		_, keeps := p.Metadata.Annotations[v1alpha1.AnnotationDoNotDisrupt]
		_, isDescribed := p.Metadata.Annotations[v1alpha1.AnnotationMaintenance]
		if isMarked != (p.Spec.Unschedulable != nil) || keeps != isMarked || isDescribed != isMarked {
			t.Errorf("patch %d has the cordon or marks alone: %+v", i, p)
		}
		switch {
		case isMarked && held < 0:
			held = i
			var d node.Description
			s.Must(json.Unmarshal([]byte(*p.Metadata.Annotations[v1alpha1.AnnotationMaintenance]), &d))
			if d.By != "Skyhook driver" || d.Why != "kernel apply needs the node drained" || d.Since.IsZero() || d.ExpectedEnd != nil {
				t.Errorf("the description is %+v", d)
			}
		case isMarked:
			released = i
		}
	}
	if held < 0 || released < held {
		t.Errorf("marks were put there in patch %d and removed in patch %d", held, released)
	}
	want := []string{"MaintenancePlanned DrainInProgress", "Drained MaintenanceInProgress", ""}
	if seen[0] == "" {
		seen = seen[1:]
	}
	if !slices.Equal(seen, want) {
		t.Errorf("conditions were %q, want %q", seen, want)
	}
	s.requireRestored(before)
	return patches
}

// requireRestored checks that a node has the labels and annotations of others as it had them, and nothing of ours but records.
func (s *scenario) requireRestored(before *corev1.Node) {
	s.Helper()
	n := s.GetNode("n1")
	for _, key := range []string{v1alpha1.AnnotationNodeMarks, v1alpha1.AnnotationMaintenance, v1alpha1.AnnotationScaleDown, v1alpha1.AnnotationDoNotDisrupt} {
		if got, want := n.Annotations[key], before.Annotations[key]; got != want {
			s.Errorf("annotation %s is %q, and was %q", key, got, want)
		}
	}
	got, isThere := n.Labels[v1alpha1.LabelExcludeBalancers]
	want, wasThere := before.Labels[v1alpha1.LabelExcludeBalancers]
	if got != want || isThere != wasThere {
		s.Errorf("the label for load balancers is %q, and was %q", got, want)
	}
	if left := lifecycle(n); len(left) > 0 || len(n.Spec.Taints) > 0 || n.Spec.Unschedulable {
		s.Errorf("the node has conditions %v, taints %v, unschedulable=%v", left, n.Spec.Taints, n.Spec.Unschedulable)
	}
}

// TestMarksOfADeletedSkyhook: marks go with the hold of a Skyhook that is deleted while it holds the node, also when it vanished.
func TestMarksOfADeletedSkyhook(t *testing.T) {
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprintf("vanishes %v", vanishes), func(t *testing.T) {
			s := newScenario(t, 1)
			before := s.GetNode("n1")
			s.Apply(workload("web", "n1"))
			s.SettlePods()
			s.Apply(markedDriver(everyMark))
			for range 3 {
				s.pass()
			}
			n := s.GetNode("n1")
			if n.Labels[v1alpha1.LabelExcludeBalancers] == "" || !n.Spec.Unschedulable || len(lifecycle(n)) == 0 {
				t.Fatalf("the held node has labels %v and conditions %v", n.Labels, lifecycle(n))
			}
			hook := s.GetSkyhook("driver")
			s.Must(s.Client.Delete(context.Background(), hook))
			if vanishes {
				s.Patch(s.GetSkyhook("driver"), `{"metadata":{"finalizers":null}}`)
			}
			for range 6 {
				s.pass()
				s.now = s.now.Add(orphanConfirmation)
			}
			s.requireRestored(before)
		})
	}
}

// TestPlannedNodes: nodes whose turn is still to come are tainted by one patch each, and lose the taint when they are held. Nobody is
// told about nodes without the option.
func TestPlannedNodes(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(policyYAML("  nodeMarks: {marks: [PreferNoSchedule, Conditions]}\n"))
	s.Apply(withPolicy(driver))
	for range 3 {
		s.pass()
	}
	first, second := node.Parse(s.GetNode("n1"), nil), node.Parse(s.GetNode("n2"), nil)
	if first.HasTaint(node.MaintenancePlanned) || !second.HasTaint(node.MaintenancePlanned) {
		t.Errorf("n1 tainted %v, n2 tainted %v", first.HasTaint(node.MaintenancePlanned), second.HasTaint(node.MaintenancePlanned))
	}
	if got := lifecycle(s.GetNode("n2")); !slices.Equal(got, []string{"MaintenancePlanned"}) {
		t.Errorf("the conditions of n2 are %v", got)
	}
	s.requests.reset()
	for range 3 {
		s.pass()
	}
	if again := s.requests.list(); slices.Contains(again, "PATCH nodes/n2") || slices.Contains(again, "PATCH nodes/n2/status") {
		t.Errorf("n2 is patched again: %v", again)
	}
	s.Patch(s.GetSkyhook("driver"), `{"spec":{"nodeSelectors":{"matchLabels":{"pool":"none"}}}}`)
	for range 6 {
		s.pass()
		s.SettlePods()
	}
	if n := s.GetNode("n2"); len(n.Spec.Taints) > 0 || len(lifecycle(n)) > 0 {
		t.Errorf("n2 is not selected any more, and has taints %v and conditions %v", n.Spec.Taints, lifecycle(n))
	}
}

// TestLoadBalancerDelay: no pod is evicted before load balancers had their time, which counts from the hold, for another leader too.
func TestLoadBalancerDelay(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(workload("web", "n1"))
	s.SettlePods()
	s.Apply(strings.Replace(markedDriver("{marks: [ExcludeFromLoadBalancers]}"), "  packages:", "  drainConfig: {loadBalancerDelay: 40s}\n  packages:", 1))
	for range 4 {
		s.pass()
	}
	s.requireVerdict("driver", "n1", "LoadBalancer: load balancers have 40s to stop sending requests to the node")
	s.now = s.now.Add(30 * time.Second)
	s.cluster = s.newCluster(s.requests)
	s.pass()
	if s.pod("web").DeletionTimestamp != nil {
		t.Error("the pod was evicted too soon")
	}
	s.now = s.now.Add(11 * time.Second)
	s.pass()
	if s.pod("web").DeletionTimestamp == nil {
		t.Error("the pod is not evicted when the time is over")
	}
}

// TestMarksOfNodeOps: a NodeOp marks its nodes as its policy says. A mark that both want goes with the last hold.
func TestMarksOfNodeOps(t *testing.T) {
	s := newScenario(t, 1)
	before := s.GetNode("n1")
	s.Apply(policyYAML("  nodeMarks: " + everyMark + "\n"))
	s.createNodeOp("up", "cordon: true\n  deploymentPolicy: careful")
	s.nodeOpPass(s.cluster)
	s.nodeOpPass(s.cluster)
	n := s.GetNode("n1")
	if n.Labels[v1alpha1.LabelExcludeBalancers] == "" || !strings.Contains(n.Annotations[v1alpha1.AnnotationMaintenance], `"by":"NodeOp default/up"`) {
		t.Errorf("the held node has labels %v and annotations %v", n.Labels, n.Annotations)
	}
	held := node.Parse(n, nil)
	e := held.PlaceMarks("Skyhook/other", node.NewMarks(v1alpha1.NodeMarks{Marks: []v1alpha1.NodeMark{v1alpha1.MarkExcludeFromLoadBalancers}}, node.Description{}))
	e.SetAnnotation(held, v1alpha1.PrefixCordon+"other", "true")
	patch, err := json.Marshal(e.MergePatch(held))
	s.Must(err)
	s.Patch(n, string(patch))
	for range 8 {
		s.nodeOpPass(s.cluster)
		s.endJobs(true)
	}
	n = s.GetNode("n1")
	if n.Labels[v1alpha1.LabelExcludeBalancers] == "" || n.Annotations[v1alpha1.AnnotationDoNotDisrupt] != "" {
		t.Errorf("after the NodeOp the node has labels %v and annotations %v", n.Labels, n.Annotations)
	}
	for range 4 {
		s.now = s.now.Add(orphanConfirmation)
		s.nodeOpPass(s.cluster)
	}
	s.requireRestored(before)
}
