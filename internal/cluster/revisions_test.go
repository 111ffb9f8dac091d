// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// versioned is a Skyhook with one package of a version, changed for a reason.
func versioned(version, cause string) string {
	return fmt.Sprintf(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo, annotations: {kubernetes.io/change-cause: %q}}
spec:
  revisionHistoryLimit: 1
  interruptionBudget: {count: 1}
  packages: {tuning: {version: %s, image: registry.example/tuning, configMap: {a.conf: x}}}
`, cause, version)
}

// describeRevisions says what the status shows, the newest first: number, nodes, cause.
func (s *scenario) describeRevisions() string {
	var out []string
	for _, r := range s.GetSkyhook("demo").Status.Revisions {
		out = append(out, fmt.Sprintf("%d on %d: %s", r.Revision, r.Nodes, r.ChangeCause))
	}
	return strings.Join(out, ", ")
}

// listRevisions returns the versions of the package in the ControllerRevisions, by number.
func (s *scenario) listRevisions() map[int64]string {
	s.Helper()
	list, out := &appsv1.ControllerRevisionList{}, map[int64]string{}
	s.Must(s.Client.List(context.Background(), list, client.InNamespace(s.Namespace)))
	for i := range list.Items {
		packages, err := render.PackagesOf(&list.Items[i])
		s.Must(err)
		out[list.Items[i].Revision] = string(packages["tuning"].Version)
	}
	return out
}

// TestRevisions rolls versions out one after the other: each is a revision, status says how many nodes have which, one that comes back
// becomes the newest again, and those beyond the limit go, unless a node has them.
func TestRevisions(t *testing.T) {
	s := newScenario(t, 3)
	check := func(when, status string, want map[int64]string) {
		t.Helper()
		s.pass()
		if got := s.describeRevisions(); got != status {
			t.Errorf("%s the status shows %q, want %q", when, got, status)
		}
		if got := s.listRevisions(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s the ControllerRevisions are %v, want %v", when, got, want)
		}
	}
	s.Apply(strings.Replace(versioned("1.0.0", "first"), "annotations: {", `annotations: {skyhook.nvidia.com/pause: "true", `, 1))
	s.pass()
	check("before it begins", "", map[int64]string{})
	s.Patch(s.GetSkyhook("demo"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
	s.finish()
	check("after the first rollout", "1 on 3: first", map[int64]string{1: "1.0.0"})

	s.Apply(versioned("1.1.0", "second"))
	s.Eventually("one node has the new version, one is between two, and one waits", func() bool {
		s.step(time.Second)
		return s.describeRevisions() == "2 on 1: second, 1 on 1: first"
	})
	s.finish()
	check("after the second rollout", "2 on 3: second, 1 on 0: first", map[int64]string{1: "1.0.0", 2: "1.1.0"})

	s.Apply(versioned("1.0.0", "back"))
	s.finish()
	check("after going back", "3 on 3: back, 2 on 0: second", map[int64]string{2: "1.1.0", 3: "1.0.0"})

	s.requests.reset()
	s.cluster = s.newCluster(s.requests)
	s.finish()
	check("after a restart", "3 on 3: back, 2 on 0: second", map[int64]string{2: "1.1.0", 3: "1.0.0"})
	if got := s.requests.list(); len(got) > 0 {
		t.Errorf("after a restart the operator sent %v", got)
	}

	s.Must(s.Client.DeleteAllOf(context.Background(), &appsv1.ControllerRevision{}, client.InNamespace(s.Namespace)))
	s.Apply(versioned("1.1.0", "again"))
	s.Eventually("one node has the new version", func() bool {
		s.step(time.Second)
		return strings.HasPrefix(s.describeRevisions(), "4 on 1: again, 3 on ")
	})
	s.Apply(versioned("1.2.0", "third"))
	s.Eventually("a third version begins", func() bool {
		s.step(time.Second)
		return strings.HasPrefix(s.describeRevisions(), "5 on ")
	})
	if got := s.describeRevisions(); !strings.Contains(got, "3 on ") {
		t.Errorf("the revision that nodes have is gone: %s", got)
	}
	s.finish()
	check("in the end", "5 on 3: third, 4 on 0: again", map[int64]string{4: "1.1.0", 5: "1.2.0"})
}

// TestUnknownRevisions shows that with pinImages no node begins while the revisions cannot be listed: one may have the digest to pull.
func TestUnknownRevisions(t *testing.T) {
	s := newScenario(t, 1)
	fails := true
	s.wrapRequests(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if fails && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/controllerrevisions") {
				return nil, errors.New("no answer")
			}
			return next.RoundTrip(r)
		})
	})
	s.Apply(versioned("1.0.0", ""))
	s.cluster.options.Config.PinImages = new(true)
	for range 3 {
		o, err := s.cluster.Observe(context.Background())
		s.Must(err)
		compiled := s.cluster.Compile(o, s.now)
		out, _ := s.cluster.Apply(context.Background(), compiled, engine.Decide(compiled.Snapshot)) // errors are in the outcome, too
		if got := out.Errors[plan.Ref("demo")]; !strings.Contains(got, "its ControllerRevisions could not be listed") || !strings.Contains(fmt.Sprint(o.Err), "no answer") {
			t.Errorf("the errors are %q and %v", got, o.Err)
		}
		s.now = s.now.Add(time.Second)
	}
	if pods := s.podNodes(); len(pods) > 0 {
		t.Errorf("pods run on %v", pods)
	}
	fails = false
	s.finish()
	if got := s.describeRevisions(); got != "1 on 1: " {
		t.Errorf("in the end the status shows %q", got)
	}
}

// TestForeignRevision shows that a ControllerRevision of the name that is needed, which is somebody else's, is reported and stops nothing.
func TestForeignRevision(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(versioned("1.0.0", ""))
	s.finish()
	name := s.GetSkyhook("demo").Status.Revisions[0].Name
	s.Must(s.Client.Delete(context.Background(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}))
	foreign := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Data: runtime.RawExtension{Raw: []byte("{}")}, Revision: 7}
	s.Must(s.Client.Create(context.Background(), foreign))
	s.cluster = s.newCluster(s.requests)
	said := ""
	for range 5 {
		o, decided := s.decide(s.cluster)
		out, _ := s.cluster.Apply(context.Background(), o, decided) // errors are in the outcome, too
		said += out.Errors[plan.Ref("demo")]
		s.now = s.now.Add(time.Second)
	}
	if !strings.Contains(said, name) || !strings.Contains(said, "belongs to somebody else") {
		t.Errorf("the errors are %q", said)
	}
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("the Skyhook is %s", got)
	}
}

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
