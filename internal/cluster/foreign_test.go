// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// interruptingTransport does something right before a patch of a path is sent.
type interruptingTransport struct {
	next   http.RoundTripper
	path   string
	before func()
}

func (g *interruptingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodPatch && q.URL.Path == g.path {
		g.before()
	}
	return g.next.RoundTrip(q)
}

// newInterruptedScenario is a scenario in which something happens before each patch of a path.
func newInterruptedScenario(t *testing.T, path string, before func(*scenario)) *scenario {
	t.Helper()
	s := newScenario(t, 1)
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		return &interruptingTransport{next, path, func() { before(s) }}
	})
	return s
}

// checkWriteCache compares what the write cache has of the node n1 with the API server.
func (s *scenario) checkWriteCache() {
	s.Helper()
	now := s.GetNode("n1")
	cached, ok := s.cluster.applier.writes.Nodes.Get(types.NamespacedName{Name: "n1"})
	if !ok || cached.ResourceVersion != now.ResourceVersion {
		return
	}
	if cached.Unschedulable != now.Spec.Unschedulable || !maps.Equal(cached.Annotations, now.Annotations) {
		s.Errorf("the write cache has version %s of n1 with unschedulable %v and %v, and the API server %v and %v", cached.ResourceVersion,
			cached.Unschedulable, cached.Annotations, now.Spec.Unschedulable, now.Annotations)
	}
}

