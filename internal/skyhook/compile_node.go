// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// nodeResult is what one node was compiled to.
type nodeResult struct {
	out         *rollout.Target // nil if the Skyhook has nothing to do with the node
	target      *target         // the same for those who record and report
	edits       []node.NamedEdit
	definitions []*Definition // used by a step, no longer in the spec and frozen nowhere
	pulls       []imagePull   // of images without an explicit digest
	unnamed     []imagePull   // without a digest that could be recorded
	readsClock  bool          // it depends on the clock
}

// nodeCompiler compiles one node.
type nodeCompiler struct {
	facts    *facts
	render   renderer
	alike    map[shape]*targetTasks // tasks of nodes with equal records
	selected bool
	pods     podsOn
	refused  map[string]node.Refusal // by task
	unready  string                  // what a gate of the policy misses and the Node object does not show
	findings node.Findings
	result   nodeResult
}

// compileNode compiles one node with its pods. Tasks that other nodes have too are in alike.
func compileNode(f *facts, in *Input, alike map[shape]*targetTasks, n *node.Node, pods []*corev1.Pod, isSelected bool) nodeResult {
	c := nodeCompiler{
		facts: f, render: renderer{f}, alike: alike, selected: isSelected, pods: readPods(pods, f.Deleting),
		refused: in.Refused[n.Name], unready: in.Unready[n.Name], findings: in.Findings,
	}
	c.compileTarget(n)
	return c.result
}

// edit adds an edit that needs no plan.
func (c *nodeCompiler) edit(e node.NamedEdit) { c.result.edits = append(c.result.edits, e) }

// clock returns the present time. What is compiled with it is not taken over by the next pass.
func (c *nodeCompiler) clock() time.Time {
	c.result.readsClock = true
	return c.facts.Now
}

// compileTarget compiles one node, unless this Skyhook has nothing to do with it.
func (c *nodeCompiler) compileTarget(n *node.Node) {
	s, selected, pods := c.facts.Skyhook, c.selected, c.pods.work
	if len(pods) > 0 {
		n = c.recordUnstarted(c.recordBegun(n))
	}
	on := n.Skyhook(s.Name)
	if ended := n.EndKeptCordon(); selected && !ended.Empty() {
		c.edit(node.NamedEdit{Node: n.Name, Edit: ended})
	}
	rec, isWrong := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State).LimitTimes(c.facts.Now)
	c.result.readsClock = c.result.readsClock || isWrong
	leaving := !selected && !c.facts.Deleting
	switch {
	case c.facts.Deleting && len(pods) == 0 && !c.hasMarks(n),
		leaving && !rec.Admitted && !on.Cordoned && len(pods)+len(c.pods.drift)+len(c.pods.pulls) == 0:
		if leaving {
			c.clearNodeStatus(n)
		}
		return
	}
	out := &rollout.Target{
		Node: n.Name, UID: n.UID, Class: n.OrderClass(), Visit: rollout.Visit{Admission: rec.Admission, Order: rec.Order, Batch: rec.Batch, BatchOf: rec.Group}, Leaving: leaving,
	}
	if rec.FinishedAt != nil {
		out.Visit.FinishedAt = *rec.FinishedAt
		if rec.At != nil && !rec.Skipped {
			out.Visit.Took = max(0, rec.FinishedAt.Sub(*rec.At))
		}
	}
	out.Place = policy.FindTopologyValue(c.facts.Policy, n.Labels)
	out.Unproven = c.unprovenReason(n, &rec)
	out.Proof = Proofs(c.facts.Skyhook, c.facts.Policy).Compile(n, node.ProofState{Since: rec.Proving, Offered: rec.Offered, Missing: c.findings})
	out.Visit.Admitted = rec.Admitted || isAdmittedByRecord(n, on, s) || rec.Admission == 0 && len(on.State) > 0 && (on.Cordoned || len(pods) > 0)
	if rec.At != nil {
		out.Visit.LastAdmittedAt = *rec.At
		if out.Visit.Admitted {
			out.Visit.AdmittedAt = *rec.At
		}
	}
	if out.Visit.Admitted {
		out.Reboot = rec.Reboot
	}
	switch {
	case on.Cordoned && rec.Held != nil:
		out.Drain.HeldAt, out.Drain.PodsRecorded = rec.Held.At, rec.Held.CountedPods()
	case on.Cordoned:
		out.Drain.HeldAt = c.clock()
	}
	out.Visit.Skipped = rec.Skipped && rec.Generation == s.Generation && rec.State == on.StateHash // an edit or a rerun makes it eligible again
	if selected {
		c.takeBack(&rec, on.State)
	}
	c.compileRollback(&rec, on.State, out)
	t := &target{
		node: n, on: on, rec: rec, pods: c.pods, selected: selected && !c.facts.Deleting, wanted: c.facts.wantedOn(&rec),
		revision: revisionKey(finishedHashes(on.State, rec.Packages)),
	}
	c.result.out, c.result.target = out, t
	if isWrong || on.Cordoned && !n.Unschedulable {
		c.correctRecord(t)
	}
	c.compileWork(t, out)
	c.compileDrift(t, out)
	c.compilePull(t, out)
}

