// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

func (s *scenario) findDriftPods() []corev1.Pod {
	s.Helper()
	l := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), l, client.HasLabels{v1alpha1.LabelDrift}))
	return slices.DeleteFunc(l.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// endDrifts is what kubelets report when the agents of all running checks have ended.
func (s *scenario) endDrifts(exit int32, m *pack.Message) {
	s.Helper()
	message := ""
	if m != nil {
		message = string(m.Encode())
	}
	for _, p := range s.findDriftPods() {
		if p.Status.Phase == corev1.PodPending {
			s.Must(s.EndPod(context.Background(), &p, exit, message, time.Now()))
		}
	}
}

// endDrift is endDrifts when one check runs.
func (s *scenario) endDrift(exit int32, m *pack.Message) {
	s.Helper()
	pods := slices.DeleteFunc(s.findDriftPods(), func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodPending })
	if len(pods) != 1 {
		s.Fatalf("%d checks for drift run", len(pods))
	}
	s.endDrifts(exit, m)
}

// checkDrift lets the time pass until the next check, which finds something.
func (s *scenario) checkDrift(every time.Duration, found *pack.Drift) {
	s.Helper()
	s.now = s.now.Add(every)
	s.pass()
	s.pass()
	s.endDrift(0, &pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "tuning", Drift: found})
	s.pass()
}

func (s *scenario) driftCondition(hook string) string {
	s.Helper()
	c := meta.FindStatusCondition(s.GetSkyhook(hook).Status.Conditions, v1alpha1.ConditionDrifted)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func (s *scenario) requireDrift(want string) {
	s.Helper()
	if got := s.driftCondition("demo"); !strings.HasPrefix(got, want) {
		s.Errorf("the condition is %q, want %q", got, want)
	}
}

func withDrift(text string) string {
	return strings.Replace(demo, "  packages:", "  drift: "+text+"\n  packages:", 1)
}

// TestDrift: a complete node is checked within the interval by a pod that mounts the host read-only too. What it finds is in the
// condition and on the node; the pod stays as long as its log shows what changed.
func TestDrift(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(withDrift("{every: 1h}"))
	s.passUntilComplete("demo")
	s.requireDrift("False NoDrift: every package that was checked is as it was left")

	s.now = s.now.Add(time.Hour)
	s.pass()
	pods := s.findDriftPods()
	if len(pods) != 1 {
		t.Fatalf("%d pods check the node", len(pods))
	}
	c := pods[0].Spec.Containers[0]
	if len(pods[0].Spec.Containers) != 1 || c.Image != "registry.example/agent:v1" || c.Args[0] != "drift" || c.Args[1] != "/root" || !strings.HasPrefix(c.Args[2], "/var/lib/skyhook/demo/tuning-1.1.0-") {
		t.Errorf("the container is %+v", c)
	}
	isReadOnly := func(m corev1.VolumeMount) bool {
		return m.MountPath == "/root-read-only" && m.ReadOnly && m.RecursiveReadOnly != nil
	}
	if !slices.ContainsFunc(c.VolumeMounts, isReadOnly) || !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == pack.EnvDriftChecks && e.Value == "apply-check,config-check"
	}) {
		t.Errorf("the mounts are %+v, the environment %+v", c.VolumeMounts, c.Env)
	}
	s.endDrift(0, &pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "tuning", Drift: &pack.Drift{Ran: []pack.Mode{pack.ModeApplyCheck}}})
	s.passes(2)
	if left := s.findDriftPods(); len(left) > 0 {
		t.Errorf("nothing drifted, and %s is left", left[0].Name)
	}
	s.requireDrift("False NoDrift")

	changed := &pack.Drift{Files: []pack.DriftFile{{Path: "/etc/a", What: pack.DriftChanged}}, Total: 1}
	s.checkDrift(time.Hour, changed)
	s.pass()
	s.requireDrift("True NodesDrifted: packages are not as they were left on 1 node: [n1]; n1: package tuning 1.1.0: delivered files differ: /etc/a (changed)")
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
	if got := s.GetSkyhook("demo").Status.Status; got != v1alpha1.StatusComplete {
		t.Errorf("the status is %s", got)
	}
	rec, err := node.ParseDriftRecord(s.GetNode("n1").Annotations[v1alpha1.PrefixDrift+"demo"])
	if left := s.findDriftPods(); err != nil || len(left) != 1 || left[0].Name != rec.Pod || len(rec.Drifted()) != 1 {
		t.Errorf("the pods are %v, the record is %+v, %v", left, rec, err)
	}

	s.checkDrift(time.Hour, changed)
	s.pass()
	again, _ := node.ParseDriftRecord(s.GetNode("n1").Annotations[v1alpha1.PrefixDrift+"demo"])
	if left := s.findDriftPods(); len(left) != 1 || left[0].Name != again.Pod || again.Pod == rec.Pod {
		t.Errorf("after another check the pods are %v", left)
	}
	if !again.Packages["tuning|1.1.0"].Since.Equal(rec.Packages["tuning|1.1.0"].Since) {
		t.Error("it is not known since when it has drifted")
	}

	// An agent of an earlier version, and one that cannot look.
	s.now = s.now.Add(time.Hour)
	s.pass()
	s.endDrift(0, nil)
	s.passes(2)
	s.requireDrift("False NoDrift: every package that was checked is as it was left; packages cannot be checked on 1 node: [n1]; n1: package tuning 1.1.0: the agent of the package is of a version that cannot check for drift")

	s.Patch(s.GetSkyhook("demo"), `{"spec":{"drift":null}}`)
	s.passes(3)
	if left := s.findDriftPods(); len(left) > 0 || s.driftCondition("demo") != "none" {
		t.Errorf("without drift the pods are %v, the condition %s", left, s.driftCondition("demo"))
	}
	if _, isThere := s.GetNode("n1").Annotations[v1alpha1.PrefixDrift+"demo"]; isThere {
		t.Error("without drift the annotation is left")
	}
}

