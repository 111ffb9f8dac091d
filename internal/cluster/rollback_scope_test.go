// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

func takingBack(version string) string {
	return strings.NewReplacer("rollback: {}", "rollback: {scope: Rollout}").Replace(undoableSkyhook(version, "echo hello"))
}

// followAll makes passes until nothing happens any more, and returns what ran on each node. A version fails on one node.
func (s *scenario) followAll(failsOn, version string) map[string]string {
	s.Helper()
	out := map[string][]string{}
	for idle, passes := 0, 0; idle < 4; passes++ {
		done := s.pass().AllActions()
		if inFlight := s.CountAdmitted(); inFlight > 1 {
			s.Fatalf("%d nodes are in flight with a budget of 1", inFlight)
		}
		for _, a := range done {
			if slices.Contains([]rollout.Verb{rollout.VerbRun, rollout.VerbRollback, rollout.VerbRetire}, a.Verb) {
				out[a.Node] = append(out[a.Node], strings.TrimSpace(string(a.Verb)+" "+strings.TrimPrefix(a.Task, "tuning|")))
			}
		}
		if idle++; len(done) > 0 {
			idle = 0
		}
		if passes > 200 {
			s.Fatalf("it does not end: %v", out)
		}
		s.now = s.now.Add(time.Second)
		s.SettlePodsWith(func(p *corev1.Pod) testenv.Outcome {
			if p.Spec.NodeName == failsOn && p.Labels[v1alpha1.LabelPackage] == "tuning-"+version && p.Labels[v1alpha1.LabelStage] == "config" {
				return testenv.Fails
			}
			return testenv.Succeeds
		})
	}
	texts := map[string]string{}
	for n, did := range out {
		texts[n] = strings.Join(did, ", ")
	}
	return texts
}

const (
	upgraded  = "run 1.2.0/upgrade, run 1.2.0/config, retire"
	undone    = "run 1.2.0/uninstall, run 1.1.0/apply, run 1.1.0/config, retire"
	installed = "run 1.1.0/apply, run 1.1.0/config, retire"
)

// TestRollbackOfRollout: when a node goes back, those that are complete with the same packages go back too, one after the other in the
// budget, and no further node gets them; also when the node on which they failed is gone. Other packages begin anew.
func TestRollbackOfRollout(t *testing.T) {
	s := newScenario(t, 4)
	s.Apply(takingBack("1.1.0"))
	for n, did := range s.followAll("", "") {
		if did != installed {
			t.Errorf("at first %s: %s", n, did)
		}
	}
	s.Apply(takingBack("1.2.0"))
	did := s.followAll("n3", "1.2.0")
	want := map[string]string{
		"n1": upgraded + ", " + undone,
		"n2": upgraded + ", " + undone,
		"n3": "run 1.2.0/upgrade, run 1.2.0/config, rollback, " + undone,
	}
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		if did[n] != want[n] {
			t.Errorf("%s: %s\nwant %s", n, did[n], want[n])
		}
	}
	s.requireVerdict("demo", "n1", "RolledBack: revision 2 failed, and the node went back to revision 1: they failed on n3: ")
	s.requireVerdict("demo", "n4", "RolledBack: no further node gets revision 2: they failed on n3: ")
	hook := s.GetSkyhook("demo")
	back := hook.Status.Rollback
	if back == nil || back.Revision != 2 || !slices.Equal(back.To, []int64{1}) || back.Nodes != 3 || back.NodesLeft != 0 || back.Since == nil {
		t.Errorf("the status has %+v", back)
	}
	if reason, message := s.readyCondition(); reason != "RolledBack" || !strings.Contains(message, "revision 2 failed: 3 nodes went back to revision 1") {
		t.Errorf("Ready says %s: %s", reason, message)
	}

	// The node on which it failed is replaced: nothing begins, on the new one neither.
	s.Must(s.Client.Delete(context.Background(), s.GetNode("n3")))
	for _, n := range []string{"n1", "n2"} { // and somebody removes what the others remember
		s.Patch(s.GetNode(n), `{"metadata":{"annotations":{"skyhook.nvidia.com/record_demo":null}}}`)
	}
	if did := s.followAll("", ""); strings.Contains(did["n4"], "1.2.0") {
		t.Errorf("after the node is gone: %v", did)
	}
	s.requireVerdict("demo", "n4", "RolledBack: no further node gets revision 2")

	s.Apply(takingBack("1.3.0"))
	did = s.followAll("", "")
	if did["n4"] != "run 1.3.0/upgrade, run 1.3.0/config, retire" {
		t.Errorf("after an edit: %v", did)
	}
	if hook := s.GetSkyhook("demo"); hook.Status.Rollback != nil || hook.Status.Status != v1alpha1.StatusComplete {
		t.Errorf("after an edit the status is %s, %+v", hook.Status.Status, hook.Status.Rollback)
	}
}

// TestRollbackOfLateNode: a node that joins after the rollout has ended takes nobody back.
func TestRollbackOfLateNode(t *testing.T) {
	s := newScenario(t, 2)
	s.Apply(takingBack("1.1.0"))
	s.followAll("", "")
	s.Apply(takingBack("1.2.0"))
	s.followAll("", "")
	s.now = s.now.Add(time.Hour)
	s.AddNode("n3", map[string]string{"pool": "gpu"})
	did := s.followAll("n3", "1.2.0")
	if len(did) != 1 || !strings.HasPrefix(did["n3"], "run 1.2.0/apply") {
		t.Errorf("what happened is %v", did)
	}
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
}
