// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestApplyPackageEnds: the condition names the last pod while a node is in progress, and is false afterwards. Only with the profile
// Compatible conditions have a second name.
func TestApplyPackageEnds(t *testing.T) {
	for profile, twins := range map[v1alpha1.Profile]int{v1alpha1.ProfileCompatible: 5, v1alpha1.ProfileRecommended: 0} {
		w := newTestCluster(t)
		s := w.apply(`{metadata: {name: demo}, spec: {profile: ` + string(profile) + `, packages: {tuning: {version: 1.0.0, image: example.org/p}}}}`)
		w.addNode("n1")
		w.hangs["tuning|1.0.0/apply"] = true
		w.drive(s)
		running := storeStatus(w, s, rollout.PhaseInFlight)
		requireCondition(t, running, v1alpha1.ConditionApplyPackage, "True ApplyPackage: package tuning 1.0.0, stage apply, on node n1")
		w.pods = nil // the next stage has no pod yet
		requireCondition(t, storeStatus(w, s, rollout.PhaseInFlight), v1alpha1.ConditionApplyPackage, "True ApplyPackage: package tuning 1.0.0, stage apply, on node n1")
		ended := storeStatus(w, s, rollout.PhaseFinished)
		requireCondition(t, ended, v1alpha1.ConditionApplyPackage, "False NoStageRuns: no stage runs on any node")
		requireCondition(t, ended, v1alpha1.ConditionTaintNotTolerable, "False TaintsTolerated: every taint is tolerated")
		found := 0
		for _, c := range ended.Conditions {
			if strings.Contains(c.Type, "/") {
				found++
			}
		}
		if found != twins {
			t.Errorf("%s: %d conditions have a second name, want %d: %v", profile, found, twins, ended.Conditions)
		}
	}
}

// storeStatus computes the status with n1 in a phase, and stores it.
func storeStatus(w *testCluster, s *v1alpha1.Skyhook, phase rollout.Phase) *v1alpha1.SkyhookStatus {
	c := w.compile(s)
	status := c.Status(verdicts(c, map[string]rollout.Phase{"n1": phase}), nil)
	s.Status = *status.DeepCopy()
	return &s.Status
}

func requireCondition(t *testing.T, is *v1alpha1.SkyhookStatus, kind, want string) {
	t.Helper()
	c := meta.FindStatusCondition(is.Conditions, kind)
	if c == nil {
		t.Fatalf("there is no condition %s", kind)
	}
	if got := string(c.Status) + " " + c.Reason + ": " + c.Message; got != want {
		t.Errorf("%s=%s, want %s", kind, got, want)
	}
}
