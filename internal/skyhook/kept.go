// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// keptNode is what one node was compiled to. The next pass takes it over if nothing has changed that it depends on: the node, its
// pods, or what all nodes depend on. Nothing in it is changed after it was compiled: who changes a target copies it.
//
// What depends on the clock, on requests that were refused or on what gates and proofs found is compiled in every pass.
type keptNode struct {
	node       *node.Node
	pods       []*corev1.Pod // of the Skyhook on the node, with those that check it for drift or pull images
	isSelected bool          // this follows from the labels of the node
	wentBack   bool          // it is recorded that the node goes or went back
	isFinal    bool          // it may be taken over

	out     *rollout.Target // nil if the Skyhook has nothing to do with the node
	target  *target
	adopt   []node.Edit
	extra   []*Definition
	pulls   []imagePull
	unnamed []imagePull
}

// keptPod is a pod that was read.
type keptPod struct {
	pod  *corev1.Pod
	info *podInfo
}

// sharedInput is what all nodes of a Skyhook depend on: whole objects, without what only reports.
type sharedInput struct {
	skyhook     v1alpha1.Skyhook
	policy      *v1alpha1.DeploymentPolicy
	isMissing   bool
	config      Config
	definitions map[string]*Definition
	revisions   []Revision
	pins        []v1alpha1.ImagePin
	wentBack    *wentBack
	rollout     rollout.Rollout // without targets
}

// newSharedInput collects what all nodes depend on. It is called before any node is compiled.
func (c *Compiled) newSharedInput() *sharedInput {
	out := &sharedInput{
		skyhook: withoutReports(c.in.Skyhook), isMissing: c.in.PolicyMissing, config: c.in.Config, definitions: c.in.Definitions,
		revisions: c.in.Revisions, pins: c.pins, wentBack: c.wentBack, rollout: c.Rollout,
	}
	if c.in.Policy != nil {
		p := *c.in.Policy
		p.ResourceVersion, p.ManagedFields, p.Status = "", nil, v1alpha1.DeploymentPolicyStatus{}
		out.policy = &p
	}
	out.rollout.Targets, out.rollout.Numbering.Next = nil, 0
	if c.Rollout.Rollback.Cause == nil {
		out.rollout.Since = time.Time{}
	}
	return out
}

// withoutReports returns a Skyhook without what is only written to its status. A new field of the status counts, until it is named here.
func withoutReports(s *v1alpha1.Skyhook) v1alpha1.Skyhook {
	out := *s
	out.ResourceVersion, out.ManagedFields = "", nil
	is := &out.Status
	is.ObservedGeneration, is.Status, is.Conditions = 0, "", nil
	is.NodeState, is.NodeStatus, is.NodeBootIDs, is.NodePriority, is.NodeCounts = nil, nil, nil, nil, nil
	is.NodesTotal, is.NodesInProgress, is.CompleteNodes, is.PackageList, is.ConfigUpdates = 0, 0, "", "", nil
	is.CompartmentStatuses, is.Admission, is.NodeOrderOffset = nil, nil, 0
	is.EstimatedCompletion, is.Drains, is.Revisions, is.PodLayout = nil, nil, nil, nil
	is.ImagePins, is.Rollback = nil, nil // Compiled.pins and Compiled.wentBack have what counts
	return out
}

// isEqual reports whether nodes are compiled alike from both. Definitions of one hash are equal.
func (s *sharedInput) isEqual(o *sharedInput) bool {
	hasSameDefinitions := maps.EqualFunc(s.definitions, o.definitions, func(_, _ *Definition) bool { return true })
	return hasSameDefinitions && s.isMissing == o.isMissing &&
		equality.Semantic.DeepEqual(s.skyhook, o.skyhook) && equality.Semantic.DeepEqual(s.policy, o.policy) &&
		equality.Semantic.DeepEqual(s.config, o.config) && reflect.DeepEqual(s.revisions, o.revisions) &&
		reflect.DeepEqual(s.pins, o.pins) && reflect.DeepEqual(s.wentBack, o.wentBack) && reflect.DeepEqual(s.rollout, o.rollout)
}

// clock returns the present time while a node is compiled. What was compiled with it is not taken over by the next pass.
func (c *Compiled) clock() time.Time {
	c.hasReadClock = true
	return c.in.Now
}

// keeper takes over what the pass before compiled.
type keeper struct {
	*Compiled
	known []*keptNode // what the pass before made of the nodes that have not changed, in the order of Input.Nodes; nil for the others
}

