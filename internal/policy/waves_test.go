// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// parsePolicy parses the spec of a policy.
func parsePolicy(t *testing.T, spec string) *v1alpha1.DeploymentPolicy {
	t.Helper()
	p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWaveProblems checks that compartments which wait for each other, or for what does not exist, are named.
func TestWaveProblems(t *testing.T) {
	for spec, want := range map[string]string{
		"compartments: [{name: a}, {name: b, after: [a]}]\ndefault: {after: [a, b]}": "",
		"compartments: [{name: a, after: [__default__]}]":                            "",
		"compartments: [{name: a, after: [b]}, {name: b, after: [c]}, {name: c, after: [a]}]": "compartments of DeploymentPolicy careful wait for each other in a circle: " +
			"a after b after c after a: remove one of these names from after",
		"compartments: [{name: a, after: [__default__]}]\ndefault: {after: [a]}": "compartments of DeploymentPolicy careful wait for each other in a circle: " +
			"__default__ after a after __default__: remove one of these names from after",
		"compartments: [{name: a, after: [b]}]": "after of compartment a of DeploymentPolicy careful names b, which does not exist: correct the name, or add the compartment",
	} {
		if got := strings.Join(FindProblems(parsePolicy(t, spec), time.Time{}), "; "); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", spec, got, want)
		}
	}
}

// TestGroupsOfWaves checks what the engine gets: the order, soak times, and approvals for exactly what is rolled out.
func TestGroupsOfWaves(t *testing.T) {
	p := parsePolicy(t, `
soak: 10m
compartments:
- {name: canary, soak: 1h}
- {name: few, after: [canary], soak: 0s, approval: Required}
default: {after: [few]}`)
	approved := map[string]string{v1alpha1.AnnotationApprovals: `{"few": {"revision": "abc", "by": "alice", "at": "2026-01-05T08:00:00Z"}}`}
	groups := func(in Input) string {
		in.Policy, in.Rollout = p, rollout.ParseRef("Skyhook/demo")
		text := ""
		for _, g := range NewGrouping(&in).Groups(nil) {
			text += fmt.Sprint(g.Ref.Compartment, " ", g.After, " ", g.Soak, " ", g.Approval.Required, " ", g.Approval.Includes(in.Rollout), " ", g.Approval.Problem, "\n")
		}
		return text
	}
	const want = "__default__ [Skyhook/demo/few] 10m0s false true \ncanary [] 1h0m0s false true \nfew [Skyhook/demo/canary] 0s true %v \n"
	for revision, isApproved := range map[string]bool{"abc": true, "abd": false, "": false} {
		if got := groups(Input{Revision: revision, Approvals: approved}); got != fmt.Sprintf(want, isApproved) {
			t.Errorf("revision %q: %s", revision, got)
		}
	}
	broken := groups(Input{Revision: "abc", Approvals: map[string]string{v1alpha1.AnnotationApprovals: "yes"}})
	if !strings.Contains(broken, "0s true false annotation skyhook.nvidia.com/approvals cannot be read: invalid character 'y'") {
		t.Errorf("an annotation that cannot be read: %s", broken)
	}
	p.Spec.Scope = v1alpha1.ScopePolicy // the approvals of the policy count, for each rollout apart
	p.Annotations = map[string]string{v1alpha1.AnnotationApprovals: `{"few": {"revision": "` + string(rollout.NewVersions(rollout.ParseRef("Skyhook/demo"), "abc")) + `"}}`}
	if got := groups(Input{Revision: "abc", Approvals: nil}); !strings.Contains(got, "few [DeploymentPolicy/careful/canary] 0s true true") {
		t.Errorf("scope Policy: %s", got)
	}
	if got := groups(Input{Revision: "abd", Approvals: approved}); !strings.Contains(got, "few [DeploymentPolicy/careful/canary] 0s true false") {
		t.Errorf("scope Policy, other revision: %s", got)
	}
}

// zonedNodes returns nodes of this age order, each as name@zone.
func zonedNodes(names ...string) []Node {
	var out []Node
	for i, text := range names {
		name, zone, _ := strings.Cut(text, "@")
		out = append(out, Node{Name: name, Labels: map[string]string{"zone": zone}, Created: time.Unix(int64(i), 0)})
	}
	return out
}

