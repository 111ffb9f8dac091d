// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// wayBack is a rollout that takes all nodes back when its packages fail on one.
const wayBack = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: driver}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}, matchExpressions: [{key: role, operator: NotIn, values: [validated]}]}
  interruptionBudget: {count: 1}
  rollback: {scope: Rollout}
  packages: {driver: {version: VERSION, image: registry.example/packages/driver, retries: 0}}
`

// validated is a rollout whose nodes are proven before they are given back.
const validated = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: network}
spec:
  nodeSelectors: {matchLabels: {role: validated}}
  interruptionBudget: {count: 1}
  proof: {nodeConditions: [example.com/Validated]}
  packages: {network: {version: 1.0.0, image: registry.example/packages/network, interrupt: {type: service, services: [network]}}}
`

// TestDumpOfRollback makes the dump rollback.yaml, of which testdata/from/rollback.txtar prints what the commands say: n1 and n2 are complete
// with the new packages, which fail on n3, n4 waits for them; and n5 is not proven, n6 waits for it.
func TestDumpOfRollback(t *testing.T) {
	s := newTestCluster(t, 6)
	for _, name := range []string{"n5", "n6"} {
		s.Patch(s.GetNode(name), `{"metadata":{"labels":{"role":"validated"}}}`)
	}
	stop := s.startOperator()
	s.Apply(strings.ReplaceAll(wayBack, "VERSION", "1.0.0"))
	s.WaitComplete("driver")
	s.kubelet.SetOutcome(func(p *corev1.Pod) testenv.Outcome {
		isOld := strings.Contains(p.Annotations[v1alpha1.AnnotationPackage], `"version":"1.0.0"`)
		switch stage := testenv.StageOf(p); {
		case p.Spec.NodeName == "n3" && !isOld && stage == "config":
			return testenv.Fails
		case p.Spec.NodeName == "n3" && isOld && strings.Contains(p.Annotations[v1alpha1.AnnotationPackage], "driver"):
			return testenv.Hangs // on its way back
		}
		return testenv.Succeeds
	})
	s.Apply(validated)
	s.Apply(strings.ReplaceAll(wayBack, "VERSION", "2.0.0"))
	s.Eventually("a node goes back, and one waits for its proof", func() bool {
		back, proof := s.GetNode("n3").Annotations, s.GetNode("n5").Annotations
		return strings.Contains(back[v1alpha1.PrefixRecord+"driver"], `"rollback":`) && s.runningStage("n3") == "apply" && strings.Contains(proof[v1alpha1.PrefixRecord+"network"], `"proving":`)
	})
	stop()
	file := filepath.Join(t.TempDir(), "dump.yaml")
	s.run(0, "dump", "--to", file)
	if *dumps {
		text, err := os.ReadFile(file)
		s.Must(err)
		s.Must(os.WriteFile("testdata/dumps/rollback.yaml", text, 0o600))
	}
	for command, want := range map[string]string{
		"why n3": "Working: on the way back: driver apply is running", "why n4": "RolledBack: no further node gets", "why n5": "Proof: condition example.com/Validated",
	} {
		if out := s.run(0, append(strings.Fields(command), "--from", file)...); !strings.Contains(out, want) {
			t.Errorf("%s does not say %q:\n%s", command, want, out)
		}
	}
}