// groupOf returns the group of a node.
func groupOf(f *facts, n *node.Node, groups *policy.Grouping) rollout.GroupRef {
	of := policy.Node{Name: n.Name, Labels: n.Labels}
	if groups.HasCanaries() {
		of = policyNode(f, n)
	}
	return groups.GroupOf(&of)
}

// isAdmittedByRecord reports whether the record says that the node is in flight though its nodeState cannot be read: that
// changes nothing about the admission, unlike an absent nodeState, which is a reset.
func isAdmittedByRecord(n *node.Node, on *node.SkyhookState, s *v1alpha1.Skyhook) bool {
	isRecord := !on.RecordUnreadable && on.Record.Node == n.UID && on.Record.Skyhook == string(s.UID)
	return on.Problem != "" && isRecord && on.Record.Admitted
}

// compileWork compiles what is to be done on a node. On one that is wiped, or whose annotations cannot be read, nothing is
// done, and its pods are listed.
func (c *nodeCompiler) compileWork(t *target, out *rollout.Target) {
	isUnreadable := t.on.Problem != "" && !(c.facts.Deleting && !c.facts.uninstallsOnDeletion())
	switch {
	case c.facts.Deleting && !c.hasMarks(t.node):
		out.Wiped, out.Visit.Admitted = true, false
		c.addStrays(t, out, nil)
	case isUnreadable:
		out.Blocked = &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: t.on.Problem, About: "Node " + t.node.Name}
		c.addStrays(t, out, nil)
	case out.Leaving:
		c.compileLeaving(t, out)
	default:
		c.compileTasks(t, out)
		if why := excludedReason(c.facts, t.node); why != nil {
			out.Blocked = why
		}
	}
}

// correctRecord adds the edit that replaces times in the future on the node, and notes that somebody uncordoned it.
func (c *nodeCompiler) correctRecord(t *target) {
	rec, isWrong := t.on.Record.LimitTimes(c.facts.Now)
	held, isUncordoned := rec.Held.NoteUncordon(t.node)
	if t.on.RecordUnreadable || !isWrong && !isUncordoned {
		return
	}
	rec.Held = held
	e := node.Edit{}
	e.SetAnnotation(t.node, v1alpha1.PrefixRecord+c.facts.Skyhook.Name, rec.String())
	c.edit(node.NamedEdit{Node: t.node.Name, Edit: e})
}

// clearNodeStatus removes the status marks of a node that is no longer selected and not in flight.
func (c *nodeCompiler) clearNodeStatus(n *node.Node) {
	e := node.Edit{}
	e.RemoveSkyhookStatus(n, c.facts.Skyhook.Name)
	if c.facts.keys.hasCondition(n.Conditions) {
		e = e.Plus(removeConditions(c.facts, n))
	}
	if !e.Empty() {
		c.edit(node.NamedEdit{Node: n.Name, Edit: e})
	}
}

// compileLeaving compiles a node that is no longer selected: the running task ends and nothing starts.
func (c *nodeCompiler) compileLeaving(t *target, out *rollout.Target) {
	w := c.facts.diffPackages(t)
	w.leaving = true
	p := &packageSteps{}
	for _, name := range sortedNames(w.entries) {
		p.name = name
		w.keepStarted(p)
	}
	of := c.compileAll(w, p.removal)
	out.Tasks, out.Objects.Queues, t.steps = of.tasks, of.queues, of.steps
	c.addStrays(t, out, of.used)
}

