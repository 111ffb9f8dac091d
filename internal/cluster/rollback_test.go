// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// undoable is a Skyhook whose nodes go back.
const undoable = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  interruptionBudget: {count: 1}
  rollback: {}
  packages:
    tuning:
      version: VERSION
      image: registry.example/packages/shellscript
      retries: 0
      configMap: {apply.sh: "CONTENT"}
`

func undoableSkyhook(version, content string) string {
	return strings.NewReplacer("VERSION", version, "CONTENT", content).Replace(undoable)
}

// follow makes passes until nothing happens any more, and returns what happened to a node. The pods of a package and stage fail, until
// the node goes back.
func (s *scenario) follow(nodeName, failing string) string {
	s.Helper()
	var out []string
	for idle := 0; idle < 4; {
		done := s.pass().AllActions()
		for _, a := range done {
			if a.Node == nodeName && slices.Contains([]rollout.Verb{rollout.VerbRun, rollout.VerbRollback, rollout.VerbRetire}, a.Verb) {
				if a.Verb == rollout.VerbRollback {
					failing = ""
				}
				out = append(out, strings.TrimSpace(string(a.Verb)+" "+strings.TrimPrefix(a.Task, "tuning|")))
			}
		}
		idle++
		if len(done) > 0 {
			idle = 0
		}
		if len(out) > 40 {
			s.Fatalf("it does not end: %s", strings.Join(out, ", "))
		}
		s.now = s.now.Add(time.Second)
		s.SettlePodsWith(func(p *corev1.Pod) testenv.Outcome {
			if refused := strings.TrimPrefix(failing, "refusing "); refused != failing && p.Labels[v1alpha1.LabelPackage]+" "+p.Labels[v1alpha1.LabelStage] == refused {
				return testenv.Refuses
			}
			if failing != "" && p.Labels[v1alpha1.LabelPackage]+" "+p.Labels[v1alpha1.LabelStage] == failing {
				return testenv.Fails
			}
			return testenv.Succeeds
		})
	}
	return strings.Join(out, ", ")
}

// readyCondition returns reason and message of the condition Ready of the Skyhook demo.
func (s *scenario) readyCondition() (reason, message string) {
	s.Helper()
	ready := meta.FindStatusCondition(s.GetSkyhook("demo").Status.Conditions, v1alpha1.ConditionReady)
	return ready.Reason, ready.Message
}

// TestRollback: a node on which an upgrade fails for good goes back to what was complete there, by an uninstallation of the new and an
// installation of the old version, once, and stays a failure until other packages are asked for.
func TestRollback(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(undoableSkyhook("1.1.0", "echo hello"))
	s.follow("n1", "")
	before := s.entryOf("n1", "tuning|1.1.0")

	s.Apply(undoableSkyhook("1.2.0", "echo hello"))
	happened := s.follow("n1", "tuning-1.2.0 config")
	if want := "run 1.2.0/upgrade, run 1.2.0/config, rollback, run 1.2.0/uninstall, run 1.1.0/apply, run 1.1.0/config, retire"; happened != want {
		t.Errorf("what happened is %s\nwant %s", happened, want)
	}
	if after := s.entryOf("n1", "tuning|1.1.0"); after != before || len(node.Parse(s.GetNode("n1"), nil).Skyhook("demo").State) != 1 {
		t.Errorf("the node has %v, and had %v", node.Parse(s.GetNode("n1"), nil).Skyhook("demo").State, before)
	}
	s.requireVerdict("demo", "n1", "RolledBack: revision 2 failed, and the node went back to revision 1: ")
	if reason, message := s.readyCondition(); reason != "RolledBack" || !strings.Contains(message, "n1: revision 2 failed, and the node went back to revision 1") {
		t.Errorf("Ready says %s: %s", reason, message)
	}
	if s.GetSkyhook("demo").Spec.Packages["tuning"].Version != "1.2.0" {
		t.Error("the spec was changed")
	}

	n1 := s.GetNode("n1")
	again, err := node.Parse(n1, nil).Rerun("demo", "tuning", "1.2.0", "") // tries the same again
	s.Must(err)
	raw, err := json.Marshal(again.MergePatch(node.Parse(n1, nil)))
	s.Must(err)
	s.Patch(n1, string(raw))
	if happened := s.follow("n1", "tuning-1.2.0 upgrade"); !strings.HasPrefix(happened, "run 1.2.0/upgrade, rollback, ") || !strings.HasSuffix(happened, "run 1.1.0/config, retire") {
		t.Errorf("after a rerun: %s", happened)
	}

	s.Apply(undoableSkyhook("1.3.0", "echo hello")) // begins anew
	if happened := s.follow("n1", ""); happened != "run 1.3.0/upgrade, run 1.3.0/config, retire" {
		t.Errorf("after an edit: %s", happened)
	}
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
}

// TestRollbackOfConfig: when only the configMap changed, only that goes back.
func TestRollbackOfConfig(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(undoableSkyhook("1.1.0", "echo hello"))
	s.follow("n1", "")
	s.Apply(undoableSkyhook("1.1.0", "echo broken"))
	if happened := s.follow("n1", "tuning-1.1.0 config"); happened != "run 1.1.0/config, rollback, run 1.1.0/config, retire" {
		t.Errorf("what happened is %s", happened)
	}
	s.requireVerdict("demo", "n1", "RolledBack: revision 2 failed")
}

// TestRefusedRollback: a package whose config.json refuses it stays as the failure left it, which the reason says. What stands on the node
// is enough: the pod is gone then.
func TestRefusedRollback(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(undoableSkyhook("1.1.0", "echo hello"))
	s.follow("n1", "")
	s.Apply(undoableSkyhook("1.2.0", "echo hello"))
	if happened := s.follow("n1", "refusing tuning-1.2.0 config"); happened != "run 1.2.0/upgrade, run 1.2.0/config" {
		t.Errorf("what happened is %s", happened)
	}
	const refusal = "the node does not go back, because package tuning 1.2.0 refuses that in its config.json"
	s.requireVerdict("demo", "n1", "StageFailed: step set exited with 1; it is not retried until its definition changes; "+refusal)
	s.deletePackagePods()
	s.pass()
	s.requireVerdict("demo", "n1", "StageFailed: ")
	if _, message := s.readyCondition(); !strings.Contains(message, refusal) {
		t.Errorf("Ready says %s", message)
	}
}

// deletePackagePods deletes all pods of packages, as somebody might.
func (s *scenario) deletePackagePods() {
	s.Helper()
	pods := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), pods, client.InNamespace(s.Namespace)))
	for _, p := range pods.Items {
		s.Must(s.Client.Delete(context.Background(), &p, client.GracePeriodSeconds(0)))
	}
}

// firstInstall is a Skyhook of which two packages may be uninstalled: one that fails, and one that another package needs.
const firstInstall = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  interruptionBudget: {count: 1}
  rollback: {}
  packages:
    base: {version: 1.0.0, image: registry.example/packages/base, uninstall: {enabled: true}}
    stays: {version: 1.0.0, image: registry.example/packages/stays, dependsOn: {base: 1.0.0}}
    tuning: {version: VERSION, image: registry.example/packages/tuning, dependsOn: {stays: 1.0.0}, uninstall: {enabled: true}, retries: 0}
`

