// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
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
		{"the operator's settings cannot be read", "", status(recommended, v1alpha1.ProfileOfOperator), true, "", *status(recommended, v1alpha1.ProfileOfOperator)},
		{"the next pass", "", status(recommended, v1alpha1.ProfileOfOperator), true, recommended, *status(recommended, v1alpha1.ProfileOfOperator)},
		{"its word, though it existed", recommended, nil, true, compatible, *status(recommended, v1alpha1.ProfileOfSpec)},
		{"its word, though it is new", compatible, nil, false, recommended, *status(compatible, v1alpha1.ProfileOfSpec)},
	} {
		if got := Choose(c.spec, c.recorded, c.hasStatus, c.operator); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// TestExplicitWins shows, for every field that Recommended fills in, what turns it off: then it stays as it is, and everything else is filled in.
func TestExplicitWins(t *testing.T) {
	skyhooks := map[string]func(*v1alpha1.SkyhookSpec){
		"interruptionBudget": func(s *v1alpha1.SkyhookSpec) {
			s.InterruptionBudget = v1alpha1.InterruptionBudget{Percent: new(int32(100)), CountUnavailable: new(false)}
		},
		"drainConfig.wait":  func(s *v1alpha1.SkyhookSpec) { change(&s.DrainConfig).Wait = v1alpha1.WaitAfterCordon },
		"drainConfig.order": func(s *v1alpha1.SkyhookSpec) { change(&s.DrainConfig).Order = v1alpha1.DrainTogether },
		"nodeMarks":         func(s *v1alpha1.SkyhookSpec) { s.NodeMarks = &v1alpha1.NodeMarks{} },
		"shareReboots":      func(s *v1alpha1.SkyhookSpec) { s.ShareReboots = new(false) },
		"preflight":         func(s *v1alpha1.SkyhookSpec) { s.Preflight = v1alpha1.PreflightNone },
		"proof":             func(s *v1alpha1.SkyhookSpec) { s.Proof = &v1alpha1.Proof{} },
		"rollback":          func(s *v1alpha1.SkyhookSpec) { s.Rollback = &v1alpha1.Rollback{Scope: v1alpha1.RollbackScopeNone} },
		"drift":             func(s *v1alpha1.SkyhookSpec) { s.Drift = &v1alpha1.Drift{Mode: v1alpha1.DriftNone} },
		"avoid":             nil, // of its policy
	}
	checkExplicit(t, v1alpha1.SkyhookSpec{}, skyhooks, func(s v1alpha1.SkyhookSpec) (v1alpha1.SkyhookSpec, Fields) { return FillSkyhook(s, nil, true) })
	together := v1alpha1.DrainPodOptions{Wait: v1alpha1.WaitAfterCordon, Order: v1alpha1.DrainTogether}
	checkExplicit(t, v1alpha1.SkyhookSpec{InterruptionBudget: v1alpha1.InterruptionBudget{Count: new(int64(3))}, DrainConfig: &v1alpha1.DrainConfig{DrainPodOptions: together}},
		map[string]func(*v1alpha1.SkyhookSpec){
			"interruptionBudget.countUnavailable": func(s *v1alpha1.SkyhookSpec) { s.InterruptionBudget.CountUnavailable = new(false) },
			"nodeMarks":                           skyhooks["nodeMarks"], "shareReboots": skyhooks["shareReboots"], "preflight": skyhooks["preflight"], "proof": skyhooks["proof"],
			"rollback": skyhooks["rollback"], "drift": skyhooks["drift"], "avoid": nil,
		}, func(s v1alpha1.SkyhookSpec) (v1alpha1.SkyhookSpec, Fields) { return FillSkyhook(s, nil, true) })

	yes := true
	checkExplicit(t, opv1.NodeOpSpec{DrainOptions: &opv1.DrainOptions{}, Cordon: &yes, RebootOnSuccess: &yes}, map[string]func(*opv1.NodeOpSpec){
		"concurrency":        func(s *opv1.NodeOpSpec) { s.Concurrency = new(int32(0)) },
		"drainOptions.wait":  func(s *opv1.NodeOpSpec) { change(&s.DrainOptions).Wait = v1alpha1.WaitAfterCordon },
		"drainOptions.order": func(s *opv1.NodeOpSpec) { change(&s.DrainOptions).Order = v1alpha1.DrainTogether },
		"shareReboots":       func(s *opv1.NodeOpSpec) { s.ShareReboots = new(false) },
		"nodeMarks":          nil, "proof": nil, "avoid": nil, // of its policy
	}, FillNodeOp)
	checkExplicit(t, opv1.NodeOpSpec{Concurrency: new(int32(2)), DeploymentPolicy: "careful"}, map[string]func(*opv1.NodeOpSpec){
		"countUnavailable": func(s *opv1.NodeOpSpec) { s.CountUnavailable = new(false) },
	}, FillNodeOp)

	checkExplicit(t, v1alpha1.DeploymentPolicySpec{Compartments: []v1alpha1.Compartment{{Name: "a"}}}, map[string]func(*v1alpha1.DeploymentPolicySpec){
		"failureThreshold": nil, // where a compartment has one, its pace has nothing of the profile
		"budget.countUnavailable": func(p *v1alpha1.DeploymentPolicySpec) {
			p.Compartments = slices.Clone(p.Compartments)
			p.Default.Budget.CountUnavailable, p.Compartments[0].Budget.CountUnavailable = new(false), new(false)
		},
		"nodeMarks": func(p *v1alpha1.DeploymentPolicySpec) { p.NodeMarks = &v1alpha1.NodeMarks{} },
		"proof":     func(p *v1alpha1.DeploymentPolicySpec) { p.Proof = &v1alpha1.Proof{} },
		"avoid":     func(p *v1alpha1.DeploymentPolicySpec) { p.Avoid = &v1alpha1.Avoid{} },
	}, FillPolicy)
}

// checkExplicit checks that exactly the fields with these names are filled in, and each only where the spec does not say otherwise.
func checkExplicit[T any](t *testing.T, empty T, says map[string]func(*T), fill func(T) (T, Fields)) {
	t.Helper()
	page, err := os.ReadFile("../../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(empty)
	_, names := fill(empty)
	if after, _ := json.Marshal(empty); !bytes.Equal(after, before) {
		t.Errorf("the spec that was given became %s", after)
	}
	if got, want := slices.Sorted(slices.Values(names)), slices.Sorted(maps.Keys(says)); !slices.Equal(got, want) {
		t.Fatalf("filled in are %v, want %v", got, want)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/profiles.md does not name %s", name)
		}
		if says[name] == nil {
			continue
		}
		spec := empty
		says[name](&spec)
		filled, others := fill(spec)
		if want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name }); !slices.Equal(others, want) {
			t.Errorf("a spec that says something of %s has %v filled in, want %v", name, others, want)
		}
		again := filled
		says[name](&again)
		if !reflect.DeepEqual(again, filled) {
			t.Errorf("what a spec says of %s became %+v", name, filled)
		}
	}
}

