// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"reflect"
	"testing"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

const (
	recommended = v1alpha1.ProfileRecommended
	compatible  = v1alpha1.ProfileCompatible
)

// TestChoose shows who decides, and that what was Compatible by itself stays so.
func TestChoose(t *testing.T) {
	status := func(name v1alpha1.Profile, reason v1alpha1.ProfileReason) *v1alpha1.ProfileStatus {
		return &v1alpha1.ProfileStatus{Name: name, Reason: reason}
	}
	for _, c := range []struct {
		what      string
		spec      v1alpha1.Profile
		recorded  *v1alpha1.ProfileStatus
		hasStatus bool
		operator  v1alpha1.Profile
		want      v1alpha1.ProfileStatus
	}{
		{"a new object", "", nil, false, recommended, *status(recommended, v1alpha1.ProfileOfOperator)},
		{"an operator of before", "", nil, false, "", *status(compatible, v1alpha1.ProfileOfOperator)},
		{"an object of before", "", nil, true, recommended, *status(compatible, v1alpha1.ProfileExistedBefore)},
		{"it stays", "", status(compatible, v1alpha1.ProfileExistedBefore), true, recommended, *status(compatible, v1alpha1.ProfileExistedBefore)},
		{"the operator was Compatible", "", status(compatible, v1alpha1.ProfileOfOperator), true, recommended, *status(compatible, v1alpha1.ProfileExistedBefore)},
		{"its word was removed", "", status(compatible, v1alpha1.ProfileOfSpec), true, recommended, *status(recommended, v1alpha1.ProfileOfOperator)},
		{"the next pass", "", status(recommended, v1alpha1.ProfileOfOperator), true, recommended, *status(recommended, v1alpha1.ProfileOfOperator)},
		{"its word, though it existed", recommended, nil, true, compatible, *status(recommended, v1alpha1.ProfileOfSpec)},
		{"its word, though it is new", compatible, nil, false, recommended, *status(compatible, v1alpha1.ProfileOfSpec)},
	} {
		if got := Choose(c.spec, c.recorded, c.hasStatus, c.operator); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// TestExplicitWins shows that what a spec says stays, also where it says no, and that the spec that was given is not changed.
func TestExplicitWins(t *testing.T) {
	drain := v1alpha1.DrainPodOptions{Wait: v1alpha1.WaitAfterCordon, Order: v1alpha1.DrainTogether}
	said := v1alpha1.SkyhookSpec{
		Profile: recommended, ShareReboots: new(false), Rollback: &v1alpha1.Rollback{Scope: v1alpha1.RollbackScopeRollout},
		Drift: &v1alpha1.Drift{Mode: v1alpha1.DriftRepair}, NodeMarks: &v1alpha1.NodeMarks{}, DrainConfig: &v1alpha1.DrainConfig{DrainPodOptions: drain}, Proof: &v1alpha1.Proof{},
		InterruptionBudget: v1alpha1.InterruptionBudget{Count: new(3), CountUnavailable: new(false)},
	}
	if got := FillSkyhook(said, nil); !reflect.DeepEqual(got, said) {
		t.Errorf("a Skyhook that says everything became %+v", got)
	}
	empty := v1alpha1.SkyhookSpec{DrainConfig: &v1alpha1.DrainConfig{}, InterruptionBudget: v1alpha1.InterruptionBudget{Percent: new(5)}}
	before := *empty.DeepCopy()
	got := FillSkyhook(empty, nil)
	switch {
	case !reflect.DeepEqual(empty, before):
		t.Errorf("the spec that was given became %+v", empty)
	case !*got.ShareReboots, !*got.InterruptionBudget.CountUnavailable, got.Rollback == nil, got.Drift.Mode != v1alpha1.DriftReport,
		got.DrainConfig.Wait != v1alpha1.WaitBeforeCordon, got.DrainConfig.Order != v1alpha1.DrainByPriority, !reflect.DeepEqual(*got.NodeMarks, Marks), !got.Proof.AsBefore:
		t.Errorf("an empty Skyhook became %+v", got)
	}
	if b := FillSkyhook(v1alpha1.SkyhookSpec{}, nil).InterruptionBudget; b.CountUnavailable != nil {
		t.Error("a budget that does not exist counts nodes")
	}
	none := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{NodeMarks: &v1alpha1.NodeMarks{}}}
	if FillSkyhook(v1alpha1.SkyhookSpec{}, none).NodeMarks != nil {
		t.Error("a policy that wants no marks is overruled")
	}
}

// TestFillNodeOp shows that an operation does what it says, more carefully.
func TestFillNodeOp(t *testing.T) {
	got := FillNodeOp(opv1.NodeOpSpec{Concurrency: new(int32(2)), DrainOptions: &opv1.DrainOptions{}})
	if !*got.CountUnavailable || got.DrainOptions.Wait != v1alpha1.WaitBeforeCordon || got.DrainOptions.Enabled != nil {
		t.Errorf("it became %+v", got)
	}
	if bare := FillNodeOp(opv1.NodeOpSpec{}); bare.DrainOptions != nil || bare.Cordon != nil || bare.CountUnavailable != nil {
		t.Errorf("a NodeOp that neither cordons nor drains became %+v", bare)
	}
}

// TestDropNone shows that None, said explicitly, is as if nothing was said, in both profiles.
func TestDropNone(t *testing.T) {
	spec := FillSkyhook(v1alpha1.SkyhookSpec{Rollback: &v1alpha1.Rollback{Scope: v1alpha1.RollbackScopeNone}, Drift: &v1alpha1.Drift{Mode: v1alpha1.DriftNone}}, nil)
	if DropNone(&spec); spec.Rollback != nil || spec.Drift != nil {
		t.Errorf("left are %v, %v", spec.Rollback, spec.Drift)
	}
	spec = FillSkyhook(v1alpha1.SkyhookSpec{}, nil)
	if DropNone(&spec); spec.Rollback == nil || spec.Drift == nil {
		t.Errorf("what the profile filled in was removed")
	}
}

// TestFillPolicy shows that every compartment counts nodes that are not ready, unless it says otherwise.
func TestFillPolicy(t *testing.T) {
	said := v1alpha1.DeploymentPolicySpec{Compartments: []v1alpha1.Compartment{{Name: "a"}, {Name: "b", Budget: v1alpha1.Budget{CountUnavailable: new(false)}}}}
	got := FillPolicy(said)
	if !*got.Default.Budget.CountUnavailable || !*got.Compartments[0].Budget.CountUnavailable || *got.Compartments[1].Budget.CountUnavailable || got.NodeMarks == nil {
		t.Errorf("it became %+v", got)
	}
	if said.Compartments[0].Budget.CountUnavailable != nil {
		t.Error("the policy that was given was changed")
	}
}
