// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Snapshot compiles what was observed into what the engine decides about. One object that is wrong is a Problem and a
// rollout that stands still; the others go on. What it compiled stays with the objects, for Apply and for those who
// tell people about it.
func Snapshot(o *Objects, now time.Time) (rollout.Snapshot, []Problem) {
	for _, n := range o.Nodes {
		now = later(now, n.Latest())
	}
	for _, n := range o.opNodes {
		now = later(now, n.Latest())
	}
	s := rollout.Snapshot{Now: now}
	pods := o.podsBySkyhook()
	var problems []Problem
	o.compiled = make(map[rollout.Ref]*skyhook.Compiled, len(o.Skyhooks))
	claims := map[string]string{}
	groups := map[rollout.GroupRef]int{}
	for _, hook := range o.Skyhooks {
		by, missing := o.policy(hook)
		c := skyhook.Compile(&skyhook.Input{
			Skyhook: hook, Policy: by, PolicyMissing: missing, Closed: o.closed(by), Unready: o.unready(by), Nodes: o.Nodes, Pods: pods[hook.Name],
			Definitions: o.Definitions, Claims: claims, Config: o.Config, Now: now,
		})
		for _, name := range skyhook.Claims(hook) {
			if _, taken := claims[name]; !taken {
				claims[name] = hook.Name
			}
		}
		o.checkNames(hook, c)
		problems = append(problems, o.see(hook, c)...)
		o.compiled[c.Rollout.Ref] = c
		s.Rollouts = append(s.Rollouts, c.Rollout)
		s.Ledgers = append(s.Ledgers, c.Ledger)
		for _, g := range c.Groups {
			if at, shared := groups[g.Ref]; shared {
				s.Groups[at] = policy.Merge(s.Groups[at], g)
				continue
			}
			groups[g.Ref] = len(s.Groups)
			s.Groups = append(s.Groups, g)
		}
	}
	problems = append(problems, o.compileOps(&s, groups)...)
	s.Nodes = o.machines(pods)
	policy.Share(&s)
	for i := range s.Rollouts {
		s.Rollouts[i].OnTheirWay = o.busy[s.Rollouts[i].Ref]
	}
	o.snapshot = s
	return s, problems
}

// sooner is the earlier of two times, of which a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// podsBySkyhook are our pods by the name on their label. Whose they really are is for the front end to judge.
func (o *Objects) podsBySkyhook() map[string][]*corev1.Pod {
	out := map[string][]*corev1.Pod{}
	for _, p := range o.Pods {
		name := p.Labels[v1alpha1.LabelName]
		out[name] = append(out[name], p)
	}
	return out
}

// policy finds the policy that a Skyhook names.
func (o *Objects) policy(s *v1alpha1.Skyhook) (by *v1alpha1.DeploymentPolicy, missing bool) {
	name, _ := skyhook.PolicyName(s, o.Config)
	return o.policyNamed(name)
}

func (o *Objects) policyNamed(name string) (by *v1alpha1.DeploymentPolicy, missing bool) {
	if name == "" {
		return nil, false
	}
	for _, p := range o.Policies {
		if p.Name == name {
			return p, false
		}
	}
	return nil, true
}

// checkNames finds ConfigMaps of somebody else where the Skyhook's have to be.
func (o *Objects) checkNames(s *v1alpha1.Skyhook, c *skyhook.Compiled) {
	for _, want := range c.ConfigMaps() {
		if found := o.configMap(want.Name); found != nil && !belongs(found, s) {
			why := rollout.Why{Reason: rollout.ReasonInvalidSpec, About: "ConfigMap " + found.Namespace + "/" + found.Name,
				Text: fmt.Sprintf("ConfigMap %s/%s is needed for a package and belongs to somebody else: delete it, or rename the package", found.Namespace, found.Name)}
			c.Problems = append(c.Problems, skyhook.Problem{Reason: why.Reason, Text: why.Text, Field: "packages", Refuses: true})
			if !c.Rollout.Deleting {
				c.Rollout.Broken = &why
			}
			return
		}
	}
}

// belongs says that a ConfigMap is a Skyhook's, or was an earlier one's of the same name.
func belongs(m *corev1.ConfigMap, s *v1alpha1.Skyhook) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && owner.Kind == skyhook.Kind && owner.Name == s.Name
}

// configMap finds one of ours by name.
func (o *Objects) configMap(name string) *corev1.ConfigMap {
	at, ok := slices.BinarySearchFunc(o.ConfigMaps, name, func(m *corev1.ConfigMap, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return nil
	}
	return o.ConfigMaps[at]
}

// see fills in the pods in the way, on the nodes that were looked at.
func (o *Objects) see(s *v1alpha1.Skyhook, c *skyhook.Compiled) []Problem {
	var problems []Problem
	for _, p := range c.Problems {
		problems = append(problems, Problem{Rollout: c.Rollout.Ref, Text: p.Text})
	}
	protected, err := skyhook.Protected(s)
	if err != nil { // among the problems: the rollout stands still, so nobody is evicted
		return problems
	}
	rules := drain.SkyhookRules(s, protected)
	for i := range c.Rollout.Targets {
		t := &c.Rollout.Targets[i]
		pods, seen := o.Workloads[t.Node]
		if !seen || t.HeldAt.IsZero() {
			continue
		}
		t.PodsSeen = true
		t.Pods = rules.BlockingPods(pods, o.Ours, o.Refusals)
	}
	return problems
}

// Ours says that a pod belongs to a Skyhook or a NodeOp, or is an operator, whichever of several: where every node is
// cordoned nobody could start another.
func (o *Objects) Ours(p *corev1.Pod) bool {
	if o.ofNodeOp(p) || nodeop.IsKairosProbe(p, o.Config.Namespace) {
		return true
	}
	if p.Namespace != o.Config.Namespace {
		return false
	}
	if own := o.Config.OwnAccount; own != "" && p.Spec.ServiceAccountName == own {
		return true
	}
	for _, owner := range p.OwnerReferences {
		if owner.Controller != nil && *owner.Controller && owner.Kind == skyhook.Kind && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/") {
			return true
		}
	}
	return false
}

// machines are the nodes as the engine knows them.
func (o *Objects) machines(pods map[string][]*corev1.Pod) []rollout.Node {
	out := make([]rollout.Node, 0, len(o.Nodes))
	for _, n := range o.Nodes {
		holds := skyhook.Holds(n)
		for i := range holds {
			holds[i].Orphan = o.Orphans[holds[i].Owner] && !works(pods[holds[i].Owner.Name], n.Name)
		}
		for _, h := range o.opHolds(n.Name) {
			h.Orphan = o.Orphans[h.Owner] && !o.opWorks(h.Owner, n.Name)
			holds = append(holds, h)
		}
		out = append(out, rollout.Node{
			Name: n.Name, UID: n.UID, Created: n.Created, Ready: n.Ready, ReadyAt: n.ReadySince, Cordoned: n.Unschedulable, BootID: n.BootID,
			Holds: holds, Tainted: skyhook.Tainted(n, o.Config.RuntimeTaint), Known: skyhook.Known(n), Self: n.Name == o.Self && o.Self != "",
			Sending: o.sending[n.Name],
		})
	}
	return out
}

// works says that one of these pods is on a node.
func works(pods []*corev1.Pod, node string) bool {
	for _, p := range pods {
		if p.Spec.NodeName == node {
			return true
		}
	}
	return false
}