// canariesOf returns the names of the nodes in the compartment canary, and changes the nodes as their admission does.
func canariesOf(p *v1alpha1.DeploymentPolicy, nodes []Node) string {
	in := &Input{Policy: p, Rollout: rollout.ParseRef("Skyhook/demo"), Nodes: nodes, Cluster: labelsOf(nodes)}
	g := NewGrouping(in)
	var out []string
	for i := range nodes {
		n := &nodes[i]
		if n.Group = g.GroupOf(n); n.Group.Compartment == "canary" {
			out = append(out, n.Name)
		}
	}
	return strings.Join(out, " ")
}

// TestCanaries checks which nodes are canaries.
func TestCanaries(t *testing.T) {
	six := []string{"a1@a", "a2@a", "a3@a", "b1@b", "b2@b", "c1@c"}
	for _, c := range []struct{ spec, want string }{
		{"{count: 2}", "a1 a2"},
		{"{count: 2, spreadBy: zone}", "a1 b1"},
		{"{count: 4, spreadBy: zone}", "a1 a2 b1 c1"},
		{"{count: 5, spreadBy: zone}", "a1 a2 b1 b2 c1"},
		{"{count: 9, spreadBy: zone}", "a1 a2 a3 b1 b2 c1"},
		{"{percent: 34}", "a1 a2"},
		{"{percent: 1}", "a1"},
		{"{count: 2, spreadBy: rack}", "a1 a2"},
	} {
		p := parsePolicy(t, "compartments: [{name: canary, canary: "+c.spec+"}, {name: careful, strategy: {fixed: {}}}]")
		if got := canariesOf(p, zonedNodes(six...)); got != c.want {
			t.Errorf("%s: %s, want %s", c.spec, got, c.want)
		}
	}
	p := parsePolicy(t, "compartments: [{name: canary, canary: {count: 2}}]")
	nodes := zonedNodes(six...)
	nodes[0].IsControlPlane, nodes[1].IsExcluded = true, true
	if got := canariesOf(p, nodes); got != "a3 b1" {
		t.Errorf("beside the control plane and an ignored node: %s", got)
	}
}

// TestCanariesRemain checks that nodes which appear change no canary, and that one which goes is replaced.
func TestCanariesRemain(t *testing.T) {
	for _, spec := range []string{"{count: 3}", "{count: 3, spreadBy: zone}"} {
		p := parsePolicy(t, "compartments: [{name: canary, canary: "+spec+"}]")
		nodes := zonedNodes("a1@a", "a2@a", "b1@b", "b2@b")
		first := canariesOf(p, nodes)
		nodes = append(nodes, zonedNodes("c1@c", "b3@b", "d1@d")...)
		if got := canariesOf(p, nodes); got != first {
			t.Errorf("%s: %s, and with more nodes %s", spec, first, got)
		}
		gone := strings.Fields(first)[0]
		nodes = slices.DeleteFunc(nodes, func(n Node) bool { return n.Name == gone })
		if got := canariesOf(p, nodes); !strings.Contains(got, strings.TrimPrefix(first, gone+" ")) || len(strings.Fields(got)) != 3 {
			t.Errorf("%s: without %s there are %s", spec, gone, got)
		}
		ignored := strings.Fields(first)[1]
		for i := range nodes {
			nodes[i].IsExcluded = nodes[i].Name == ignored
		}
		if got := canariesOf(p, nodes); !strings.Contains(got, ignored) || len(strings.Fields(got)) != 4 {
			t.Errorf("%s: %s is ignored, another takes its place, and it stays where it was admitted: %s", spec, ignored, got)
		}
	}
}

// TestCanariesOfSeveralCompartments checks that the smaller compartment chooses first, and no node is in two of them.
func TestCanariesOfSeveralCompartments(t *testing.T) {
	p := parsePolicy(t, "compartments: [{name: ten, canary: {percent: 50}}, {name: canary, canary: {count: 1}}]")
	nodes := zonedNodes("n1", "n2", "n3", "n4")
	if got := canariesOf(p, nodes); got != "n1" || nodes[1].Group.Compartment != "ten" || nodes[2].Group.Compartment != "ten" || nodes[3].Group.Compartment != "__default__" {
		t.Errorf("%s: %+v", got, nodes)
	}
}
