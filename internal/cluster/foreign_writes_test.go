// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	s.wrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return &interruptingTransport{next, path, func() { before(s) }}
	}
	s.cluster = s.newCluster(s.requests)
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
		if once {
			t.Fatalf("%s was not patched", path)
		}
		s.Patch(s.GetSkyhook("driver"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
		for range 30 {
			s.step(time.Second)
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
	s := newInterruptedScenario(t, "/api/v1/nodes/n1", func(s *scenario) {
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
