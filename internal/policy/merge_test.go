// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestAddUnavailable checks that nodes that are unavailable for other reasons count against the budgets that count them, and no
// other.
func TestAddUnavailable(t *testing.T) {
	node := func(name string, ready, cordoned bool, holds ...rollout.Hold) rollout.Node {
		return rollout.Node{Name: name, Ready: ready, Cordoned: cordoned, Holds: holds}
	}
	s := rollout.Snapshot{
		Nodes: []rollout.Node{
			node("ready", true, false), node("down", false, false), node("foreign", true, true),
			node("ours", true, true, rollout.Hold{Owner: rollout.ParseRef("Skyhook/a")}),
			node("booting", false, true, rollout.Hold{Owner: rollout.ParseRef("Skyhook/a")}),
			node("found", true, true, rollout.Hold{Owner: rollout.ParseRef("Skyhook/a"), WasCordoned: true}),
			node("theirs", true, true, rollout.Hold{Owner: rollout.ParseRef("Skyhook/other")}),
			node("left", false, false), node("elsewhere", false, true),
		},
		Groups: []rollout.Group{
			{Ref: rollout.ParseGroupRef("DeploymentPolicy/p/__default__"), CountUnavailable: true}, {Ref: rollout.ParseGroupRef("Skyhook/other/__default__")},
		},
	}
	for _, ref := range []string{"Skyhook/a", "Skyhook/b"} {
		r := rollout.Rollout{Ref: rollout.ParseRef(ref)}
		for _, n := range s.Nodes[:8] {
			r.Targets = append(r.Targets, &rollout.Target{Node: n.Name, Group: rollout.ParseGroupRef("DeploymentPolicy/p/__default__"), Leaving: n.Name == "left"})
		}
		s.Rollouts = append(s.Rollouts, r)
	}
	other := rollout.Rollout{Ref: rollout.ParseRef("Skyhook/other")}
	for _, n := range s.Nodes {
		other.Targets = append(other.Targets, &rollout.Target{Node: n.Name, Group: rollout.ParseGroupRef("Skyhook/other/__default__")})
	}
	s.Rollouts = append(s.Rollouts, other)
	AddUnavailable(&s)
	if got, want := fmt.Sprint(s.Groups[0].Taken, s.Groups[1].Taken), "[down foreign found theirs] []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestCountUnavailable checks which groups count nodes that are unavailable for other reasons.
func TestCountUnavailable(t *testing.T) {
	one := int64(1)
	fixed := v1alpha1.Strategy{Fixed: &v1alpha1.FixedStrategy{}}
	budget := func(counts bool) v1alpha1.Budget { return v1alpha1.Budget{Count: &one, CountUnavailable: &counts} }
	for _, c := range []struct {
		scope            v1alpha1.Scope
		ofA, byDefault   bool
		wantA, wantOther bool
	}{
		{v1alpha1.ScopeSkyhook, false, false, false, false},
		{v1alpha1.ScopeSkyhook, true, false, true, false},
		{v1alpha1.ScopeSkyhook, false, true, false, true},
		{v1alpha1.ScopePolicy, false, false, true, true},
	} {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.DeploymentPolicySpec{
			Scope: c.scope, Default: v1alpha1.PolicyDefault{Budget: budget(c.byDefault), Strategy: fixed},
			Compartments: []v1alpha1.Compartment{{Name: "a", Budget: budget(c.ofA)}},
		}}
		groups := NewGrouping(&Input{Policy: p, Rollout: rollout.ParseRef("Skyhook/demo")}).Groups(nil)
		for _, g := range groups {
			want := c.wantA
			if g.Ref.Compartment == v1alpha1.DefaultCompartment {
				want = c.wantOther
			}
			if g.CountUnavailable != want {
				t.Errorf("%+v: %s counts unavailable nodes: %v", c, g.Ref, g.CountUnavailable)
			}
		}
	}
	own := NewGrouping(&Input{Rollout: rollout.ParseRef("Skyhook/demo"), Budget: budget(true)}).Groups(nil)
	if !own[0].CountUnavailable {
		t.Error("the budget of a Skyhook does not count unavailable nodes")
	}
}

