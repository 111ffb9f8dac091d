// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/record"
)

// Compiled is what was made of the objects of one moment: what the engine decides about, and what the front ends know of each
// Skyhook and NodeOp, for Apply and for those who report.
type Compiled struct {
	Objects  *Objects
	Snapshot rollout.Snapshot
	Skyhooks map[rollout.Ref]*skyhook.Compiled
	NodeOps  map[rollout.Ref]*nodeop.Compiled
	Problems []Problem
	answers  careAnswers
}

// Compile compiles what was observed, and changes nothing of it. One object that is wrong is a Problem and a rollout that
// stands still; the others go on.
func Compile(o *Objects, now time.Time) *Compiled { return compile(o, keptNodes{}, now) }

// Compile is Compile with what was compiled the last time: nodes that have not changed since are not compiled again.
func (c *Cluster) Compile(o *Objects, now time.Time) *Compiled {
	out := compile(o, keptNodes{c.compiled, c.answers, c.options.OnDifference}, now)
	c.compiled, c.answers = out.Skyhooks, out.answers
	return out
}

// Skyhook is what was compiled of a Skyhook; nil when it is not among the objects.
func (c *Compiled) Skyhook(s *v1alpha1.Skyhook) *skyhook.Compiled {
	return c.Skyhooks[plan.Ref(s.Name)]
}

// NodeOp is what was compiled of a NodeOp; nil when it is not among the objects.
func (c *Compiled) NodeOp(op *opv1.NodeOp) *nodeop.Compiled { return c.NodeOps[nodeop.Ref(op)] }

// compiler makes a Compiled.
type compiler struct {
	objects  *Objects
	kept     keptNodes
	snapshot rollout.Snapshot
	skyhooks map[rollout.Ref]*skyhook.Compiled
	nodeOps  map[rollout.Ref]*nodeop.Compiled
	groups   map[rollout.GroupRef]int // where a group is in the snapshot, by its name
	answers  careAnswers
	problems []Problem
}

func compile(o *Objects, kept keptNodes, now time.Time) *Compiled {
	c := &compiler{
		objects: o, kept: kept, snapshot: rollout.Snapshot{Now: now}, groups: map[rollout.GroupRef]int{},
		skyhooks: make(map[rollout.Ref]*skyhook.Compiled, len(o.Skyhooks)), nodeOps: make(map[rollout.Ref]*nodeop.Compiled, len(o.NodeOps)),
	}
	pods := map[string][]*corev1.Pod{} // by the name on their label: whose they really are is for the front end to judge
	for _, p := range o.Pods {
		name := p.Labels[v1alpha1.LabelName]
		pods[name] = append(pods[name], p)
	}
	c.addSkyhooks(pods)
	c.addNodeOps()
	c.addUnnamedLedgers()
	c.markEndedReservations()
	c.addNodes(pods)
	c.addCare()
	c.addHandovers()
	policy.AddUnavailable(&c.snapshot)
	for i := range c.snapshot.Rollouts {
		r := &c.snapshot.Rollouts[i]
		r.Numbering.OnTheirWay, r.Defaults = o.inFlight.rollouts[r.Ref], o.Defaults[r.Ref]
	}
	for i := range c.snapshot.Groups {
		c.snapshot.Groups[i].Defaults = o.Defaults[c.snapshot.Groups[i].Ref.Owner]
	}
	c.markFailedRequests()
	o.durations.Measure(&c.snapshot)
	c.snapshot.Times = rollout.NewTimes(c.snapshot.Rollouts)
	return &Compiled{o, c.snapshot, c.skyhooks, c.nodeOps, c.problems, c.answers}
}

// markFailedRequests marks the targets for which the last request failed.
func (c *compiler) markFailedRequests() {
	failed := c.objects.inFlight.failed
	if len(failed) == 0 {
		return
	}
	for i := range c.snapshot.Rollouts {
		r := &c.snapshot.Rollouts[i]
		for j := range r.Targets {
			t := r.Targets[j]
			if failed[failureKey{node: t.Node}] || failed[failureKey{t.Node, r.Ref}] {
				r.CopyTarget(j).RequestFailed = true
			}
		}
	}
}