// newKeeper finds the nodes that have not changed since the pass before.
func (c *Compiled) newKeeper(before *Compiled) *keeper {
	k := &keeper{Compiled: c, known: make([]*keptNode, len(c.in.Nodes))}
	if before == nil || c.in.Now.Before(before.in.Now) {
		return k
	}
	nodeOf := func(known *keptNode) *node.Node { return known.node }
	node.EachUnchanged(before.kept, nodeOf, c.in.Nodes, func(known *keptNode, at int) { k.known[at] = known })
	return k
}

// forgetAfterSharedChange forgets the known nodes when what all nodes depend on differs from that of the pass before.
func (k *keeper) forgetAfterSharedChange(before *Compiled) {
	k.shared = k.newSharedInput()
	if before == nil || !k.shared.isEqual(before.shared) {
		clear(k.known)
	}
}

// selectNodes says which nodes the Skyhook selects, and how many.
func (k *keeper) selectNodes() (selected []bool, count int) {
	selector, err := metav1.LabelSelectorAsSelector(k.in.Skyhook.Spec.NodeSelectors.Kubernetes())
	if err != nil { // checkSpec reported it: the rollout is broken and selects no node
		selector = labels.Nothing()
	}
	selected = make([]bool, len(k.in.Nodes))
	for i, n := range k.in.Nodes {
		if known := k.known[i]; known != nil {
			selected[i] = known.isSelected
		} else {
			selected[i] = selector.Matches(labels.Set(n.Labels))
		}
		if selected[i] {
			count++
		}
	}
	return selected, count
}

// mayTakeOver reports whether a node that has not changed is what the pass before made of it.
func (k *keeper) mayTakeOver(known *keptNode) bool {
	return known != nil && known.isFinal && slices.Equal(known.pods, k.podsOn[known.node.Name]) && !k.hasVolatileInput(known.node)
}

// hasVolatileInput reports whether something is known of a node that is neither on it nor on its pods.
func (c *Compiled) hasVolatileInput(n *node.Node) bool {
	if len(c.in.Refused[n.Name]) > 0 || c.in.Unready[n.Name] != "" {
		return true
	}
	return slices.ContainsFunc(c.in.Findings, func(found map[string]string) bool { _, isFound := found[n.Name]; return isFound })
}

// addNode takes over a node, or compiles it.
func (k *keeper) addNode(at int, isSelected bool, groups *policy.Grouping) {
	if known := k.known[at]; k.mayTakeOver(known) {
		k.takeOver(known, groups)
		return
	}
	n := k.in.Nodes[at]
	adopted, pulls, unnamed, targets := len(k.Adopt), len(k.pulls), len(k.unnamed), len(k.Rollout.Targets)
	k.hasReadClock, k.needed = false, nil
	k.targetCompiler().compileTarget(n, isSelected, groups)
	out := &keptNode{node: n, pods: k.podsOn[n.Name], isSelected: isSelected, extra: k.needed, wentBack: n.Skyhook(k.in.Skyhook.Name).Record.Rollback != nil}
	out.pulls, out.unnamed = slices.Clip(k.pulls[pulls:]), slices.Clip(k.unnamed[unnamed:])
	for _, e := range k.Adopt[adopted:] {
		out.adopt = append(out.adopt, e.Edit)
	}
	if len(k.Rollout.Targets) > targets {
		out.out, out.target = k.Rollout.Targets[targets], k.all[len(k.all)-1]
	}
	out.isFinal = !k.hasReadClock && len(out.adopt) == 0 && !k.hasVolatileInput(n)
	k.kept = append(k.kept, out)
}

// takeOver adds what the pass before made of a node. The group of a node depends on other nodes.
func (k *keeper) takeOver(known *keptNode, groups *policy.Grouping) {
	if known.out == nil {
		k.kept = append(k.kept, known)
		return
	}
	if group := k.targetCompiler().groupOf(known.node, groups); known.out.Group != group {
		known = known.withGroup(group)
	}
	k.kept = append(k.kept, known)
	k.Rollout.Targets = append(k.Rollout.Targets, known.out)
	k.all = append(k.all, known.target)
	for _, d := range known.extra {
		k.taskCompiler().keepDefinition(d)
	}
	k.pulls, k.unnamed = append(k.pulls, known.pulls...), append(k.unnamed, known.unnamed...)
}

