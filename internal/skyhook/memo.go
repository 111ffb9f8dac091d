// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// memo is what the nodes of a Skyhook were compiled to, by their names. The next pass takes over a node if nothing has changed that it
// depends on: the facts, the node itself and its pods. Nothing in it is changed: who changes a target copies it.
//
// What depends on the clock, on requests that were refused or on what gates and proofs found is compiled in every pass.
type memo map[string]*compiledNode

// compiledNode is what one node was compiled from and to.
type compiledNode struct {
	node    *node.Node
	pods    []*corev1.Pod // of the Skyhook on the node
	isFinal bool          // it depends on nothing but these and the facts
	result  nodeResult
}

// memoOf returns what a pass before compiled; nil if what all nodes depend on has changed since.
func memoOf(before *Compiled, f *plan.Facts) memo {
	if before == nil || f.Now.Before(before.facts.Now) || !f.IsEqual(before.facts) {
		return nil
	}
	return before.memo
}

// find returns what a node and its pods were compiled to; nil if they have changed, or if it depends on more.
func (m memo) find(in *plan.Input, n *node.Node, pods []*corev1.Pod) *compiledNode {
	known := m[n.Name]
	if known == nil || known.node != n || !known.isFinal || !slices.Equal(known.pods, pods) || hasVolatile(in, n) {
		return nil
	}
	return known
}

// hasVolatile reports whether something is known of a node that is neither on it nor on its pods.
func hasVolatile(in *plan.Input, n *node.Node) bool {
	if len(in.Refused[n.Name]) > 0 {
		return true
	}
	return slices.ContainsFunc(in.Findings, func(found map[string]string) bool { _, isFound := found[n.Name]; return isFound })
}

// addNodes adds what the nodes are compiled to, each from the memo or anew.
func (c *Compiled) addNodes(in *plan.Input, selected []bool, groups *policy.Grouping, known memo) {
	c.memo = make(memo, len(in.Nodes))
	c.Rollout.Targets = make([]*rollout.Target, 0, len(in.Nodes))
	pods, alike := podsByNode(in), map[shape]*targetTasks{}
	for i, n := range in.Nodes {
		k := known.find(in, n, pods[n.Name])
		if k == nil {
			r := compileNode(c.facts, in, alike, n, pods[n.Name], selected[i])
			k = &compiledNode{node: n, pods: pods[n.Name], isFinal: !r.readsClock && len(r.edits) == 0 && !hasVolatile(in, n), result: r}
		}
		if k.result.out != nil {
			k = k.inGroup(groupOf(c.facts, n, groups), groups.PlaceOf(n.Labels))
		}
		c.memo[n.Name] = k
		c.addResult(&k.result)
	}
}

// inGroup returns the same in a group, which depends on other nodes, and in its place there.
func (k *compiledNode) inGroup(group rollout.GroupRef, place string) *compiledNode {
	if k.result.out.Group == group && k.result.out.Place == place {
		return k
	}
	other, out := *k, *k.result.out
	out.Group, out.Place, other.result.out = group, place, &out
	return &other
}

// addResult adds what one node was compiled to.
func (c *Compiled) addResult(r *nodeResult) {
	if r.out != nil {
		c.Rollout.Targets, c.targets = append(c.Rollout.Targets, r.out), append(c.targets, r.target)
	}
	c.Adopt = append(c.Adopt, r.edits...)
	for _, d := range r.definitions {
		c.extra[d.Hash] = d
	}
	c.pulls, c.unnamed = append(c.pulls, r.pulls...), append(c.unnamed, r.unnamed...)
}

// podsByNode returns the pods of the Skyhook.
func podsByNode(in *plan.Input) map[string][]*corev1.Pod {
	out := map[string][]*corev1.Pod{}
	for _, p := range in.Pods {
		if p.Spec.NodeName != "" && podstate.Owns(in.Skyhook, in.Config.Namespace, p) {
			out[p.Spec.NodeName] = append(out[p.Spec.NodeName], p)
		}
	}
	return out
}

// target returns the target on a node; nil if there is none.
func (c *Compiled) target(nodeName string) *plan.Target {
	if known := c.memo[nodeName]; known != nil {
		return known.result.target
	}
	return nil
}

// Difference says in what two Compiled of one input differ; empty if in nothing. A pass that takes over nodes must not differ from one
// that compiles all of them.
func (c *Compiled) Difference(o *Compiled) string {
	for i := range min(len(c.targets), len(o.targets)) {
		a, b := *c.targets[i], *o.targets[i]
		if a.Quiet = ""; !reflect.DeepEqual(a, b) || !reflect.DeepEqual(c.Rollout.Targets[i], o.Rollout.Targets[i]) {
			return fmt.Sprintf("node %s of %s is\n%+v\n%+v\nand not\n%+v\n%+v", a.Node.Name, c.Rollout.Ref, c.Rollout.Targets[i], a, o.Rollout.Targets[i], b)
		}
	}
	for _, part := range []struct {
		name string
		a, b any
	}{
		{"the rollout", c.Rollout, o.Rollout}, {"its groups", c.Groups, o.Groups}, {"its ledger", c.Ledger, o.Ledger},
		{"its problems", c.Problems, o.Problems}, {"what is adopted", c.Adopt, o.Adopt}, {"whether it is removed", c.Removed, o.Removed},
		{"its facts", c.facts, o.facts}, {"its other definitions", c.extra, o.extra}, {"what was pulled", c.pulls, o.pulls},
		{"what was pulled without a digest", c.unnamed, o.unnamed},
	} {
		if !reflect.DeepEqual(part.a, part.b) {
			return fmt.Sprintf("of %s: %s: %+v and not %+v", c.Rollout.Ref, part.name, part.a, part.b)
		}
	}
	return ""
}