func (c *compiler) addSkyhooks(pods map[string][]*corev1.Pod) {
	o := c.objects
	claims := map[string]string{}
	for _, s := range o.Skyhooks {
		by, missing := o.policyOfSkyhook(s)
		compiled := c.kept.compile(&plan.Input{
			Skyhook: s, Policy: by, PolicyMissing: missing, Closed: o.gatesOf(by).Closed, Failed: o.gatesOf(by).Failed, Findings: o.Findings[plan.Ref(s.Name)], Nodes: o.Nodes, Pods: pods[s.Name],
			Definitions: o.Definitions, Revisions: o.revisionsOf(s), Claims: claims, Config: o.Config, Now: c.snapshot.Now, Refused: o.refused.tasks[plan.Ref(s.Name)],
		})
		for _, name := range skyhook.Claims(s) {
			if _, taken := claims[name]; !taken {
				claims[name] = s.Name
			}
		}
		c.checkConfigMapOwners(s, compiled)
		if text := o.blockRefused(&compiled.Rollout, s.Generation, s.Status.Conditions); text != "" {
			compiled.Problems = append(compiled.Problems, plan.Problem{Reason: rollout.ReasonRefused, Text: text, Refuses: true})
		}
		for _, p := range compiled.Problems {
			c.problems = append(c.problems, Problem{Rollout: compiled.Rollout.Ref, Text: p.Text, Refuses: p.Refuses})
		}
		c.addPodsOfSkyhook(s, compiled)
		c.skyhooks[compiled.Rollout.Ref] = compiled
		c.snapshot.Rollouts = append(c.snapshot.Rollouts, compiled.Rollout)
		c.addLedger(compiled.Ledger)
		for _, g := range compiled.Groups {
			c.addGroup(g)
		}
	}
}

// addLedger adds a ledger, unless it is known: the users of a policy name the same one.
func (c *compiler) addLedger(l rollout.Ledger) {
	isKnown := slices.ContainsFunc(c.snapshot.Ledgers, func(known rollout.Ledger) bool { return known.Owner == l.Owner })
	if !isKnown {
		c.snapshot.Ledgers = append(c.snapshot.Ledgers, l)
	}
}

// addUnnamedLedgers adds the ledgers that no group names: after the scope or the name of a policy changed, their admissions
// may still be on the way to nodes.
func (c *compiler) addUnnamedLedgers() {
	for _, s := range c.objects.Skyhooks {
		if s.Status.Internal.Admission != nil {
			c.addLedger(policy.ReadLedger(plan.Ref(s.Name), s.Status.Internal.Admission))
		}
	}
	for _, p := range c.objects.Policies {
		if p.Status.Internal.Admission != nil {
			c.addLedger(policy.ReadLedger(policy.Ref(p), p.Status.Internal.Admission))
		}
	}
}

// markEndedReservations marks the admissions of finished NodeOps, whose records are gone: they would count until their term ends, and from
// the beginning for each operator.
func (c *compiler) markEndedReservations() {
	for _, l := range c.snapshot.Ledgers {
		for i := range l.Admitting {
			r := &l.Admitting[i]
			op := c.nodeOps[r.Rollout]
			r.Ended = op != nil && op.Operation.HasEndedOn(r.Node)
		}
	}
}

// addGroup adds a group, or merges it with what others say about the same group. It reports whether the group is new.
func (c *compiler) addGroup(g rollout.Group) (isNew bool) {
	if at, known := c.groups[g.Ref]; known {
		c.snapshot.Groups[at] = policy.MergeGroups(c.snapshot.Groups[at], g)
		return false
	}
	c.groups[g.Ref] = len(c.snapshot.Groups)
	c.snapshot.Groups = append(c.snapshot.Groups, g)
	return true
}