// change returns a copy of what a field points to, which it points to from now on.
func change[T any](field **T) *T {
	var value T
	if *field != nil {
		value = **field
	}
	*field = &value
	return *field
}

// TestFilled shows what absent fields are filled in with.
func TestFilled(t *testing.T) {
	got, names := FillSkyhook(v1alpha1.SkyhookSpec{DrainConfig: &v1alpha1.DrainConfig{}, InterruptionBudget: v1alpha1.InterruptionBudget{Percent: new(int32(5))}}, nil, false)
	switch {
	case !*got.ShareReboots, !*got.InterruptionBudget.CountUnavailable, got.Rollback == nil, got.Drift.Mode != v1alpha1.DriftReport,
		got.DrainConfig.Wait != v1alpha1.WaitBeforeCordon, got.DrainConfig.Order != v1alpha1.DrainByPriority, !reflect.DeepEqual(*got.NodeMarks, Marks), !got.Proof.AsBefore,
		!slices.Contains(names, "pinImages"):
		t.Errorf("an empty Skyhook became %+v, filled in are %v", got, names)
	}
	none := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{NodeMarks: &v1alpha1.NodeMarks{}, Proof: &v1alpha1.Proof{}, Avoid: &v1alpha1.Avoid{}}}
	if got, names := FillSkyhook(v1alpha1.SkyhookSpec{}, none, true); got.NodeMarks != nil || got.Proof != nil || slices.Contains(names, "interruptionBudget") || names.Has(FieldAvoid) {
		t.Errorf("a policy that wants neither marks nor a proof, and avoids nothing, is overruled: %v", names)
	}
	if got, _ := FillNodeOp(opv1.NodeOpSpec{}); got.DrainOptions != nil || got.Cordon != nil || got.CountUnavailable != nil || got.ShareReboots != nil {
		t.Errorf("a NodeOp that neither cordons nor drains became %+v", got)
	}
}

