// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const undoable = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {kubernetes.io/hostname: n1}}
  rollback: {ROLLBACK}
  packages: {tuning: {version: VERSION, image: registry.example/tuning}, shell: {version: 2.0.0, image: registry.example/shell}}
`

func undoableHook(version, options string) string {
	return strings.NewReplacer("VERSION", version, "ROLLBACK", options).Replace(undoable)
}

// startUpgrade has a node on which 1.0.0 was complete, and the upgrade to 1.1.0 hangs in its second stage.
func startUpgrade(t *testing.T, options string) (*testCluster, *v1alpha1.Skyhook) {
	w := newTestCluster(t)
	s := w.apply(undoableHook("1.0.0", options))
	w.addNode("n1")
	w.drive(s)
	s = w.apply(undoableHook("1.1.0", options))
	w.hangs["tuning|1.1.0/config"] = true
	w.drive(s)
	return w, s
}

func (w *testCluster) target(s *v1alpha1.Skyhook) rollout.Target {
	w.t.Helper()
	c := w.compile(s)
	if len(c.Rollout.Targets) != 1 {
		w.t.Fatalf("the targets are %+v", c.Rollout.Targets)
	}
	return *c.Rollout.Targets[0]
}

// rollBack records that the node goes back, and ends what runs there.
func (w *testCluster) rollBack(s *v1alpha1.Skyhook) {
	w.t.Helper()
	why := rollout.Why{Reason: rollout.ReasonStageFailed, Text: "config failed"}
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRollback, Node: "n1", Why: why})
	w.pods = nil
}

// TestRollback: a node whose upgrade fails goes back to what was complete there, from the definitions that were installed, once, and stays so
// until the packages change.
func TestRollback(t *testing.T) {
	w, s := startUpgrade(t, "")
	if is := w.target(s); !is.Rollback.IfFailed || !is.Rollback.IfUnproven || is.Rollback.IfOthers || is.Rollback.Cause != nil {
		t.Errorf("during the upgrade: %+v", is)
	}
	w.rollBack(s)
	is := w.target(s)
	if is.Rollback.Cause == nil || is.Rollback.IfFailed || is.Rollback.WithOthers || !strings.Contains(is.Rollback.Cause.Text, "the node goes back to an earlier revision: config failed") {
		t.Errorf("on its way back: %+v", is)
	}
	if got, want := w.drive(s), "n1 tuning|1.1.0/uninstall\nn1 tuning|1.0.0/apply\nn1 tuning|1.0.0/config"; got != want {
		t.Errorf("on its way back ran %q, want %q", got, want)
	}
	is = w.target(s)
	if is.Rollback.Cause == nil || is.Visit.Admitted || len(is.Tasks) > 0 || !strings.Contains(is.Rollback.Cause.Text, "the node went back to an earlier revision") {
		t.Errorf("when it is back: %+v", is)
	}
	if got := w.drive(s); got != "" {
		t.Errorf("it went back, and then ran %q", got)
	}
	s = w.apply(undoableHook("1.2.0", ""))
	if is := w.target(s); is.Rollback.Cause != nil || len(is.Tasks) == 0 {
		t.Errorf("with other packages: %+v", is)
	}
	if got, want := w.drive(s), "n1 tuning|1.2.0/upgrade\nn1 tuning|1.2.0/config"; got != want {
		t.Errorf("with other packages ran %q, want %q", got, want)
	}
}

// TestRollbackCauses: a node goes back for both causes, and without rollback only for the proof of the Skyhook that says so.
func TestRollbackCauses(t *testing.T) {
	w, s := startUpgrade(t, "")
	if is := w.target(s); !is.Rollback.IfFailed || !is.Rollback.IfUnproven {
		t.Errorf("with rollback: %+v", is)
	}
	s.Spec.Rollback = nil
	if is := w.target(s); is.Rollback.IfFailed || is.Rollback.IfUnproven {
		t.Errorf("without rollback it goes back: %+v", is)
	}
	late := &v1alpha1.Proof{OnTimeout: v1alpha1.ProofRollback}
	w.policy = &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Proof: late}}
	if is := w.target(s); is.Rollback.IfUnproven {
		t.Error("the proof of a policy decides what runs on a node")
	}
	s.Spec.Proof = late
	if is := w.target(s); !is.Rollback.IfUnproven {
		t.Error("the proof of the Skyhook does not roll back")
	}
	w, s = startUpgrade(t, "scope: Rollout")
	if is := w.target(s); !is.Rollback.IfOthers || !w.compile(s).Rollout.Rollback.Together {
		t.Errorf("with scope Rollout: %+v", is)
	}
}

// TestRollbackOfFirstInstall: nothing was complete before. What may be uninstalled is, with what depends on it; the rest stays.
func TestRollbackOfFirstInstall(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(undoableHook("1.0.0", ""))
	w.addNode("n1")
	w.hangs["tuning|1.0.0/config"] = true
	w.drive(s)
	if is := w.target(s); is.Rollback.IfFailed {
		t.Errorf("nothing may be uninstalled, and it goes back: %+v", is)
	}
	w = newTestCluster(t)
	s = w.apply(strings.Replace(undoableHook("1.0.0", ""), "image: registry.example/tuning", "image: registry.example/tuning, uninstall: {enabled: true}", 1))
	w.addNode("n1")
	w.hangs["tuning|1.0.0/config"] = true
	w.drive(s)
	if is := w.target(s); !is.Rollback.IfFailed {
		t.Errorf("one may be uninstalled, and it does not go back: %+v", is)
	}
	w.rollBack(s)
	if got := w.drive(s); got != "n1 tuning|1.0.0/uninstall" {
		t.Errorf("on its way back ran %q", got)
	}
	if is := w.target(s); is.Rollback.Cause == nil || !strings.Contains(is.Rollback.Cause.Text, "its packages were uninstalled") {
		t.Errorf("when it is back: %+v", is)
	}
}

// TestRerunGoesNowhere: a node on which a package is only run again has nothing to go back to, whether others are there or not.
func TestRerunGoesNowhere(t *testing.T) {
	for _, stage := range []v1alpha1.Stage{"", v1alpha1.StageConfig} {
		w := newTestCluster(t)
		s := w.apply(undoableHook("1.0.0", ""))
		w.addNode("n1")
		w.drive(s)
		s = w.apply(undoableHook("1.1.0", ""))
		w.drive(s)
		w.compile(s)
		e, err := w.parsed["n1"].Rerun("demo", "tuning", "1.1.0", stage)
		if err != nil {
			t.Fatal(err)
		}
		w.write("n1", e)
		w.hangs["tuning|1.1.0/config"] = true
		w.drive(s)
		if is := w.target(s); !is.Visit.Admitted || is.Rollback != (rollout.Rollback{}) {
			t.Errorf("while stage %q is run again: admitted %v, %+v", stage, is.Visit.Admitted, is.Rollback)
		}
		w.hangs = map[string]bool{}
		w.drive(s)
		s = w.apply(undoableHook("1.2.0", ""))
		w.hangs["tuning|1.2.0/config"] = true
		w.drive(s)
		if is := w.target(s); !is.Rollback.IfFailed {
			t.Errorf("with other packages after that: %+v", is.Rollback)
		}
	}
}

// TestBackMarkEnds: a node went back from 1.1.0, a person asks for 1.0.0, mends what 1.1.0 needs, and asks for it again. The mark ended with
// the first change, so it is tried again, and so are repairs of drift meanwhile.
func TestBackMarkEnds(t *testing.T) {
	w, s := startUpgrade(t, "")
	w.rollBack(s)
	w.drive(s)
	s = w.apply(undoableHook("1.0.0", ""))
	w.compile(s)
	rec, err := node.ParseSkyhookRecord(w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"])
	if err != nil || rec.Rollback != nil {
		t.Errorf("with other packages it records %+v, %v", rec.Rollback, err)
	}
	w.hangs = map[string]bool{}
	s = w.apply(undoableHook("1.1.0", ""))
	if got, want := w.drive(s), "n1 tuning|1.1.0/upgrade\nn1 tuning|1.1.0/config"; got != want {
		t.Errorf("asked for again it ran %q, want %q", got, want)
	}
}

// TestFirstRollbackIsLost: the record of the node that failed was never written, and the node is gone. Those that went back with it still
// keep the packages from all others.
func TestFirstRollbackIsLost(t *testing.T) {
	w, s := startUpgrade(t, "scope: Rollout")
	why := rollout.Why{Reason: rollout.ReasonRolledBack, Text: "no further node gets these packages: they failed, and n0 goes or went back"}
	w.applyAction(w.compile(s), rollout.Action{Verb: rollout.VerbRollback, Node: "n1", Why: why})
	w.pods = nil
	cause := w.compile(s).Rollout.Rollback.Cause
	if cause == nil || !strings.Contains(cause.Text, "n0 goes or went back") {
		t.Errorf("what stops the others is %+v", cause)
	}
}

// TestResetIsNoFirstInstall: when somebody removed the nodeState of a node, its packages are applied again. If that fails, nothing is
// uninstalled: they were there before.
func TestResetIsNoFirstInstall(t *testing.T) {
	mayUninstall := func(version string) string {
		return strings.Replace(undoableHook(version, ""), "image: registry.example/tuning", "image: registry.example/tuning, uninstall: {enabled: true}", 1)
	}
	for _, then := range []string{"1.0.0", "1.1.0"} { // the same again, or an edit at the same time
		w := newTestCluster(t)
		s := w.apply(mayUninstall("1.0.0"))
		w.addNode("n1")
		w.drive(s)
		s = w.apply(mayUninstall(then))
		w.compile(s)
		w.write("n1", w.parsed["n1"].Restart("demo"))
		w.hangs["tuning|"+then+"/config"] = true
		w.drive(s)
		if is := w.target(s); !is.Visit.Admitted || is.Rollback != (rollout.Rollback{}) {
			t.Errorf("after the reset, with %s: admitted %v, %+v", then, is.Visit.Admitted, is.Rollback)
		}
	}
}

// TestRollbackRefused: a package that would be changed refuses; one that this rollout did not change does not count.
func TestRollbackRefused(t *testing.T) {
	w, s := startUpgrade(t, "")
	refuse := func(name string) string {
		rec, err := node.ParseSkyhookRecord(w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"])
		if err != nil {
			t.Fatal(err)
		}
		for key, p := range rec.Packages {
			p.Refuses = strings.HasPrefix(key, name+"|")
		}
		w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"] = rec.String()
		w.bumpVersion(w.node("n1"))
		return w.target(s).Rollback.Refused
	}
	if got := refuse("shell"); got != "" {
		t.Errorf("a package that is as before refuses: %s", got)
	}
	if got, want := refuse("tuning"), "the node does not go back, because package tuning 1.1.0 refuses that in its config.json"; got != want {
		t.Errorf("the refusal is %q, want %q", got, want)
	}
}

// TestRollbackWithoutDefinitions: what was complete is not known any more, so there is no way back.
func TestRollbackWithoutDefinitions(t *testing.T) {
	w, s := startUpgrade(t, "")
	rec, err := node.ParseSkyhookRecord(w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"])
	if err != nil {
		t.Fatal(err)
	}
	rec.Complete["tuning"] = "unknown"
	w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"] = rec.String()
	w.bumpVersion(w.node("n1"))
	if is := w.target(s); is.Rollback.IfFailed {
		t.Errorf("it goes back to what is not known: %+v", is)
	}
}

// TestRollbackOfSamePackages: a stage that runs again, as a repair does, leads back to nothing else.
func TestRollbackOfSamePackages(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(undoableHook("1.0.0", ""))
	w.addNode("n1")
	w.drive(s)
	e, err := node.Parse(w.node("n1").DeepCopy(), nil).Rerun("demo", "tuning", "1.0.0", v1alpha1.StageConfig)
	if err != nil {
		t.Fatal(err)
	}
	w.write("n1", e)
	w.hangs["tuning|1.0.0/config"] = true
	if got := w.drive(s); got != "n1 tuning|1.0.0/config" {
		t.Errorf("it ran %q", got)
	}
	if is := w.target(s); !is.Visit.Admitted || is.Rollback.IfFailed || is.Rollback.IfUnproven {
		t.Errorf("it goes back to what it has: %+v", is)
	}
	w, _ = startUpgrade(t, "")
	s = w.apply(undoableHook("1.0.0", "")) // a person undoes the upgrade
	if is := w.target(s); !is.Visit.Admitted || is.Rollback.IfFailed || is.Rollback.IfUnproven {
		t.Errorf("it goes back to what is asked for: %+v", is)
	}
}

// TestUnprovenIsNotComplete: what was given back unproven is nothing that a node goes back to.
func TestUnprovenIsNotComplete(t *testing.T) {
	w := newTestCluster(t)
	s := w.apply(undoableHook("1.0.0", ""))
	w.addNode("n1")
	w.drive(s)
	rec, err := node.ParseSkyhookRecord(w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"])
	if err != nil {
		t.Fatal(err)
	}
	rec.Unproven = true
	w.node("n1").Annotations[v1alpha1.PrefixRecord+"demo"] = rec.String()
	w.bumpVersion(w.node("n1"))
	s = w.apply(undoableHook("1.1.0", ""))
	w.hangs["tuning|1.1.0/config"] = true
	w.drive(s)
	if is := w.target(s); is.Rollback.IfFailed {
		t.Errorf("it goes back to what was not proven: %+v", is)
	}
}