// TestFirstInstallIsUninstalled: when nothing was complete before, what may be uninstalled is, once. What may not stays, and so does what
// that needs. Other packages begin anew.
func TestFirstInstallIsUninstalled(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(strings.ReplaceAll(firstInstall, "VERSION", "1.1.0"))
	happened := s.follow("n1", "tuning-1.1.0 config")
	if _, after, _ := strings.Cut(happened, "rollback"); after != ", run 1.1.0/uninstall, retire" {
		t.Errorf("what happened is %s", happened)
	}
	n1 := node.Parse(s.GetNode("n1"), nil)
	if state := n1.Skyhook("demo").State; len(state) != 2 || state["base|1.0.0"].State != v1alpha1.StateComplete || state["stays|1.0.0"].State != v1alpha1.StateComplete {
		t.Errorf("the node has %v", state)
	}
	s.requireVerdict("demo", "n1", "RolledBack: revision 1 failed, and its packages were uninstalled: ")
	if reason, message := s.readyCondition(); reason != "RolledBack" || !strings.Contains(message, "n1: revision 1 failed, and its packages were uninstalled") {
		t.Errorf("Ready says %s: %s", reason, message)
	}

	again, err := n1.Rerun("demo", "tuning", "1.1.0", "")
	s.Must(err)
	raw, err := json.Marshal(again.MergePatch(n1))
	s.Must(err)
	s.Patch(s.GetNode("n1"), string(raw))
	if happened := s.follow("n1", "tuning-1.1.0 apply"); happened != "run 1.1.0/apply, rollback, run 1.1.0/uninstall, retire" {
		t.Errorf("after a rerun: %s", happened)
	}
	s.Apply(strings.ReplaceAll(firstInstall, "VERSION", "1.2.0"))
	if happened := s.follow("n1", ""); happened != "run 1.2.0/apply, run 1.2.0/config, retire" {
		t.Errorf("after an edit: %s", happened)
	}
	s.requireVerdict("demo", "n1", "Finished: no work is pending")
}

// TestLateRollback: a node that was admitted before rollback was asked for has nothing to go back to, and nothing on it is uninstalled.
func TestLateRollback(t *testing.T) {
	s := newScenario(t, 1)
	late := strings.NewReplacer("VERSION", "1.1.0", "  rollback: {}\n", "").Replace(firstInstall)
	s.Apply(late)
	s.pass()
	s.Apply(strings.ReplaceAll(firstInstall, "VERSION", "1.1.0"))
	if happened := s.follow("n1", "tuning-1.1.0 config"); strings.Contains(happened, "rollback") || strings.Contains(happened, "uninstall") {
		t.Errorf("what happened is %s", happened)
	}
	s.requireVerdict("demo", "n1", "StageFailed: ")
}

// TestFirstInstallWithoutUninstall: there is nothing to go back to, and nothing that may be uninstalled: the node stays as it is.
func TestFirstInstallWithoutUninstall(t *testing.T) {
	s := newScenario(t, 1)
	s.Apply(undoableSkyhook("1.1.0", "echo hello"))
	if happened := s.follow("n1", "tuning-1.1.0 config"); happened != "run 1.1.0/apply, run 1.1.0/config" {
		t.Errorf("what happened is %s", happened)
	}
	s.requireVerdict("demo", "n1", "StageFailed: ")
}
