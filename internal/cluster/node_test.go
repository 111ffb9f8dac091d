// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
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
		return rollout.Action{Rollout: skyhook.Ref(name), Node: "n1", Verb: verb, Task: "unknown|1.0.0/apply"}
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
		p.startSending(context.Background(), []*nodeWork{work}, false)
		s.cluster.WaitForInFlight()
		return requests
	}
	nothing := rollout.Action{Rollout: skyhook.Ref("demo"), Node: "n1", Verb: rollout.VerbSweep, Object: "gone"}
	if n := send(nothing, func() {}); n != 0 {
		t.Errorf("it requests %d passes", n)
	}
	if n := send(nothing, func() { s.cluster.inFlight.view() }); n != 1 {
		t.Errorf("after a pass left the node alone it requests %d passes", n)
	}
	if n := send(nothing, func() { s.cluster.AwaitInFlight(o, skyhook.Ref("other")) }); n != 0 {
		t.Errorf("though another rollout is awaited it requests %d passes", n)
	}
	admission := rollout.Action{Rollout: skyhook.Ref("demo"), Node: "n1", Verb: rollout.VerbAdmit}
	if n := send(admission, func() {}); n != 1 {
		t.Errorf("a change requests %d passes", n)
	}
	failure := rollout.Action{Rollout: skyhook.Ref("demo"), Node: "n1", Verb: rollout.VerbRecord, Task: "unknown|1.0.0/apply"}
	if n := send(failure, func() { _, _ = s.cluster.inFlight.takeOutcome() }); n != 1 {
		t.Errorf("an error after its outcome was taken requests %d passes", n)
	}
}