// TestOverlap checks that the most careful of several compartments gets the node, however many labels a selector has.
func TestOverlap(t *testing.T) {
	n := func(i int64) *int64 { return &i }
	all := v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"a": "1"}}
	narrow := v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"a": "1", "b": "2"}}
	fixed, linear := &v1alpha1.Strategy{Fixed: &v1alpha1.FixedStrategy{}}, &v1alpha1.Strategy{Linear: &v1alpha1.LinearStrategy{}}
	exponential := &v1alpha1.Strategy{Exponential: &v1alpha1.ExponentialStrategy{}}
	of := func(name string, selector v1alpha1.LabelSelector, count int64, s *v1alpha1.Strategy) v1alpha1.Compartment {
		return v1alpha1.Compartment{Name: name, Selector: selector, Budget: v1alpha1.Budget{Count: n(count)}, Strategy: s}
	}
	for _, c := range []struct {
		compartments []v1alpha1.Compartment
		want         string
	}{
		{[]v1alpha1.Compartment{of("x", narrow, 1, linear), of("y", all, 9, fixed)}, "y"},
		{[]v1alpha1.Compartment{of("x", all, 1, exponential), of("y", narrow, 9, linear)}, "y"},
		{[]v1alpha1.Compartment{of("x", all, 1, nil), of("y", all, 9, exponential)}, "y"},
		{[]v1alpha1.Compartment{of("x", narrow, 3, fixed), of("y", all, 2, fixed)}, "y"},
		{[]v1alpha1.Compartment{of("y", narrow, 2, fixed), of("x", all, 2, fixed)}, "x"},
		{nil, "__default__"},
	} {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.DeploymentPolicySpec{
			Default: v1alpha1.PolicyDefault{Budget: v1alpha1.Budget{Count: n(1)}, Strategy: *fixed}, Compartments: c.compartments,
		}}
		nodes := []Node{{Name: "n1", Labels: map[string]string{"a": "1", "b": "2"}}, {Name: "n2", Labels: map[string]string{"a": "1"}}}
		g := NewGrouping(&Input{Policy: p, Rollout: rollout.ParseRef("Skyhook/demo"), Nodes: nodes, Cluster: labelsOf(nodes)})
		if got := g.GroupOf(&nodes[0]); got.String() != "Skyhook/demo/"+c.want {
			t.Errorf("%+v: the node belongs to %s, want %s", c.compartments, got, c.want)
		}
	}
}

// TestReset checks that the field of the Skyhook comes before that of the policy; the default is yes.
func TestReset(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		own, policy *bool
		want        bool
	}{{nil, nil, true}, {nil, &no, false}, {&yes, &no, true}, {&no, &yes, false}, {&no, nil, false}} {
		p := &v1alpha1.DeploymentPolicy{Spec: v1alpha1.DeploymentPolicySpec{ResetBatchStateOnCompletion: c.policy}}
		if g := NewGrouping(&Input{Policy: p, Reset: c.own}).Groups(nil)[0]; g.Reset != c.want {
			t.Errorf("%v over %v is %v", c.own, c.policy, g.Reset)
		}
	}
	if g := NewGrouping(&Input{}).Groups(nil)[0]; !g.Reset {
		t.Error("without a policy batches are not reset")
	}
}

// A rollout that does not say what it rolls out, such as that of a NodeOp, changes nothing about what is rolled out.
func TestMergeGroupsWithoutFor(t *testing.T) {
	skyhook, other, nodeOp := rollout.Group{For: "v1"}, rollout.Group{For: "v2"}, rollout.Group{}
	both := MergeGroups(skyhook, other).For
	if both == "v1" || both == "v2" || both == "" {
		t.Errorf("two Skyhooks give %q", both)
	}
	for name, got := range map[string]struct{ is, want rollout.Versions }{
		"a NodeOp after a Skyhook":    {MergeGroups(skyhook, nodeOp).For, "v1"},
		"a NodeOp before a Skyhook":   {MergeGroups(nodeOp, skyhook).For, "v1"},
		"a NodeOp beside two":         {MergeGroups(MergeGroups(skyhook, other), nodeOp).For, both},
		"a NodeOp between two":        {MergeGroups(MergeGroups(skyhook, nodeOp), other).For, both},
		"a Skyhook of equal versions": {MergeGroups(skyhook, skyhook).For, "v1"},
	} {
		if got.is != got.want {
			t.Errorf("%s gives %q, want %q", name, got.is, got.want)
		}
	}
}
