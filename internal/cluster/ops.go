// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// listOps lists NodeOps, upgrades, and their Jobs and pods.
func (c *Cluster) listOps(ctx context.Context, r client.Reader, limit int64, out *lists) error {
	ops, upgrades, jobs, pods := &opv1.NodeOpList{}, &opv1.NodeOpUpgradeList{}, &batchv1.JobList{}, &corev1.PodList{}
	objects := r
	if r == c.options.Cached && c.options.CachedOps != nil {
		objects = c.options.CachedOps
	}
	labelled := client.MatchingLabelsSelector{Selector: OfNodeOps}
	for _, l := range []struct {
		what   string
		reader client.Reader
		list   client.ObjectList
		take   func()
		option []client.ListOption
	}{
		{"NodeOps", r, ops, func() { out.nodeOps = point(out.nodeOps, ops.Items) }, nil},
		{"NodeOpUpgrades", r, upgrades, func() { out.upgrades = point(out.upgrades, upgrades.Items) }, nil},
		{"Jobs", objects, jobs, func() { out.jobs = point(out.jobs, jobs.Items) }, []client.ListOption{labelled}},
		{"pods of NodeOps", objects, pods, func() { out.opPods = point(out.opPods, pods.Items) }, []client.ListOption{labelled}},
	} {
		if err := pages(ctx, l.reader, limit, l.list, l.take, l.option...); err != nil {
			return fmt.Errorf("listing %s: %w", l.what, err)
		}
	}
	return nil
}

// view is a node as NodeOps see it, and what it was made from.
type view struct {
	from *skyhook.Node
	node *nodeop.Node
}

