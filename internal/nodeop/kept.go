// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// keptNode is what one node was compiled to. The next pass takes it over if nothing has changed that it depends on: the node, its Jobs
// and pods, or the operation. Nothing in it is changed after it was compiled: who changes a target copies it.
//
// What depends on the clock, on requests that were refused, on what proofs found, or on an entry of the status is compiled in every pass.
// So is what is written without an action of a plan.
type keptNode struct {
	node     *node.Node
	isFinal  bool            // it may be taken over
	recorded bool            // the node has a record, so an entry of the status does not matter
	out      *rollout.Target // nil if the engine has nothing to do with the node
	target   *target         // nil if the operation has nothing to do with the node
}

// addNodes compiles the nodes that have changed since the pass before, and takes over the others. A finished operation, and one that is
// being deleted, has nothing on most nodes, and is compiled anew.
func (c *compiler) addNodes(before *Compiled) {
	if !c.op.selectsNodes() {
		on := slices.DeleteFunc(slices.Clone(c.in.Nodes), func(n *node.Node) bool { return !c.op.isOn(n) })
		c.groupObjects(on)
		for _, n := range on {
			c.addNode(n)
		}
		return
	}
	known := c.findKept(before)
	var changed []*node.Node
	for i, n := range c.in.Nodes {
		if known[i] == nil {
			changed = append(changed, n)
		}
	}
	c.groupObjects(changed)
	c.out.kept = make([]*keptNode, len(c.in.Nodes))
	if before != nil {
		c.out.Rollout.Targets = slices.Grow(c.out.Rollout.Targets, len(before.Rollout.Targets))
		c.out.order = slices.Grow(c.out.order, len(before.order))
	}
	for i, n := range c.in.Nodes {
		if k := known[i]; k != nil {
			c.takeOver(k)
			c.out.kept[i] = k
		} else {
			c.out.kept[i] = c.keepNode(n)
		}
	}
}

// findKept finds what may be taken over, in the order of the nodes; nil for the others.
func (c *compiler) findKept(before *Compiled) []*keptNode {
	known := make([]*keptNode, len(c.in.Nodes))
	if before == nil || before.kept == nil || before.op != c.op || c.in.Now.Before(before.in.Now) {
		return known
	}
	changed := findChangedNodes(before.in, c.in)
	node.EachUnchanged(before.kept, func(k *keptNode) *node.Node { return k.node }, c.in.Nodes, func(k *keptNode, at int) {
		_, hasEntry := c.pass.status.NodeStatuses[k.node.Name]
		if k.isFinal && (k.recorded || !hasEntry) && !changed[k.node.Name] && !c.hasVolatileInput(k.node) {
			known[at] = k
		}
	})
	return known
}

// hasVolatileInput reports whether something is known of a node that is neither on it nor on its Jobs and pods.
func (c *compiler) hasVolatileInput(n *node.Node) bool {
	if len(c.in.Refused[n.Name]) > 0 {
		return true
	}
	return slices.ContainsFunc(c.in.Findings, func(found map[string]string) bool { _, isFound := found[n.Name]; return isFound })
}

// keepNode compiles a node, and returns what the next pass may take over.
func (c *compiler) keepNode(n *node.Node) *keptNode {
	targets, order, edits, limits := len(c.out.Rollout.Targets), len(c.out.order), len(c.out.Edits), len(c.out.Limits)
	c.pass.hasReadClock = false
	t := c.addNode(n)
	out := &keptNode{node: n, recorded: t.recorded}
	if len(c.out.order) > order {
		out.target = t
	}
	if len(c.out.Rollout.Targets) > targets {
		out.out = c.out.Rollout.Targets[targets]
	}
	isWritten := len(c.out.Edits) > edits || len(c.out.Limits) > limits
	out.isFinal = !c.pass.hasReadClock && !isWritten && !t.hasEntry && !c.hasVolatileInput(n)
	return out
}

// takeOver adds what the pass before made of a node. Its group is set again later: it depends on other nodes.
func (c *compiler) takeOver(k *keptNode) {
	if k.target != nil {
		c.out.order = append(c.out.order, k.target)
		c.noteFailure(k.target)
	}
	if k.out != nil {
		c.out.Rollout.Targets = append(c.out.Rollout.Targets, k.out)
	}
}

// setGroups sets the groups of all targets, and keeps them with what the next pass may take over.
func (c *compiler) setGroups(groupOf func(t *rollout.Target) (group rollout.GroupRef, place string)) {
	at := 0
	for i, k := range c.out.kept {
		if k.out == nil {
			continue
		}
		if group, place := groupOf(k.out); k.out.Group != group || k.out.Place != place {
			known := *k
			known.out = c.out.Rollout.CopyTarget(at)
			known.out.Group, known.out.Place = group, place
			c.out.kept[i] = &known
		}
		at++
	}
	for _, t := range c.out.Rollout.Targets[at:] { // nothing keeps these
		t.Group, t.Place = groupOf(t)
	}
}

// findChangedNodes returns the nodes of the Jobs and pods that are in one input only, as pointers. Lists of objects in the same order
// have the same objects of all other nodes in the same order.
func findChangedNodes(before, in *Input) map[string]bool {
	changed, jobs := map[string]bool{}, map[types.UID]bool{}
	eachChange(before.Jobs, in.Jobs, func(j *batchv1.Job) {
		jobs[j.UID] = true
		changed[j.Spec.Template.Spec.NodeName] = true
	})
	eachChange(before.Pods, in.Pods, func(p *corev1.Pod) { changed[p.Spec.NodeName] = true })
	if len(jobs) == 0 {
		return changed
	}
	for _, p := range in.Pods { // whether a pod counts depends on its Job
		if owner := metav1.GetControllerOfNoCopy(p); owner != nil && jobs[owner.UID] {
			changed[p.Spec.NodeName] = true
		}
	}
	return changed
}

// eachChange visits the objects that are in one of two lists only. In lists that are not in the order of names it also visits others,
// and of those that it does not visit the order is the same in both.
func eachChange[T interface {
	comparable
	metav1.Object
}](before, objects []T, visit func(T)) {
	for len(before) > 0 && len(objects) > 0 {
		a, b := before[0], objects[0]
		isFirst := func() int {
			return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
		}
		switch {
		case a == b:
			before, objects = before[1:], objects[1:]
		case isFirst() <= 0:
			visit(a)
			before = before[1:]
		default:
			visit(b)
			objects = objects[1:]
		}
	}
	for _, o := range slices.Concat(before, objects) {
		visit(o)
	}
}

// indexTargets indexes the targets by the names of their nodes.
func (c *Compiled) indexTargets(before *Compiled) {
	if before == nil {
		before = &Compiled{}
	}
	c.index = node.IndexByName(before.order, before.index, c.order, func(t *target) *node.Node { return t.node })
}

// target returns the target on a node; nil if there is none.
func (c *Compiled) target(nodeName string) *target {
	at, isKnown := c.index[nodeName]
	if !isKnown {
		return nil
	}
	return c.order[at]
}
