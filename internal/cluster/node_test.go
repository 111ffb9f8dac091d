// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// TestErrorOfOneRollout: an action that cannot be carried out leaves out what its rollout does on the node, for a while, and
// nothing of another rollout.
func TestErrorOfOneRollout(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(demo)
	s.Apply(strings.Replace(demo, "name: demo", "name: other", 1))
	apply := func(actions ...rollout.Action) error {
		o, _ := s.decide(s.cluster)
		_, err := s.cluster.Apply(context.Background(), o, rollout.Plan{Actions: actions})
		return err
	}
	isAdmitted := func(name string) bool {
		return node.Parse(s.GetNode("n1"), nil).Skyhook(name).Record.Admitted
	}
	action := func(name string, verb rollout.Verb) rollout.Action {
		return rollout.Action{Rollout: plan.Ref(name), Node: "n1", Verb: verb, Task: "unknown|1.0.0/apply"}
	}
	err := apply(action("demo", rollout.VerbAdmit), action("demo", rollout.VerbRecord), action("other", rollout.VerbAdmit))
	if err == nil || !strings.Contains(err.Error(), "record Skyhook/demo: task unknown|1.0.0/apply is not owed") {
		t.Errorf("the error is %v", err)
	}
	if isAdmitted("demo") || !isAdmitted("other") {
		t.Errorf("demo is admitted: %v; other is: %v", isAdmitted("demo"), isAdmitted("other"))
	}
	s.Must(apply(action("demo", rollout.VerbAdmit)))
	if isAdmitted("demo") {
		t.Error("demo is not left alone after its error")
	}
	s.now = s.now.Add(2 * time.Second)
	s.Must(apply(action("demo", rollout.VerbAdmit)))
	if !isAdmitted("demo") {
		t.Error("demo does not go on")
	}
}

// TestRecordWithConditions: when a node is complete, its record and its conditions are one request, unless one of them is refused. A node
// is never admitted by a request that changes its status.
func TestRecordWithConditions(t *testing.T) {
	for _, c := range []struct {
		name, denied     string // an expression about an update of the status
		wantRequests     string // for the node, of the pass that completes it
		wantsNoCondition bool
	}{
		{name: "nothing is refused", denied: "false", wantRequests: "PATCH nodes/n1/status"},
		{
			name: "metadata with the status is refused", denied: "object.metadata.?annotations != oldObject.metadata.?annotations",
			wantRequests: "PATCH nodes/n1/status, PATCH nodes/n1, PATCH nodes/n1/status",
		},
		{
			name: "conditions are refused", denied: "object.status.conditions.size() > 1", wantsNoCondition: true,
			wantRequests: "PATCH nodes/n1", // they were refused a moment ago
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScenario(t, 1)
			isDeniedNow := func() bool {
				patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}},"status":{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"True"}]}}`))
				return isDenied(s.Client.Status().Patch(context.Background(), s.GetNode("n1"), patch, client.DryRunAll))
			}
			allow := s.deny(admissionv1.Update, "nodes/status", c.denied)
			s.Eventually("the policy is in force", func() bool { return isDeniedNow() == (c.denied != "false") })
			s.Apply(demo)
			status := func() string { return s.GetNode("n1").Annotations[v1alpha1.PrefixStatus+"demo"] }
			var requests []string
			for i := 0; i < 20 && status() != string(v1alpha1.StatusComplete); i++ {
				s.requests.reset()
				s.step(time.Second)
				requests = slices.DeleteFunc(s.requests.list(), func(q string) bool { return !strings.Contains(q, "nodes/n1") })
				if node.Parse(s.GetNode("n1"), nil).Skyhook("demo").Record.Admitted && i < 2 && requests[0] != "PATCH nodes/n1" {
					t.Errorf("the node is admitted with %v", requests)
				}
			}
			if got := strings.Join(requests, ", "); got != c.wantRequests {
				t.Errorf("the node is %s with requests %s, want %s", status(), got, c.wantRequests)
			}
			n := node.Parse(s.GetNode("n1"), nil)
			if has := n.HasConditionReason("skyhook.nvidia.com/demo/NotReady", "Complete"); has == c.wantsNoCondition {
				t.Errorf("the condition is there: %v", has)
			}
			allow()
			s.Eventually("nothing is refused any more", func() bool { return !isDeniedNow() })
			s.now = s.now.Add(10 * time.Minute)
			s.finish()
			if n := node.Parse(s.GetNode("n1"), nil); !n.HasConditionReason("skyhook.nvidia.com/demo/NotReady", "Complete") {
				t.Error("in the end there is no condition")
			}
		})
	}
}

// TestWorkThatChangesNothing: it requests no pass, unless a pass left the node alone meanwhile.
func TestWorkThatChangesNothing(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(demo)
	requests := 0
	o, _ := s.decide(s.cluster)
	s.cluster.options.OnComplete = func(string) { requests++ }
	send := func(a rollout.Action, before func()) int {
		requests = 0
		p := s.cluster.newPass(o)
		work := &nodeWork{node: "n1", actions: []rollout.Action{a}}
		p.inFlight.add([]*nodeWork{work})
		before()
		p.startSending(context.Background(), []*nodeWork{work})
		s.cluster.WaitForInFlight()
		return requests
	}
	nothing := rollout.Action{Rollout: plan.Ref("demo"), Node: "n1", Verb: rollout.VerbSweep, Object: "gone"}
	if n := send(nothing, func() {}); n != 0 {
		t.Errorf("it requests %d passes", n)
	}
	if n := send(nothing, func() { s.cluster.inFlight.view() }); n != 1 {
		t.Errorf("after a pass left the node alone it requests %d passes", n)
	}
	if n := send(nothing, func() { s.cluster.AwaitInFlight(o.Objects, plan.Ref("other")) }); n != 0 {
		t.Errorf("though another rollout is awaited it requests %d passes", n)
	}
	admission := rollout.Action{Rollout: plan.Ref("demo"), Node: "n1", Verb: rollout.VerbAdmit}
	if n := send(admission, func() {}); n != 1 {
		t.Errorf("a change requests %d passes", n)
	}
	failure := rollout.Action{Rollout: plan.Ref("demo"), Node: "n1", Verb: rollout.VerbRecord, Task: "unknown|1.0.0/apply"}
	if n := send(failure, func() { _, _ = s.cluster.inFlight.takeOutcome() }); n != 1 {
		t.Errorf("an error after its outcome was taken requests %d passes", n)
	}
}