// TestDriftRepair: what drifted runs again from the stage whose check failed, once, and at most three times a day.
func TestDriftRepair(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(withDrift("{every: 10m, mode: Repair}"))
	s.passUntilComplete("demo")
	failed := &pack.Drift{Checks: []pack.Mode{pack.ModeConfigCheck}, Ran: []pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck}}
	for i := range 3 {
		s.checkDrift(10*time.Minute, failed)
		if rec, err := node.ParseDriftRecord(s.GetNode("n1").Annotations[v1alpha1.PrefixDrift+"demo"]); err != nil || rec.Packages["tuning|1.1.0"].Repair != "config" {
			t.Errorf("the record is %+v, %v", rec, err)
		}
		ran := s.follow("n1", "")
		if want := "run 1.1.0/config, retire"; ran != want {
			t.Errorf("repair %d: %s, want %s", i+1, ran, want)
		}
		s.requireDrift("False NoDrift")
	}
	s.checkDrift(10*time.Minute, failed)
	s.pass()
	s.requireDrift("True NodesDrifted: packages are not as they were left on 1 node: [n1]; n1: package tuning 1.1.0: it drifts again after three repairs within a day, and is only reported: config-check failed")
	if ran := s.follow("n1", ""); ran != "" {
		t.Errorf("after three repairs: %s", ran)
	}

	// What apply delivered is delivered again, and configured.
	s.checkDrift(24*time.Hour, &pack.Drift{Files: []pack.DriftFile{{Path: "/etc/a", What: pack.DriftMissing}}, Total: 1})
	if ran, want := s.follow("n1", ""), "run 1.1.0/apply, run 1.1.0/config, retire"; ran != want {
		t.Errorf("it ran %s, want %s", ran, want)
	}
}

// TestDriftYields: a node on which somebody begins to work is not checked any more, and a deleted Skyhook waits for no check.
func TestDriftYields(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(withDrift("{every: 10m}"))
	s.passUntilComplete("demo")
	s.now = s.now.Add(10 * time.Minute)
	s.pass()
	if len(s.findDriftPods()) != 1 {
		t.Fatal("the node is not checked")
	}
	s.Patch(s.GetSkyhook("demo"), `{"spec":{"packages":{"tuning":{"configMap":{"apply.sh":"echo again"}}}}}`)
	s.passes(2)
	if left := s.findDriftPods(); len(left) > 0 {
		t.Errorf("the node is worked on, and %s checks it", left[0].Name)
	}
	s.passUntilComplete("demo")
	s.now = s.now.Add(10 * time.Minute)
	s.pass()
	s.Must(s.Client.Delete(context.Background(), s.GetSkyhook("demo")))
	for range 10 {
		s.pass()
		s.now = s.now.Add(time.Second)
		s.SettlePods()
	}
	if left := s.findDriftPods(); len(left) > 0 {
		t.Errorf("%s is left of a deleted Skyhook", left[0].Name)
	}
	if _, isThere := s.GetNode("n1").Annotations[v1alpha1.PrefixDrift+"demo"]; isThere {
		t.Error("the annotation is left")
	}
}

