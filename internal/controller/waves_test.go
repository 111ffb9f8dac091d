// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const inWaves = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: waves}
spec:
  compartments:
  - {name: canary, selector: {}, canary: {count: 1}, budget: {count: 1}}
  default: {budget: {percent: 100}, strategy: {fixed: {initialBatch: 9}}, after: [canary], approval: Required}
`

// TestWaves: the rest begins when the canary is complete and a person approved this revision; another revision needs another approval.
func TestWaves(t *testing.T) {
	w := newFixture(t, 3)
	w.Apply(inWaves)
	w.Apply(strings.Replace(driver, "interruptionBudget: {count: 1}", "deploymentPolicy: waves", 1))
	w.startOperator()
	waits := func(reason string) func() bool {
		return func() bool {
			ready := meta.FindStatusCondition(w.GetSkyhook("driver").Status.Conditions, v1alpha1.ConditionReady)
			return ready != nil && strings.HasPrefix(ready.Message, "1/3 nodes complete") && strings.Contains(ready.Message, reason)
		}
	}
	w.Eventually("the canary is complete, and an approval is waited for", waits("(kubectl skyhook approve skyhook/driver default)"))
	if began := w.CountAdmitted(); began != 0 {
		t.Errorf("%d nodes are in progress without an approval", began)
	}
	w.approve("driver", "0123456789abcdef")
	w.Eventually("the approval of something else is named", waits("the approval by alice is for something else"))
	w.approve("driver", revisionOf(t, w, "driver"))
	w.WaitComplete("driver")
	w.Patch(w.GetSkyhook("driver"), `{"spec":{"packages":{"kernel":{"version":"1.0.1"}}}}`)
	w.Eventually("the next revision waits again", waits("the approval by alice is for something else"))
	if got := w.kubelet.MostAdmitted(); got > 2 {
		t.Errorf("%d nodes were in flight at the same time", got)
	}
}

// approve approves the nodes that no compartment selects, as kubectl skyhook approve does.
func (w *fixture) approve(skyhook, revision string) {
	text, err := policy.FormatApprovals(map[string]policy.GivenApproval{v1alpha1.DefaultCompartment: {Revision: rollout.Versions(revision), By: "alice"}})
	w.Must(err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationApprovals: text}}})
	w.Must(err)
	w.Patch(w.GetSkyhook(skyhook), string(patch))
}

// revisionOf returns the key of the revision in the status.
func revisionOf(t *testing.T, w *fixture, name string) string {
	t.Helper()
	revisions := w.GetSkyhook(name).Status.Revisions
	if len(revisions) == 0 {
		t.Fatal("the status has no revision")
	}
	return strings.TrimPrefix(revisions[0].Name, name+"-")
}