// checkConfigMapOwners finds foreign ConfigMaps with the names that the Skyhook's need.
func (c *compiler) checkConfigMapOwners(s *v1alpha1.Skyhook, compiled *skyhook.Compiled) {
	for _, want := range compiled.ConfigMaps() {
		found := c.objects.configMap(want.Name)
		if found == nil || isOwnedBy(found, s) {
			continue
		}
		title := found.Namespace + "/" + found.Name
		why := rollout.Why{Reason: rollout.ReasonInvalidSpec, About: "ConfigMap " + title,
			Text: fmt.Sprintf("ConfigMap %s is needed for a package and belongs to somebody else: delete it, or rename the package", title)}
		compiled.Problems = append(compiled.Problems, plan.Problem{Reason: why.Reason, Text: why.Text, Field: "packages", Refuses: true})
		if !compiled.Rollout.Deleting {
			compiled.Rollout.Broken = &why
		}
		return
	}
}

// addPodsOfSkyhook fills in the pods that block the nodes that were looked at.
func (c *compiler) addPodsOfSkyhook(s *v1alpha1.Skyhook, compiled *skyhook.Compiled) {
	rules, err := drain.SkyhookRules(s)
	if err != nil { // one of the problems: the rollout stands still, so nothing is evicted
		return
	}
	o := c.objects
	for i, t := range compiled.Rollout.Targets {
		pods, listed := o.Workloads[t.Node]
		mayMatter := !t.Drain.HeldAt.IsZero() || compiled.Rollout.Drain.WaitFirst
		if listed && mayMatter {
			t = compiled.Rollout.CopyTarget(i)
			t.Drain.PodsSeen = true
			t.Drain.Pods = rules.On(o.Node(t.Node)).BlockingPods(pods, o.IsOurs, o.Refusals)
			for j := range t.Drain.Pods {
				t.Drain.Pods[j].Asked = t.Drain.Pods[j].Asked || o.durations == nil // only the operator knows which it asked
			}
		}
	}
}

// addNodes adds the nodes as the engine knows them.
func (c *compiler) addNodes(pods map[string][]*corev1.Pod) {
	o := c.objects
	c.snapshot.Nodes = make([]rollout.Node, 0, len(o.Nodes))
	for _, n := range o.Nodes {
		_, isRefused := o.refused.nodes[n.Name]
		holds := o.holds(n)
		for i, h := range holds {
			isActive := runsOn(pods[h.Owner.Name], n.Name)
			if h.Owner.Kind == nodeop.Kind {
				isActive = o.isNodeOpActive(h.Owner, n.Name)
			}
			holds[i].Orphan = o.Orphans[h.Owner] && !isActive
		}
		c.snapshot.Nodes = append(c.snapshot.Nodes, rollout.Node{
			Name: n.Name, UID: n.UID, Created: n.Created, Ready: n.Ready, ReadyAt: n.ReadySince, Cordoned: n.Unschedulable, BootID: n.BootID,
			Holds: holds, Tainted: n.HasTaint(o.Config.RuntimeTaint), OwnTaint: n.Annotations[record.AutoTaintKey(o.Config.RuntimeTaint)] == "true", Kept: n.IsKeptCordoned(), Known: n.IsKnown(), Self: n.Name == o.Self && o.Self != "",
			Sending: o.inFlight.nodes[n.Name], Refused: isRefused,
		})
	}
}

// isNodeOpActive reports whether a NodeOp that is gone, whose UID is in the name of the hold's owner, has a pod on a node.
func (o *Objects) isNodeOpActive(owner rollout.Ref, node string) bool {
	_, uid, _ := strings.Cut(owner.Name, "@")
	return slices.ContainsFunc(o.NodeOpPods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node && isControlledBy(p, uid) })
}

// runsOn reports whether one of these pods is on a node.
func runsOn(pods []*corev1.Pod, node string) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}