// TestDriftRequests: a check makes three write requests when nothing drifted, and none to the Skyhook; as many when something did that
// is only reported, and the status once.
func TestDriftRequests(t *testing.T) {
	s := newScenario(t, 3)
	s.Apply(withDrift("{every: 1h}"))
	s.passUntilComplete("demo")
	s.passes(5)
	round := func(m *pack.Message) map[string]int {
		t.Helper()
		s.requests.reset()
		s.now = s.now.Add(time.Hour)
		s.pass()
		s.pass()
		s.endDrifts(0, m)
		for range 5 {
			s.pass()
			s.now = s.now.Add(time.Second)
		}
		count := map[string]int{}
		for _, r := range s.requests.list() {
			if strings.HasPrefix(r, "DELETE pods/") {
				r = "DELETE pods"
			}
			count[r]++
		}
		return count
	}
	fine := &pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "tuning", Drift: &pack.Drift{}}
	drifted := &pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "tuning", Drift: &pack.Drift{Checks: []pack.Mode{pack.ModeApplyCheck}}}
	perCheck := map[string]int{"POST pods": 3, "PATCH nodes/n1": 1, "PATCH nodes/n2": 1, "PATCH nodes/n3": 1, "DELETE pods": 3}
	for range 2 {
		if d := cmp.Diff(perCheck, round(fine)); d != "" {
			t.Errorf("nothing drifted; requests (-want +got):\n%s", d)
		}
	}
	got := round(drifted)
	if status := got["PATCH skyhooks/demo/status"]; status < 1 || status > 2 {
		t.Errorf("the status was written %d times", status)
	}
	delete(got, "PATCH skyhooks/demo/status")
	if d := cmp.Diff(map[string]int{"POST pods": 3, "PATCH nodes/n1": 1, "PATCH nodes/n2": 1, "PATCH nodes/n3": 1}, got); d != "" {
		t.Errorf("it drifted; requests (-want +got):\n%s", d)
	}
	if d := cmp.Diff(perCheck, round(drifted)); d != "" { // the pods of the checks before go
		t.Errorf("it drifted before; requests (-want +got):\n%s", d)
	}
}

// TestDriftRepairsWait: what drifted is repaired within the budget, one node after the other.
func TestDriftRepairsWait(t *testing.T) {
	s := newScenario(t, 3)
	s.Apply(strings.Replace(withDrift("{every: 1h, mode: Repair}"), "spec:", "spec:\n  interruptionBudget: {count: 1}", 1))
	s.passUntilComplete("demo")
	s.now = s.now.Add(time.Hour)
	s.pass()
	s.pass()
	s.endDrifts(0, &pack.Message{Mode: pack.ModeDrift, Outcome: pack.Succeeded, Package: "tuning", Drift: &pack.Drift{Checks: []pack.Mode{pack.ModeConfigCheck}}})
	waited := false
	for range 30 {
		s.passes(1)
		if s.CountAdmitted() > 1 {
			t.Fatalf("%d nodes are repaired at the same time, with a budget of 1", s.CountAdmitted())
		}
		waited = waited || strings.HasPrefix(s.verdict("demo", "n3"), "Budget: ")
	}
	if !waited {
		t.Error("no node waited for the budget")
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		rec, err := node.ParseDriftRecord(s.GetNode(n).Annotations[v1alpha1.PrefixDrift+"demo"])
		if err != nil || len(rec.Repairs["tuning"]) != 1 {
			t.Errorf("the record of %s is %+v, %v", n, rec, err)
		}
	}
	s.requireDrift("False NoDrift")
	s.requireVerdict("demo", "n3", "Finished: no work is pending")
}
