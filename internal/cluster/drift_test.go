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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// endDrift is what a kubelet reports when the agent of the only running check has ended.
func (s *scenario) endDrift(exit int32, m *pack.Message) {
	s.Helper()
	pods := slices.DeleteFunc(s.findDriftPods(), func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodPending })
	if len(pods) != 1 {
		s.Fatalf("%d checks for drift run", len(pods))
	}
	p := pods[0].DeepCopy()
	ended := &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.Now()}
	if m != nil {
		ended.Message = string(m.Encode())
	}
	p.Status.Phase = corev1.PodSucceeded
	if exit != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: ended}}}
	s.Must(s.Client.Status().Patch(context.Background(), p, client.MergeFrom(&pods[0])))
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
	isReadOnly := func(m corev1.VolumeMount) bool { return m.MountPath == "/root-read-only" && m.ReadOnly }
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