// TestDropNone shows that None, said explicitly, is as if nothing was said, in both profiles.
func TestDropNone(t *testing.T) {
	spec, _ := FillSkyhook(v1alpha1.SkyhookSpec{Rollback: &v1alpha1.Rollback{Scope: v1alpha1.RollbackScopeNone}, Drift: &v1alpha1.Drift{Mode: v1alpha1.DriftNone}}, nil, true)
	if DropNone(&spec); spec.Rollback != nil || spec.Drift != nil {
		t.Errorf("left are %v, %v", spec.Rollback, spec.Drift)
	}
	spec, _ = FillSkyhook(v1alpha1.SkyhookSpec{}, nil, true)
	if DropNone(&spec); spec.Rollback == nil || spec.Drift == nil {
		t.Errorf("what the profile filled in was removed")
	}
}

// TestDefaults shows what reasons say: which field decided, and of which object.
func TestDefaults(t *testing.T) {
	_, ofPolicy := FillPolicy(v1alpha1.DeploymentPolicySpec{})
	_, own := FillSkyhook(v1alpha1.SkyhookSpec{Rollback: &v1alpha1.Rollback{Scope: v1alpha1.RollbackScopeNone}}, &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{Proof: &Proof, Avoid: &Avoid}}, true)
	got := own.Defaults("Recommended", ofPolicy.Defaults("Recommended of DeploymentPolicy careful", nil))
	want := rollout.Defaults{
		rollout.ReasonStopped: "profile Recommended of DeploymentPolicy careful: failureThreshold", rollout.ReasonProof: "profile Recommended of DeploymentPolicy careful: proof",
		rollout.ReasonInOthersCare: "profile Recommended of DeploymentPolicy careful: avoid",
		rollout.ReasonProofFailed:  "profile Recommended of DeploymentPolicy careful: proof",
		rollout.ReasonProtectedPod: "profile Recommended: drainConfig.wait", rollout.ReasonSharedReboot: "profile Recommended: shareReboots",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestDescriptions: kubectl explain says of every field that Recommended fills in what it means there.
func TestDescriptions(t *testing.T) {
	_, ofSkyhooks := FillSkyhook(v1alpha1.SkyhookSpec{}, nil, true)
	_, limited := FillSkyhook(v1alpha1.SkyhookSpec{InterruptionBudget: v1alpha1.InterruptionBudget{Percent: new(int32(1))}}, nil, true)
	_, ofPolicies := FillPolicy(v1alpha1.DeploymentPolicySpec{})
	reboots := opv1.NodeOpSpec{Cordon: new(true), RebootOnSuccess: new(true), DrainOptions: &opv1.DrainOptions{}, DeploymentPolicy: "p", Concurrency: new(int32(1))}
	_, ofNodeOps := FillNodeOp(reboots)
	for kind, names := range map[string]Fields{
		"skyhook.nvidia.com_skyhooks":           append(ofSkyhooks, limited...),
		"skyhook.nvidia.com_deploymentpolicies": ofPolicies,
		"operator.kairos.io_nodeops":            append(ofNodeOps, fieldConcurrency, "ttlSecondsAfterFinished"),
		"operator.kairos.io_nodeopupgrades":     {fieldConcurrency},
	} {
		content, err := os.ReadFile("../../chart/files/crds/" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			t.Fatal(err)
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		for _, name := range names {
			path := strings.Split(name, ".")
			found := findProperties(&spec, path[len(path)-1])
			if len(found) == 0 && !(kind == "skyhook.nvidia.com_skyhooks" && name == FieldAvoid) { // which a policy has
				t.Errorf("%s has no field %s", kind, name)
			}
			for _, description := range found {
				if !strings.Contains(description, "Recommended") {
					t.Errorf("%s: %s does not say what it means with profile Recommended: %s", kind, name, description)
				}
			}
		}
	}
}

// findProperties returns the descriptions of the fields of a name, wherever they are.
func findProperties(s *apiextensionsv1.JSONSchemaProps, name string) (found []string) {
	for key := range s.Properties {
		property := s.Properties[key]
		if key == name {
			found = append(found, property.Description)
		}
		found = append(found, findProperties(&property, name)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		found = append(found, findProperties(s.Items.Schema, name)...)
	}
	return found
}