// viewNodes makes the nodes as NodeOps see them, each once for every version of it.
func (c *Cluster) viewNodes(o *Objects) {
	slices.SortFunc(o.NodeOps, func(a, b *opv1.NodeOp) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(o.Upgrades, func(a, b *opv1.NodeOpUpgrade) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(o.Jobs, func(a, b *batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.OpPods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	views := make(map[string]view, len(o.Nodes))
	o.opNodes, o.opNode = make([]*nodeop.Node, 0, len(o.Nodes)), make(map[string]*nodeop.Node, len(o.Nodes))
	for _, n := range o.Nodes {
		v := c.views[n.Name]
		if v.from != n {
			v = view{n, asOp(n, v.node)}
		}
		views[n.Name] = v
		o.opNodes = append(o.opNodes, v.node)
		o.opNode[n.Name] = v.node
	}
	c.views = views
}

// asOp is a node as NodeOps see it. What prev has read is not read again.
func asOp(n *skyhook.Node, prev *nodeop.Node) *nodeop.Node {
	out := &nodeop.Node{
		Name: n.Name, UID: n.UID, Created: n.Created, Labels: n.Labels, Annotations: n.Annotations,
		Unschedulable: n.Unschedulable, Ready: n.Ready, BootID: n.BootID,
	}
	return out.Parse(prev)
}

// look is a node in the middle of a plan as NodeOps see it.
func (o *Objects) look(n *skyhook.Node) *nodeop.Node { return asOp(n, o.opNode[n.Name]) }

// fromOp is an edit of a NodeOp as one of the node.
func fromOp(e nodeop.Edit) skyhook.Edit {
	return skyhook.Edit{Annotations: e.Annotations, Labels: e.Labels, Unschedulable: e.Unschedulable}
}

// opHolds are the holds of NodeOps on a node. The owner of one that no NodeOp of that UID has is named with the UID.
func (o *Objects) opHolds(node string) []rollout.Hold {
	if o.opNode[node] == nil {
		return nil
	}
	return o.holdsOf(o.opNode[node])
}

func (o *Objects) holdsOf(n *nodeop.Node) []rollout.Hold {
	var out []rollout.Hold
	for _, h := range nodeop.Holds(n) {
		known := slices.ContainsFunc(o.NodeOps, func(op *opv1.NodeOp) bool { return string(op.UID) == h.UID })
		if !known {
			h.Owner.Name += "@" + h.UID
		}
		out = append(out, h.Hold)
	}
	return out
}

// allHolds are everybody's holds on a node in the middle of a plan.
func (o *Objects) allHolds(n *skyhook.Node) []rollout.Hold {
	return append(skyhook.Holds(n), o.holdsOf(o.look(n))...)
}

// compileOps adds the NodeOps to a snapshot.
func (o *Objects) compileOps(s *rollout.Snapshot, groups map[rollout.GroupRef]int) []Problem {
	o.ops = make(map[rollout.Ref]*nodeop.Compiled, len(o.NodeOps))
	jobs, pods := map[string][]*batchv1.Job{}, map[string][]*corev1.Pod{}
	for _, j := range o.Jobs {
		jobs[j.Namespace] = append(jobs[j.Namespace], j)
	}
	for _, p := range o.OpPods {
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	var problems []Problem
	for _, op := range o.NodeOps {
		by, missing := o.policyNamed(op.Spec.DeploymentPolicy)
		in := &nodeop.Input{NodeOp: op, Nodes: o.opNodes, Jobs: jobs[op.Namespace], Pods: pods[op.Namespace], PolicyMissing: missing, Config: o.opConfig, Now: s.Now}
		var shared rollout.Ledger
		if by != nil {
			in.Budget, shared = o.budget(op, by, s.Now)
		}
		c := nodeop.Compile(in)
		o.ops[c.Rollout.Ref] = c
		for _, p := range c.Problems {
			problems = append(problems, Problem{Rollout: c.Rollout.Ref, Text: p.Text})
		}
		o.seeOp(op, c)
		s.Rollouts, s.Ledgers = append(s.Rollouts, c.Rollout), append(s.Ledgers, c.Ledger)
		for _, g := range c.Groups {
			if at, known := groups[g.Ref]; known {
				s.Groups[at] = policy.Merge(s.Groups[at], g)
				continue
			}
			groups[g.Ref] = len(s.Groups)
			s.Groups = append(s.Groups, g)
			if in.Budget != nil && !slices.ContainsFunc(s.Ledgers, func(l rollout.Ledger) bool { return l.Owner == g.Ledger }) {
				s.Ledgers = append(s.Ledgers, shared)
			}
		}
	}
	return problems
}

// seeOp fills in the pods in the way, on the nodes that were looked at, and notes those that are left alone.
func (o *Objects) seeOp(op *opv1.NodeOp, c *nodeop.Compiled) {
	rules, drains := drain.NodeOpRules(op.Spec.DrainOptions)
	for i := range c.Rollout.Targets {
		t := &c.Rollout.Targets[i]
		pods, seen := o.Workloads[t.Node]
		if t.HeldAt.IsZero() || drains && !seen {
			continue
		}
		t.PodsSeen = true
		if !drains {
			continue
		}
		t.Pods = rules.BlockingPods(pods, o.Ours, o.Refusals)
		if ignored := rules.IgnoredBarePods(pods, o.Ours); len(ignored) > 0 {
			c.Spared[t.Node] = ignored
		}
	}
}

// ofNodeOp says that a pod belongs to a NodeOp, or to a Job of one.
func (o *Objects) ofNodeOp(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil:
		return false
	case owner.Kind == nodeop.Kind && strings.HasPrefix(owner.APIVersion, opv1.Group+"/"):
		return true
	}
	return owner.Kind == "Job" && slices.ContainsFunc(o.Jobs, func(j *batchv1.Job) bool {
		by := metav1.GetControllerOf(j)
		return j.UID == owner.UID && by != nil && by.Kind == nodeop.Kind
	})
}

// opWorks says that a pod of a NodeOp that is gone may still be at work on a node.
func (o *Objects) opWorks(owner rollout.Ref, node string) bool {
	_, uid, _ := strings.Cut(owner.Name, "@")
	return slices.ContainsFunc(o.OpPods, func(p *corev1.Pod) bool {
		by := metav1.GetControllerOf(p)
		return p.Spec.NodeName == node && by != nil && string(by.UID) == uid
	})
}

// goneOp asks the API server itself whether a NodeOp of this name and UID does not exist.
func (c *Cluster) goneOp(ctx context.Context, owner rollout.Ref) (bool, error) {
	name, uid, _ := strings.Cut(owner.Name, "@")
	found := &opv1.NodeOp{}
	err := c.options.Live.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: name}, found)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("looking for NodeOp %s/%s, which holds nodes: %w", owner.Namespace, name, err)
	}
	return err != nil || string(found.UID) != uid, nil
}

// CompiledOp is what Snapshot made of a NodeOp; nil when it is not among the objects.
func (o *Objects) CompiledOp(op *opv1.NodeOp) *nodeop.Compiled { return o.ops[nodeop.Ref(op)] }

// OpNodes are the nodes as NodeOps see them.
func (o *Objects) OpNodes() []*nodeop.Node { return o.opNodes }

// budget is what a policy allows a NodeOp, and the policy's ledger.
func (o *Objects) budget(op *opv1.NodeOp, p *v1alpha1.DeploymentPolicy, now time.Time) (*nodeop.Budget, rollout.Ledger) {
	selector, err := metav1.LabelSelectorAsSelector(op.Spec.NodeSelector.Kubernetes())
	if err != nil { // a problem of the NodeOp: nobody is selected
		selector = labels.Nothing()
	}
	var all, mine []map[string]string
	for _, n := range o.Nodes {
		all = append(all, n.Labels)
		if selector.Matches(labels.Set(n.Labels)) {
			mine = append(mine, n.Labels)
		}
	}
	name := nodeop.Ref(op)
	sorted := policy.Sort(&policy.Input{
		Policy: p, Rollout: name, Compartments: compartments(op), Nodes: mine, Cluster: all, Closed: o.closed(p), Now: now,
	})
	out := &nodeop.Budget{Of: make(map[string]rollout.GroupRef, len(mine)), Place: map[string]string{}}
	targets := make([]rollout.Target, 0, len(mine))
	for _, n := range o.Nodes {
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		t := rollout.Target{Node: n.Name, Group: sorted.Of(n.Labels)}
		targets = append(targets, t)
		out.Of[n.Name], out.Place[n.Name] = t.Group, policy.Place(p, n.Labels)
	}
	out.Groups = sorted.Groups(targets)
	return out, sorted.Ledger()
}

// compartments are what a NodeOp's status remembers of its batches.
func compartments(op *opv1.NodeOp) map[string]v1alpha1.CompartmentStatus {
	out := make(map[string]v1alpha1.CompartmentStatus, len(op.Status.CompartmentStatuses))
	for name, c := range op.Status.CompartmentStatuses {
		out[name] = v1alpha1.CompartmentStatus{BatchState: policy.Batches(nodeop.Remembered(c.BatchState))}
	}
	return out
}
