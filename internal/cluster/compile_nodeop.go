// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	opcompile "github.com/skyhook-k8s/skyhook/internal/nodeop/compile"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// addNodeOps compiles the NodeOps into the snapshot.
func (c *compiler) addNodeOps() {
	o := c.objects
	jobs, pods := map[string][]*batchv1.Job{}, map[string][]*corev1.Pod{}
	for _, j := range o.Jobs {
		jobs[j.Namespace] = append(jobs[j.Namespace], j)
	}
	for _, p := range o.NodeOpPods {
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	for _, op := range o.NodeOps {
		by, missing := o.policyNamed(op.Spec.DeploymentPolicy)
		operation := nodeop.NewOperation(op, by)
		in := &opcompile.Input{
			Operation: operation, Nodes: o.Nodes, Jobs: jobs[op.Namespace], Pods: pods[op.Namespace], PolicyMissing: missing,
			Namespaces: o.opConfig.Namespaces, Now: c.snapshot.Now, Durations: o.durations, Refused: o.refused.tasks[nodeop.Ref(op)], Findings: o.Findings[nodeop.Ref(op)],
		}
		var shared rollout.Ledger
		limits := v1alpha1.Budget{}
		if concurrency := op.Spec.Concurrency; concurrency != nil { // also 0, which says that all nodes may begin
			limits.Count = new(int64(*concurrency))
		}
		if by != nil {
			in.PolicyProblems = policy.FindProblems(by, c.snapshot.Now)
			if most := cmp.Or(by.Spec.MaxPrivileges, v1alpha1.PrivilegesFull); most != v1alpha1.PrivilegesFull {
				in.PolicyProblems = append(in.PolicyProblems, fmt.Sprintf("maxPrivileges of DeploymentPolicy %s is %s, and a NodeOp has full: raise it, or name another policy", by.Name, most))
			}
		}
		if by != nil || !missing && policy.HasOwnLimits(op.Spec.Profile, by, limits) {
			in.Budget, shared = c.budgetOf(op, by)
		}
		compiled := opcompile.Compile(in)
		name := compiled.Rollout.Ref
		if text := o.blockRefused(&compiled.Rollout, op.Generation, op.Status.Conditions); text != "" {
			compiled.Problems = append(compiled.Problems, nodeop.Problem{Reason: rollout.ReasonRefused, Text: text})
		}
		c.nodeOps[name] = compiled
		for _, p := range compiled.Problems {
			c.problems = append(c.problems, Problem{Rollout: name, Text: p.Text, Refuses: true})
		}
		c.addPodsOfNodeOp(op, compiled)
		c.snapshot.Rollouts = append(c.snapshot.Rollouts, compiled.Rollout)
		c.addLedger(compiled.Ledger)
		for _, g := range compiled.Groups {
			if c.addGroup(g) && in.Budget != nil {
				c.addLedger(shared)
			}
		}
	}
}

// addPodsOfNodeOp fills in the pods that block the nodes that were looked at, and notes those that are ignored.
func (c *compiler) addPodsOfNodeOp(op *opv1.NodeOp, compiled *nodeop.Compiled) {
	o := c.objects
	rules, drains, err := drain.NodeOpRules(op.Spec.DrainOptions)
	if err != nil { // one of the problems: the rollout stands still, so nothing is evicted
		return
	}
	isLooked := drains && compiled.Rollout.Drain.WaitFirst
	for _, t := range compiled.Rollout.Targets {
		pods, listed := o.Workloads[t.Node]
		isNeeded := !t.Drain.HeldAt.IsZero() || isLooked
		if !isNeeded || drains && !listed {
			continue
		}
		t.Drain.PodsSeen = true
		if !drains {
			continue
		}
		t.Drain.Pods = rules.On(o.Node(t.Node)).BlockingPods(pods, o.IsOurs, o.Refusals)
		if t.Drain.HeldAt.IsZero() {
			continue
		}
		if ignored := rules.IgnoredBarePods(pods, o.IsOurs); len(ignored) > 0 {
			compiled.LeftPods[t.Node] = ignored
		}
	}
}

// budgetOf is what a policy, or the profile where p is nil, allows a NodeOp, and the ledger for that.
func (c *compiler) budgetOf(op *opv1.NodeOp, p *v1alpha1.DeploymentPolicy) (*opcompile.Budget, rollout.Ledger) {
	selector, err := metav1.LabelSelectorAsSelector(op.Spec.NodeSelector.Kubernetes())
	if err != nil { // a problem of the NodeOp: no node is selected
		selector = labels.Nothing()
	}
	nodes := nodeop.PolicyNodes(op, c.objects.Nodes)
	all, mine := make([]map[string]string, 0, len(nodes)), make([]policy.Node, 0, len(nodes))
	for i := range nodes {
		all = append(all, nodes[i].Labels)
		if selector.Matches(labels.Set(nodes[i].Labels)) {
			mine = append(mine, nodes[i])
		}
	}
	sorted := policy.NewGrouping(&policy.Input{
		Policy: p, Profile: op.Spec.Profile, Rollout: nodeop.Ref(op), Compartments: op.Status.CompartmentStatuses, Memory: op.Status.Internal.Memory, Nodes: mine, Cluster: all,
		Closed: c.objects.gatesOf(p).Closed, Failed: c.objects.gatesOf(p).Failed, Resume: op.Annotations[v1alpha1.AnnotationResume], Now: c.snapshot.Now,
		Revision: nodeop.Revision(op), Approvals: op.Annotations,
	})
	out := &opcompile.Budget{Of: make(map[string]rollout.GroupRef, len(all)), Place: make(map[string]string, len(all))}
	if p != nil {
		out.Windows = p.Spec.Windows
	}
	for i := range nodes { // a node that is no longer selected stays in its group until it is released
		n := &nodes[i]
		out.Of[n.Name], out.Place[n.Name] = sorted.GroupOf(n), sorted.PlaceOf(n.Labels)
	}
	targets := make([]*rollout.Target, len(mine))
	for i := range mine {
		targets[i] = &rollout.Target{Node: mine[i].Name, Group: out.Of[mine[i].Name]}
	}
	out.Groups = sorted.Groups(targets)
	return out, sorted.Ledger()
}