// TestForeignCordonWhileWriting shows that an administrator's cordon that comes right before a patch of ours is neither hidden by the
// write cache nor removed in the end.
func TestForeignCordonWhileWriting(t *testing.T) {
	for _, path := range []string{"/api/v1/nodes/n1", "/api/v1/nodes/n1/status"} {
		once := true
		s := newInterruptedScenario(t, path, func(s *scenario) {
			if once {
				once = false
				s.Patch(s.GetNode("n1"), `{"spec":{"unschedulable":true}}`)
			}
		})
		s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_driver":"{}"}}}`) // so that there are conditions
		s.Apply(strings.Replace(driver, "name: driver", `name: driver, annotations: {skyhook.nvidia.com/pause: "true"}`, 1))
		for range 4 {
			s.step(time.Second)
			s.checkWriteCache()
		}
		s.Patch(s.GetSkyhook("driver"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
		for range 30 {
			s.step(time.Second)
			s.checkWriteCache()
		}
		if once {
			t.Fatalf("%s was not patched", path)
		}
		n := s.GetNode("n1")
		if n.Annotations[v1alpha1.PrefixStatus+"driver"] != string(v1alpha1.StatusComplete) || !n.Spec.Unschedulable {
			t.Errorf("%s: the node is %s, unschedulable %v", path, n.Annotations[v1alpha1.PrefixStatus+"driver"], n.Spec.Unschedulable)
		}
		s.Must(s.Client.Delete(t.Context(), n))
		s.Must(s.Client.Delete(t.Context(), s.GetSkyhook("driver")))
		s.finish()
	}
}

// TestRerunWhileAdopting shows that a rerun that comes right before the adoption of a predecessor's records is carried out.
func TestRerunWhileAdopting(t *testing.T) {
	once := true
	s := newInterruptedScenario(t, "/api/v1/nodes/n1/status", func(s *scenario) { // the conditions are part of that patch
		if !once {
			return
		}
		once = false
		s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_demo":"{}"}}}`)
	})
	s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_demo":"{\"tuning|1.1.0\":{\"name\":\"tuning\",\"version\":\"1.1.0\",\"image\":\"registry.example/packages/shellscript\",\"stage\":\"config\",\"state\":\"complete\"}}"}}}`)
	s.Apply(demo)
	s.pass()
	s.checkWriteCache()
	if got := s.GetNode("n1").Annotations[v1alpha1.PrefixNodeState+"demo"]; got != "{}" {
		t.Errorf("the reset is overwritten: %s", got)
	}
	ran := false
	for range 12 {
		s.pass()
		ran = ran || strings.Contains(strings.Join(s.podNames(), " "), "apply")
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	if state := node.Parse(s.GetNode("n1"), nil).Skyhook("demo").State["tuning|1.1.0"]; !ran || state.State != v1alpha1.StateComplete {
		t.Errorf("the package ran again: %v; it is %+v", ran, state)
	}
}

// TestDamagedNodeState shows that an annotation of a node that the schema of the status does not allow stops no status.
func TestDamagedNodeState(t *testing.T) {
	long := func(size int) string { return strings.Repeat("ä", size) }
	entries := map[string]v1alpha1.PackageStatus{}
	for i := range 1100 {
		entries[fmt.Sprintf("p%d|1.0.0", i)] = v1alpha1.PackageStatus{Stage: v1alpha1.StageApply, State: v1alpha1.StateComplete}
	}
	for what, state := range map[string]v1alpha1.NodeState{
		"image":   {"x|1.0.0": {Image: long(1100), Stage: v1alpha1.StageApply, State: v1alpha1.StateComplete}},
		"digest":  {"x|1.0.0": {ContainerSHA: long(300), Stage: v1alpha1.StageApply, State: v1alpha1.StateComplete}},
		"name":    {long(300) + "|1.0.0": {Stage: v1alpha1.StageApply, State: v1alpha1.StateComplete}},
		"version": {"x|" + long(300): {Stage: v1alpha1.StageApply, State: v1alpha1.StateComplete}},
		"many":    entries,
	} {
		t.Run(what, func(t *testing.T) {
			s := newScenario(t, 2)
			s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
			s.patchAnnotation("n1", v1alpha1.PrefixNodeState+"demo", node.FormatState(state))
			s.step(time.Second) // fails when a status cannot be written
			h := s.GetSkyhook("demo")
			if h.Status.ObservedGeneration != h.Generation || len(h.Status.NodeState["n1"]) == 0 && what != "many" {
				t.Errorf("the status is %+v", h.Status)
			}
		})
	}
}

// TestDamagedOpRecord shows the same for the record of a NodeOp.
func TestDamagedOpRecord(t *testing.T) {
	s := newScenario(t, 2)
	s.createNodeOp("up", "concurrency: 1")
	s.nodeOpPass(s.cluster)
	key := node.OpRecordKey(string(s.getNodeOp("up").UID))
	rec, err := node.ParseNodeOpRecord(s.GetNode("n1").Annotations[key])
	s.Must(err)
	for what, result := range map[string]node.Result{
		"texts": {Phase: opv1.PhaseCompleted, Message: strings.Repeat("ä", 40000), Output: strings.Repeat("ä", 5000), Target: strings.Repeat("t", 300)},
		"phase": {Phase: opv1.Phase(strings.Repeat("p", 100))},
	} {
		damaged := rec.Clone()
		damaged.Admitted, damaged.Result = false, &result
		s.patchAnnotation("n1", key, damaged.String())
		s.now = s.now.Add(2 * time.Second)
		s.nodeOpPass(s.cluster)
		wants := map[string]string{"texts": strings.Repeat("ä", 100), "phase": "its result has the phase"}[what]
		if got, err := json.Marshal(s.getNodeOp("up").Status); err != nil || !strings.Contains(string(got), wants) {
			t.Errorf("%s: the status is %s, %v", what, got, err)
		}
	}
}

func (s *scenario) patchAnnotation(nodeName, key, value string) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	s.Must(err)
	s.Patch(s.GetNode(nodeName), string(patch))
}

// TestManyUnknownOwners shows that a node with holds of a thousand owners that do not exist costs a few requests, and delays nobody.
func TestManyUnknownOwners(t *testing.T) {
	s := newScenario(t, 2)
	annotations := map[string]string{}
	for i := range 1000 {
		annotations[fmt.Sprintf("%sx%d", v1alpha1.PrefixCordon, i)] = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	s.Must(err)
	s.Patch(s.GetNode("n1"), string(patch))
	reads := 0
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		return &countingTransport{next, &reads}
	})
	s.Apply(demo)
	s.pass()
	reads = 0
	began := time.Now()
	for range 5 {
		s.step(time.Second)
	}
	if reads > 5*40 || time.Since(began) > 30*time.Second {
		t.Errorf("five passes read %d times in %s", reads, time.Since(began))
	}
	s.now = s.now.Add(orphanConfirmation)
	for range 16 {
		s.step(time.Second)
	}
	for key := range s.GetNode("n1").Annotations {
		if strings.HasPrefix(key, v1alpha1.PrefixCordon) {
			t.Fatalf("%s is left", key)
		}
	}
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("the Skyhook is %s", got)
	}
}

// countingTransport counts reads.
type countingTransport struct {
	next  http.RoundTripper
	reads *int
}

func (g *countingTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet {
		*g.reads++
	}
	return g.next.RoundTrip(q)
}

// TestFullAnnotations shows that no work begins on a node whose annotations leave no room for records, and that other nodes go on.
func TestFullAnnotations(t *testing.T) {
	s := newScenario(t, 2)
	s.patchAnnotation("n1", "example.com/large", strings.Repeat("x", 240<<10))
	s.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	for range 10 {
		s.step(time.Second)
	}
	if got := s.readyMessage(); !strings.Contains(got, "n1: the annotations of the node have 240 KiB of the 256 KiB that Kubernetes allows") {
		t.Errorf("Ready says %q", got)
	}
	if got := s.GetNode("n2").Annotations[v1alpha1.PrefixStatus+"demo"]; got != string(v1alpha1.StatusComplete) {
		t.Errorf("n2 is %q", got)
	}
	if n := s.GetNode("n1"); n.Annotations[v1alpha1.PrefixRecord+"demo"] != "" {
		t.Errorf("work on n1 began: %s", n.Annotations[v1alpha1.PrefixRecord+"demo"])
	}
	s.Patch(s.GetNode("n1"), `{"metadata":{"annotations":{"example.com/large":null}}}`)
	s.finish()
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("the Skyhook is %s", got)
	}
}