// withGroup returns what a node in another group is compiled to.
func (known *keptNode) withGroup(group rollout.GroupRef) *keptNode {
	out, t := *known, *known.out
	t.Group, out.out = group, &t
	return &out
}

// indexTargets indexes the targets by the names of their nodes.
func (c *Compiled) indexTargets(before *Compiled) {
	if before == nil {
		before = &Compiled{}
	}
	c.index = node.IndexByName(before.all, before.index, c.all, func(t *target) *node.Node { return t.node })
}

// target returns the target on a node; nil if there is none.
func (c *Compiled) target(nodeName string) *target {
	at, isKnown := c.index[nodeName]
	if !isKnown {
		return nil
	}
	return c.all[at]
}

// targetAt returns the target on a node, which is at this place if the targets are those of a report.
func (c *Compiled) targetAt(at int, nodeName string) *target {
	if at < len(c.all) && c.all[at].node.Name == nodeName {
		return c.all[at]
	}
	return c.target(nodeName)
}

// readPods reads the pods of the Skyhook. It takes over the pods of which the same version was read in the pass before, and what is known
// of the nodes on which no pod has changed. The pods of a node are in the order of their creation. Those that check nodes for drift, or
// pull images before their turn, are apart: they are no work, unless the Skyhook is being deleted and waits until they are gone.
func (c *Compiled) readPods(before *Compiled) {
	if before == nil || !c.readsPodsLike(before) {
		before = &Compiled{}
	}
	changed := c.readChangedPods(before.read)
	c.pods, c.driftPods, c.pullPods, c.podsOn = before.pods, before.driftPods, before.pullPods, before.podsOn
	if len(changed) == 0 && before.pods != nil {
		return
	}
	c.pods, c.driftPods, c.pullPods = withoutNodes(c.pods, changed), withoutNodes(c.driftPods, changed), withoutNodes(c.pullPods, changed)
	c.podsOn = withoutNodes(c.podsOn, changed)
	for _, k := range c.read {
		if on := k.pod.Spec.NodeName; changed[on] {
			out := c.podsLike(k.info)
			out[on], c.podsOn[on] = append(out[on], k.info), append(c.podsOn[on], k.pod)
		}
	}
	for on := range changed {
		for _, pods := range [][]*podInfo{c.pods[on], c.driftPods[on], c.pullPods[on]} {
			slices.SortFunc(pods, func(a, b *podInfo) int { return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name)) })
		}
	}
}

// readsPodsLike reports whether a pod is read alike in both passes.
func (c *Compiled) readsPodsLike(before *Compiled) bool {
	is, was := c.in.Skyhook, before.in.Skyhook
	return is.UID == was.UID && is.Name == was.Name && c.in.Config.Namespace == before.in.Config.Namespace &&
		(is.DeletionTimestamp == nil) == (was.DeletionTimestamp == nil)
}

// readChangedPods reads the pods, with those that are known from the pass before, and returns the nodes on which they differ. Pods are in
// one order in both passes; in another one it reads more of them again.
func (c *Compiled) readChangedPods(known []keptPod) (changed map[string]bool) {
	changed, c.read = map[string]bool{}, make([]keptPod, 0, len(known)+len(known)/8)
	for _, p := range c.in.Pods {
		for ; len(known) > 0 && known[0].pod != p && known[0].info.name <= p.Name; known = known[1:] {
			changed[known[0].pod.Spec.NodeName] = true // it is gone, or another version of it is there
		}
		switch {
		case len(known) > 0 && known[0].pod == p:
			c.read, known = append(c.read, known[0]), known[1:]
		case p.Spec.NodeName != "" && Owns(c.in.Skyhook, c.in.Config, p):
			c.read = append(c.read, keptPod{p, readPod(p)})
			changed[p.Spec.NodeName] = true
		}
	}
	for _, k := range known {
		changed[k.pod.Spec.NodeName] = true
	}
	return changed
}

// withoutNodes returns a copy of what is known by nodes, without some of them.
func withoutNodes[T any](known map[string]T, nodes map[string]bool) map[string]T {
	out := maps.Clone(known)
	if out == nil {
		out = map[string]T{}
	}
	for n := range nodes {
		delete(out, n)
	}
	return out
}

// podsLike returns the pods by node to which a pod belongs.
func (c *Compiled) podsLike(p *podInfo) map[string][]*podInfo {
	switch {
	case c.in.Skyhook.DeletionTimestamp != nil:
	case p.drift != nil:
		return c.driftPods
	case p.pull != nil:
		return c.pullPods
	}
	return c.pods
}
