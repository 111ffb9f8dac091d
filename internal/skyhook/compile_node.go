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
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/record"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// nodeResult is what one node was compiled to.
type nodeResult struct {
	out         *rollout.Target // nil if the Skyhook has nothing to do with the node
	target      *plan.Target    // the same for those who record and report
	edits       []node.NamedEdit
	definitions []*plan.Definition // used by a step, and not in the spec
	pulls       []plan.ImagePull   // of images without an explicit digest
	unnamed     []plan.ImagePull   // without a digest that could be recorded
	readsClock  bool               // it depends on the clock
}

// nodeCompiler compiles one node.
type nodeCompiler struct {
	facts    *plan.Facts
	render   render.Renderer
	alike    map[shape]*targetTasks // tasks of nodes with equal records
	selected bool
	pods     podstate.OnNode
	refused  map[string]node.Refusal // by task
	findings node.Findings
	result   nodeResult
}

// compileNode compiles one node with its pods. Tasks that other nodes have too are in alike.
func compileNode(f *plan.Facts, in *plan.Input, alike map[shape]*targetTasks, n *node.Node, pods []*corev1.Pod, isSelected bool) nodeResult {
	c := nodeCompiler{
		facts: f, render: render.Renderer{Facts: f}, alike: alike, selected: isSelected, pods: podstate.ReadAll(pods, f.Deleting),
		refused: in.Refused[n.Name], findings: in.Findings,
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
	s, selected, pods := c.facts.Skyhook, c.selected, c.pods.Work
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
		leaving && !rec.Admitted && !on.Cordoned && len(pods)+len(c.pods.Checks)+len(c.pods.Pulls) == 0:
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
	out.Visit.Runs = rec.Runs()
	out.Proof = plan.Proofs(c.facts.Skyhook, c.facts.Policy).Compile(n, node.ProofState{Since: rec.Proving, Boot: rec.Boot, Offered: rec.Offered, Missing: c.findings})
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
	t := &plan.Target{
		Node: n, On: on, Record: rec, Pods: c.pods, Selected: selected && !c.facts.Deleting, Wanted: c.facts.WantedOn(&rec),
		Revision: plan.RevisionKey(plan.FinishedHashes(on.State, rec.Packages)),
	}
	c.result.out, c.result.target = out, t
	if isWrong || on.Cordoned && !n.Unschedulable || c.facts.IsOutdated(on.Record.Rollback) {
		c.correctRecord(t)
	}
	c.compileWork(t, out)
	if !c.compilePreflight(t, out) {
		c.compileDrift(t, out)
	}
	c.compilePull(t, out)
}

// groupOf returns the group of a node.
func groupOf(f *plan.Facts, n *node.Node, groups *policy.Grouping) rollout.GroupRef {
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
func (c *nodeCompiler) compileWork(t *plan.Target, out *rollout.Target) {
	isUnreadable := t.On.Problem != "" && !(c.facts.Deleting && !c.facts.UninstallsOnDeletion())
	switch {
	case c.facts.Deleting && !c.hasMarks(t.Node):
		out.Wiped, out.Visit.Admitted = true, false
		c.addStrays(out, nil)
	case isUnreadable:
		out.Blocked = &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: t.On.Problem, About: "Node " + t.Node.Name}
		c.addStrays(out, nil)
	case out.Leaving:
		c.compileLeaving(t, out)
	default:
		c.compileTasks(t, out)
		if why := excludedReason(c.facts, t.Node); why != nil {
			out.Blocked = why
		} else if out.Blocked == nil {
			out.Blocked = c.facts.FindForbidden(t)
		}
	}
}

// correctRecord adds the edit that replaces times in the future on the node, notes that somebody uncordoned it, and ends the mark of having
// gone back from other packages: when they are asked for again, they begin anew.
func (c *nodeCompiler) correctRecord(t *plan.Target) {
	rec, isWrong := t.On.Record.LimitTimes(c.facts.Now)
	held, isUncordoned := rec.Held.NoteUncordon(t.Node)
	isOutdated := c.facts.IsOutdated(rec.Rollback)
	if t.On.RecordUnreadable || !isWrong && !isUncordoned && !isOutdated {
		return
	}
	if rec.Held = held; isOutdated {
		rec.Rollback = nil
	}
	e := node.Edit{}
	e.SetAnnotation(t.Node, v1alpha1.PrefixRecord+c.facts.Skyhook.Name, rec.String())
	c.edit(node.NamedEdit{Node: t.Node.Name, Edit: e})
}

// clearNodeStatus removes the status marks of a node that is no longer selected and not in flight.
func (c *nodeCompiler) clearNodeStatus(n *node.Node) {
	e := node.Edit{}
	e.RemoveSkyhookStatus(n, c.facts.Skyhook.Name)
	if c.facts.Keys.HasCondition(n.Conditions) {
		e = e.Plus(record.RemoveConditions(c.facts, n))
	}
	if !e.Empty() {
		c.edit(node.NamedEdit{Node: n.Name, Edit: e})
	}
}

// compileLeaving compiles a node that is no longer selected: the running task ends and nothing starts.
func (c *nodeCompiler) compileLeaving(t *plan.Target, out *rollout.Target) {
	w := c.facts.DiffPackages(t)
	w.Leaving = true
	p := &plan.PackageSteps{}
	for _, name := range plan.SortedNames(w.Entries) {
		p.Name = name
		w.KeepStarted(p)
	}
	of := c.compileAll(w, p.Removal)
	out.Tasks, out.Objects.Queues, t.Steps = of.tasks, of.queues, of.steps
	c.addStrays(out, of.used)
}

// compileTasks compiles the tasks of a selected node. Nodes with the same state have the same tasks, which are computed
// once; a node with pods is computed by itself.
func (c *nodeCompiler) compileTasks(t *plan.Target, out *rollout.Target) {
	if c.isSettled(t) {
		return
	}
	isUnknown := !t.On.HasRecord() && !t.On.Cordoned
	alone := out.Visit.Admitted || len(t.Record.Preflight) > 0 || t.Wanted.IsBack || len(c.pods.Work) > 0 || t.Record.State != t.On.StateHash && !isUnknown || c.hasRebootedSince(t)
	key := shape{t.On.Shape, c.facts.IsCompactOn(t.Node, &t.Record), t.Node.MountsReadOnly}
	d := c.alike[key]
	if d == nil || alone {
		d = c.deriveTasks(t, out.Visit.Admitted)
		if !alone {
			c.alike[key] = d
		}
	} else {
		for _, st := range d.steps {
			c.keepDefinition(st.Definition)
		}
	}
	out.Tasks, out.Objects.Queues, out.Rebooted, t.Steps, t.Edited, t.Stuck = d.tasks, d.queues, d.rebooted, d.steps, d.edited, d.stuck
	if d.blocked {
		out.Blocked = d.stuck
	}
	c.addStrays(out, d.used)
	c.markStale(t, d)
}

// shape is what the tasks of a node without pods depend on.
type shape struct {
	state     string // node.SkyhookState.Shape
	isCompact bool   // stages share pods on the node
	confines  bool   // pods can be made that may do less than everything
}

// targetTasks is the result of comparing a node with the spec.
type targetTasks struct {
	compiledTasks
	adopt, forget []string // see packageDiff
	begun         []string // keys, to be recorded
	edited        int
	stuck         *rollout.Why // a package cannot start because its dependency is uninstalled
	blocked       bool         // and there is no other work
	rebooted      bool         // see packageDiff
}

// deriveTasks compares one node with the spec. It leaves out packages whose dependency is uninstalled, so that they do
// not keep the node in flight; without other work the node is blocked.
func (c *nodeCompiler) deriveTasks(t *plan.Target, admitted bool) *targetTasks {
	w := c.facts.DiffPackages(t)
	steps := w.OrderSteps()
	d := &targetTasks{adopt: w.Adopt, forget: w.Forget, edited: w.Edited, rebooted: w.Rebooted}
	if len(w.Stuck) > 0 {
		name := slices.Min(plan.SortedNames(w.Stuck))
		d.stuck = &rollout.Why{Reason: rollout.ReasonDependency, About: "Package " + w.Stuck[name],
			Text: fmt.Sprintf("package %s depends on %s, which is uninstalled: set its uninstall.apply to false, or remove the dependency", name, w.Stuck[name])}
		if len(steps) == 0 && !admitted {
			steps, d.blocked = w.Aside, true
		}
	}
	d.compiledTasks = c.compileAll(w, steps)
	d.begun = w.FindBegun(d.used)
	return d
}

// hasRebootedSince reports whether a reboot may require that packages are applied again.
func (c *nodeCompiler) hasRebootedSince(t *plan.Target) bool {
	if !c.facts.Config.ReapplyOnReboot {
		return false
	}
	for _, p := range t.Record.Packages {
		if !p.IsOf(t.Node.BootID) {
			return true
		}
	}
	return false
}

// isSettled is the fast path for a node on which every package is finished, the state of most nodes.
func (c *nodeCompiler) isSettled(t *plan.Target) bool {
	if c.facts.Deleting || len(t.On.State) != len(t.Wanted.Packages) || len(c.pods.Work) > 0 {
		return false
	}
	for key, rec := range t.Record.Packages {
		name, _, _ := plan.CutKey(key)
		want := t.Wanted.Packages[name]
		if want == nil || rec.Goal != "" || rec.Hash != want.Hash || c.facts.IsUninstalled(t.Wanted, name) ||
			c.facts.Config.ReapplyOnReboot && !rec.IsOf(t.Node.BootID) {
			return false
		}
		if _, ok := t.On.State[key]; !ok {
			return false
		}
	}
	return len(t.Record.Packages) == len(t.Wanted.Packages)
}

// hasMarks reports whether the node has annotations, labels or conditions of this Skyhook, other than the record of packages
// that stay after its deletion.
func (c *nodeCompiler) hasMarks(n *node.Node) bool {
	_, labelled := n.Labels[v1alpha1.PrefixStatus+c.facts.Skyhook.Name]
	hasAnnotations := n.HasSkyhook(c.facts.Skyhook.Name) && !n.Skyhook(c.facts.Skyhook.Name).IsKept()
	return hasAnnotations || labelled || c.facts.Keys.HasCondition(n.Conditions)
}

// excludedReason returns which label or taint excludes a node; nil for none.
func excludedReason(f *plan.Facts, n *node.Node) *rollout.Why {
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