// compileTasks compiles the tasks of a selected node. Nodes with the same state have the same tasks, which are computed
// once; a node with pods is computed by itself.
func (c *nodeCompiler) compileTasks(t *target, out *rollout.Target) {
	if c.isSettled(t) {
		return
	}
	isUnknown := !t.on.HasRecord() && !t.on.Cordoned
	alone := out.Visit.Admitted || t.wanted.isBack || len(c.pods.work) > 0 || t.rec.State != t.on.StateHash && !isUnknown || c.hasRebootedSince(t)
	key := shape{t.on.Shape, c.facts.isCompactOn(t.node, &t.rec)}
	d := c.alike[key]
	if d == nil || alone {
		d = c.deriveTasks(t, out.Visit.Admitted)
		if !alone {
			c.alike[key] = d
		}
	} else {
		for _, st := range d.steps {
			c.keepDefinition(st.def)
		}
	}
	out.Tasks, out.Objects.Queues, out.Rebooted, t.steps, t.edited, t.stuck = d.tasks, d.queues, d.rebooted, d.steps, d.edited, d.stuck
	if d.blocked {
		out.Blocked = d.stuck
	}
	c.addStrays(t, out, d.used)
	c.markStale(t, d)
}

// shape is what the tasks of a node without pods depend on.
type shape struct {
	state     string // node.SkyhookState.Shape
	isCompact bool   // stages share pods on the node
}

// targetTasks is the result of comparing a node with the spec.
type targetTasks struct {
	compiledTasks
	adopt, forget []string // see packageDiff
	edited        int
	stuck         *rollout.Why // a package cannot start because its dependency is uninstalled
	blocked       bool         // and there is no other work
	rebooted      bool         // see packageDiff
}

// deriveTasks compares one node with the spec. It leaves out packages whose dependency is uninstalled, so that they do
// not keep the node in flight; without other work the node is blocked.
func (c *nodeCompiler) deriveTasks(t *target, admitted bool) *targetTasks {
	w := c.facts.diffPackages(t)
	steps := w.orderSteps()
	d := &targetTasks{adopt: w.adopt, forget: w.forget, edited: w.edited, rebooted: w.rebooted}
	if len(w.stuck) > 0 {
		name := slices.Min(sortedNames(w.stuck))
		d.stuck = &rollout.Why{Reason: rollout.ReasonDependency, About: "Package " + w.stuck[name],
			Text: fmt.Sprintf("package %s depends on %s, which is uninstalled: set its uninstall.apply to false, or remove the dependency", name, w.stuck[name])}
		if len(steps) == 0 && !admitted {
			steps, d.blocked = w.aside, true
		}
	}
	d.compiledTasks = c.compileAll(w, steps)
	return d
}

// hasRebootedSince reports whether a reboot may require that packages are applied again.
func (c *nodeCompiler) hasRebootedSince(t *target) bool {
	if !c.facts.Config.ReapplyOnReboot {
		return false
	}
	for _, p := range t.rec.Packages {
		if p.Boot != t.node.BootID {
			return true
		}
	}
	return false
}

// isSettled is the fast path for a node on which every package is finished, the state of most nodes.
func (c *nodeCompiler) isSettled(t *target) bool {
	if c.facts.Deleting || len(t.on.State) != len(t.wanted.defs) || len(c.pods.work) > 0 {
		return false
	}
	for key, rec := range t.rec.Packages {
		name, _, _ := cutKey(key)
		want := t.wanted.defs[name]
		if want == nil || rec.Goal != "" || rec.Hash != want.Hash || c.facts.isUninstalled(t.wanted, name) ||
			c.facts.Config.ReapplyOnReboot && rec.Boot != t.node.BootID {
			return false
		}
		if _, ok := t.on.State[key]; !ok {
			return false
		}
	}
	return len(t.rec.Packages) == len(t.wanted.defs)
}

// hasMarks reports whether the node has annotations, labels or conditions of this Skyhook, other than the record of packages
// that stay after its deletion.
func (c *nodeCompiler) hasMarks(n *node.Node) bool {
	_, labelled := n.Labels[v1alpha1.PrefixStatus+c.facts.Skyhook.Name]
	hasAnnotations := n.HasSkyhook(c.facts.Skyhook.Name) && !n.Skyhook(c.facts.Skyhook.Name).IsKept()
	return hasAnnotations || labelled || c.facts.keys.hasCondition(n.Conditions)
}

// excludedReason returns which label or taint excludes a node; nil for none.
func excludedReason(f *facts, n *node.Node) *rollout.Why {
	if n.Labels[v1alpha1.LabelIgnore] == "true" {
		return &rollout.Why{Reason: rollout.ReasonIgnored, About: "Node " + n.Name,
			Text: "the node has the label " + v1alpha1.LabelIgnore + "=true: remove it to go on"}
	}
	if taint := firstUntoleratedTaint(f, n); taint != nil {
		return &rollout.Why{Reason: rollout.ReasonTaintNotTolerated, About: "Node " + n.Name,
			Text: fmt.Sprintf("taint %s is not tolerated: add it to additionalTolerations, or remove it from the node", taint.ToString())}
	}
	return nil
}
