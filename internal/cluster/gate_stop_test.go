// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// gateServer is a Prometheus server whose result can be changed, and which counts its queries.
type gateServer struct {
	*httptest.Server
	value, asked atomic.Int64
}

func newGateServer(t *testing.T) *gateServer {
	g := &gateServer{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		g.asked.Add(1)
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"scalar","result":[0,"%d"]}}`, g.value.Load())
	}))
	t.Cleanup(g.Close)
	return g
}

// TestStoppingGate: a gate with onFailure Stop is asked while nodes are in flight. When it is false the rollout stops, what is
// in flight ends, another operator knows it, and only a resume while the gate is true lets it continue.
func TestStoppingGate(t *testing.T) {
	server := newGateServer(t)
	s := newScenario(t, 4)
	s.Apply(policyYAML(fmt.Sprintf(`  health: {prometheus: [{name: errors, url: %q, query: errors, atMost: "5", onFailure: Stop}]}`, server.URL)))
	s.Apply(withPolicy(demo))
	s.passes(3)
	if got := s.verdict("demo", "n1"); strings.HasPrefix(got, "Stopped") {
		t.Fatalf("the verdict on n1 is %q", got)
	}
	asked := server.asked.Load()
	s.passes(3)
	if got := server.asked.Load(); got != asked {
		t.Errorf("%d queries within the lifetime of an answer", got-asked)
	}
	server.value.Store(7)
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(2)
	const stopped = "Stopped: a health gate stopped the compartment: gate errors: the query gives 7, and must give at most 5"
	if got := s.verdict("demo", "n4"); got != stopped {
		t.Errorf("the verdict on n4 is %q", got)
	}
	condition := meta.FindStatusCondition(s.GetSkyhook("demo").Status.Conditions, v1alpha1.ConditionRolloutStopped)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonHealthGate || !strings.Contains(condition.Message, "the query gives 7") {
		t.Errorf("the condition is %+v", condition)
	}
	server.value.Store(1)
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(12)
	if got := s.verdict("demo", "n1"); got != "Finished: no work is pending" {
		t.Errorf("the verdict on n1, which was in flight, is %q", got)
	}
	if got := s.verdict("demo", "n4"); got != stopped {
		t.Errorf("true again, the verdict on n4 is %q", got)
	}
	server.value.Store(8)
	s.now = s.now.Add(gates.AnswerLifetime)
	s.passes(2)
	s.Patch(s.GetSkyhook("demo"), `{"metadata":{"annotations":{"skyhook.nvidia.com/resume":"too early"}}}`)
	s.passes(3)
	if got := s.verdict("demo", "n4"); got != strings.Replace(stopped, "7", "8", 1) {
		t.Errorf("resumed while the gate is false, the verdict on n4 is %q", got)
	}
	server.value.Store(1) // within the lifetime of the last answer: whoever resumes gets a new one
	s.Patch(s.GetSkyhook("demo"), `{"metadata":{"annotations":{"skyhook.nvidia.com/resume":"now"}}}`)
	s.passUntilComplete("demo")
	if meta.FindStatusCondition(s.GetSkyhook("demo").Status.Conditions, v1alpha1.ConditionRolloutStopped) != nil {
		t.Error("the condition stays")
	}
}

// TestStoppingGateOfLastNodes: a gate that stops is asked although no node waits any more; one that waits is not.
func TestStoppingGateOfLastNodes(t *testing.T) {
	for onFailure, isAsked := range map[v1alpha1.GateFailure]bool{v1alpha1.GateStop: true, v1alpha1.GateWait: false} {
		t.Run(string(onFailure), func(t *testing.T) {
			server := newGateServer(t)
			s := newScenario(t, 1)
			s.Apply(policyYAML(fmt.Sprintf(`  health: {prometheus: [{name: errors, url: %q, query: errors, atMost: "5", onFailure: %s}]}`, server.URL, onFailure)))
			s.Apply(withPolicy(demo))
			s.passes(4)
			before := server.asked.Load()
			s.now = s.now.Add(gates.AnswerLifetime)
			s.pass()
			if got := server.asked.Load() > before; got != isAsked {
				t.Errorf("asked: %v, want %v; the node: %s", got, isAsked, s.verdict("demo", "n1"))
			}
		})
	}
}

// TestStoppingObjects: an object that does not meet its expression stops a rollout; one that does not exist, or for which the
// expression gives no answer, closes it.
func TestStoppingObjects(t *testing.T) {
	s := newScenario(t, 0)
	s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gate-a, namespace: default, labels: {app: gate}}\n")
	s.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gate-b, namespace: default, labels: {app: gate}}\ndata: {state: bad}\n")
	const isGood = `object.data.state == "good"`
	gate := func(name string, onFailure v1alpha1.GateFailure) v1alpha1.ObjectGate {
		g := v1alpha1.ObjectGate{OnFailure: onFailure, ObjectCheck: v1alpha1.ObjectCheck{ObjectSelector: v1alpha1.ObjectSelector{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}, CEL: isGood}}
		if name == "" {
			g.Selector = "app=gate"
		}
		return g
	}
	const isFalse, isAbsent = "ConfigMap default/gate-b does not meet " + isGood, "ConfigMap default/gate-c does not exist"
	for name, test := range map[string]struct {
		gates          []v1alpha1.ObjectGate
		closed, failed string
	}{
		"false":            {gates: []v1alpha1.ObjectGate{gate("gate-b", v1alpha1.GateStop)}, failed: isFalse},
		"false, and waits": {gates: []v1alpha1.ObjectGate{gate("gate-b", v1alpha1.GateWait)}, closed: isFalse},
		"absent":           {gates: []v1alpha1.ObjectGate{gate("gate-c", v1alpha1.GateStop)}, closed: isAbsent},
		"false of one":     {gates: []v1alpha1.ObjectGate{gate("", v1alpha1.GateStop)}, failed: isFalse},
		"behind another":   {gates: []v1alpha1.ObjectGate{gate("gate-c", v1alpha1.GateWait), gate("gate-b", v1alpha1.GateStop)}, closed: isAbsent, failed: isFalse},
	} {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}, Spec: v1alpha1.DeploymentPolicySpec{Health: &v1alpha1.HealthGates{Objects: test.gates}}}
		results, _ := (&gates.Checker{}).Check(context.Background(), gates.Input{Objects: s.Client, Policies: []*v1alpha1.DeploymentPolicy{p}, Now: s.now})
		if got := results["careful"]; textOfWhy(got.Closed) != test.closed || textOfWhy(got.Failed) != test.failed {
			t.Errorf("%s: closed %q, failed %q", name, textOfWhy(got.Closed), textOfWhy(got.Failed))
		}
	}
}

func textOfWhy(why *rollout.Why) string {
	if why == nil {
		return ""
	}
	return why.Text
}
