// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// PolicyName is the policy that a Skyhook goes by, or none: the one it names, otherwise, when it has no budget of its own,
// the operator's default.
func PolicyName(s *v1alpha1.Skyhook, c Config) (name string, byDefault bool) {
	if s.Spec.DeploymentPolicy != "" {
		return s.Spec.DeploymentPolicy, false
	}
	if b := s.Spec.InterruptionBudget; b.Percent != nil || b.Count != nil {
		return "", false
	}
	return c.DefaultPolicy, c.DefaultPolicy != ""
}

// grouping sorts the nodes of a Skyhook into compartments.
func (c *Compiled) grouping(selected []bool) *policy.Grouping {
	s, in := c.in.Skyhook, c.in
	p := policy.Input{
		Policy: in.Policy, Rollout: Ref(s.Name), Budget: v1alpha1.Budget(s.Spec.InterruptionBudget),
		Versions: short(c.packageList()), Resume: s.Annotations[v1alpha1.AnnotationResume],
		Admission: s.Status.Admission, Compartments: s.Status.CompartmentStatuses, Closed: in.Closed, Now: in.Now,
	}
	if o := s.Spec.DeploymentPolicyOptions; o != nil {
		p.Reset = o.ResetBatchStateOnCompletion
	}
	if in.Policy != nil && len(in.Policy.Spec.Compartments) > 0 {
		for i, n := range in.Nodes {
			p.Cluster = append(p.Cluster, n.Labels)
			if selected[i] {
				p.Nodes = append(p.Nodes, n.Labels)
			}
		}
	}
	return policy.Sort(&p)
}

// Fact is something a node says of itself that only health gates ask for.
type Fact struct{ Name, Value string }

// facts are the conditions of others and the amounts of resources that have a domain in their name, by name.
func facts(n *corev1.Node) []Fact {
	var out []Fact
	for _, c := range n.Status.Conditions {
		if strings.HasPrefix(string(c.Type), v1alpha1.Group+"/") {
			continue // ours
		}
		out = append(out, Fact{conditionFact(string(c.Type)), string(c.Status)})
	}
	for name, q := range n.Status.Allocatable {
		out = append(out, Fact{resourceFact(string(name)), strconv.FormatInt(q.Value(), 10)})
	}
	slices.SortFunc(out, func(a, b Fact) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func conditionFact(name string) string { return "condition " + name }
func resourceFact(name string) string  { return "resource " + name }

// fact is what a node says under this name; empty for nothing.
func (n *Node) fact(name string) string {
	at, ok := slices.BinarySearchFunc(n.Facts, name, func(f Fact, name string) int { return cmp.Compare(f.Name, name) })
	if !ok {
		return ""
	}
	return n.Facts[at].Value
}

func (n *Node) offers(resource string) int64 {
	amount, err := strconv.ParseInt(n.fact(resourceFact(resource)), 10, 64)
	if err != nil { // not offered at all
		return 0
	}
	return amount
}

// offered is how much of the resources that the gates ask for the node offers now; nil when they ask for none.
func (c *Compiled) offered(n *Node) map[string]int64 {
	if c.in.Policy == nil || c.in.Policy.Spec.Health == nil {
		return nil
	}
	var out map[string]int64
	for _, name := range c.in.Policy.Spec.Health.Resources {
		if amount := n.offers(name); amount > 0 {
			if out == nil {
				out = map[string]int64{}
			}
			out[name] = amount
		}
	}
	return out
}

// unproven says which gate a finished node does not pass yet; nil when it passes all.
func (c *Compiled) unproven(n *Node, rec *Record) *rollout.Why {
	if c.in.Policy == nil || c.in.Policy.Spec.Health == nil {
		return nil
	}
	gates := c.in.Policy.Spec.Health
	fails := func(format string, args ...any) *rollout.Why {
		return &rollout.Why{Reason: rollout.ReasonHealthGate, About: "Node " + n.Name, Text: fmt.Sprintf(format, args...)}
	}
	for _, g := range gates.NodeConditions {
		if is, want := n.fact(conditionFact(g.Type)), cmp.Or(string(g.Status), "True"); is != want {
			return fails("condition %s of the node is %s, and must be %s", g.Type, cmp.Or(is, "absent"), want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Offered)) {
		if is := n.offers(name); is < rec.Offered[name] && slices.Contains(gates.Resources, name) {
			return fails("the node offers %d of %s, and offered %d before", is, name, rec.Offered[name])
		}
	}
	if text := c.in.Unready[n.Name]; text != "" {
		return fails("%s", text)
	}
	return nil
}

// Unsettled says that a Skyhook is finished on a node in a batch of its policy that is still open.
func Unsettled(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy, n *Node) bool {
	rec := n.on(s.Name).record
	if rec.Admitted || rec.FinishedAt == nil || rec.Node != n.UID {
		return false
	}
	statuses, owner := s.Status.CompartmentStatuses, Ref(s.Name)
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		statuses, owner = p.Status.CompartmentStatuses, policy.Ref(p)
	}
	if rec.Group.Owner != owner {
		return false
	}
	batch := statuses[rec.Group.Compartment].BatchState
	return batch != nil && rec.Batch >= batch.From
}
