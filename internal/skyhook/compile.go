// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// target is a node of this Skyhook with everything known about it.
type target struct {
	node     *node.Node
	on       *node.SkyhookState
	rec      node.SkyhookRecord
	steps    map[string]*step // by id; nil for a node without work
	edited   int
	selected bool
	stuck    *rollout.Why // a package cannot start because its dependency is uninstalled
	wanted   wanted

	quiet rollout.Phase // the phase for which Words is empty, as noted by a pass; empty for none
}

// Compile turns a Skyhook into a rollout. An invalid Skyhook gives Problems and a Broken rollout that is rebuilt
// from the records of the nodes, so that it keeps its holds.
func Compile(in *Input) *Compiled { return CompileAfter(nil, in) }

// CompileAfter is Compile in a pass that follows another one: nodes that have not changed since are not compiled again. Nodes and pods
// must be the same pointers if they are the same version, and are not changed.
func CompileAfter(before *Compiled, in *Input) *Compiled {
	s := in.Skyhook
	c := &Compiled{
		in: in, defs: map[string]*Definition{}, byHash: map[string]*Definition{}, alike: map[shape]*targetTasks{},
		all: make([]*target, 0, len(in.Nodes)), kept: make([]*keptNode, 0, len(in.Nodes)), marks: newNodeMarks(s.Name), revisionKeys: map[string]string{},
		mounts: &mountProblems{of: map[mountingVersions]string{}},
	}
	for name, p := range s.Spec.Packages {
		d := newDefinition(name, p)
		c.defs[name], c.byHash[d.Hash] = d, d
	}
	c.pins = c.knownPins()
	c.readPods(before)
	c.Rollout = rollout.Rollout{
		Ref: Ref(s.Name), UID: string(s.UID), Sequence: Kind,
		Priority: priority(s), Barrier: s.Spec.Sequencing == v1alpha1.SequencingAll,
		Paused: hasAnnotation(s, v1alpha1.AnnotationPause) || hasAnnotation(s, v1alpha1.AnnotationDisable), Yields: hasAnnotation(s, v1alpha1.AnnotationDisable),
		Deleting: s.DeletionTimestamp != nil, Serial: s.Spec.Serial,
		Taint:      rollout.Taint{Required: s.Spec.RuntimeRequired, NewNodes: s.Spec.RuntimeRequired && s.Spec.AutoTaintNewNodes, CordonAfter: s.Spec.RuntimeRequired && s.Spec.RuntimeRequiredCordonAfter},
		DriftLimit: driftLimit(s),
		Drain:      drainOptions(s.Spec.DrainConfig), Numbering: rollout.Numbering{Stored: true, Next: s.Status.NodeOrderOffset}, Since: owesSince(s),
		Announce: announces(s, in.Policy), SharesReboots: s.Spec.ShareReboots,
	}
	c.Problems = checkSpec(in, c.defs)
	if i := slices.IndexFunc(c.Problems, func(p Problem) bool { return p.Refuses }); i >= 0 && !c.Rollout.Deleting {
		c.Rollout.Broken = &rollout.Why{Reason: c.Problems[i].Reason, Text: c.Problems[i].Text}
	}
	k := c.newKeeper(before)
	k.findRollback()
	k.forgetAfterSharedChange(before)
	selected, count := k.selectNodes()
	c.warnUnlimited(count)
	groups := c.targetCompiler().newGrouping(selected)
	c.Rollout.Targets = make([]*rollout.Target, 0, len(in.Nodes))
	for i := range in.Nodes {
		k.addNode(i, selected[i], groups)
	}
	c.indexTargets(before)
	c.Rollout.Usual = rollout.FindUsual(c.Rollout.Targets)
	c.Groups, c.Ledger = groups.Groups(c.Rollout.Targets), groups.Ledger()
	c.Removed = c.Rollout.Deleting && len(c.Rollout.Targets) == 0
	return c
}

func hasAnnotation(s *v1alpha1.Skyhook, annotation string) bool {
	return s.Annotations[annotation] == "true"
}

func priority(s *v1alpha1.Skyhook) int {
	if s.Spec.Priority == 0 {
		return 200
	}
	return s.Spec.Priority
}

func drainOptions(d *v1alpha1.DrainConfig) rollout.Drain {
	out := rollout.Drain{OnTimeout: rollout.DrainWait}
	if d == nil {
		return out
	}
	if d.Timeout != nil {
		out.Timeout = d.Timeout.Duration
	}
	if d.LoadBalancerDelay != nil {
		out.LoadBalancerDelay = d.LoadBalancerDelay.Duration
	}
	if d.OnTimeout != "" {
		out.OnTimeout = rollout.DrainTimeout(d.OnTimeout)
	}
	out.Delete = d.DisableEviction != nil && *d.DisableEviction
	policy.AddPodOptions(&out, &d.DrainPodOptions)
	return out
}

// uninstalls reports whether the spec requests the uninstall of a package that stays in the list.
func (c *Compiled) uninstalls(name string) bool {
	u := c.in.Skyhook.Spec.Packages[name].Uninstall
	return u != nil && u.Enabled && u.Apply
}

// isUninstalled reports whether a wanted package is to be uninstalled. Nodes that go back have nothing of that.
func (c *Compiled) isUninstalled(w wanted, name string) bool { return !w.isBack && c.uninstalls(name) }

// uninstallsOnDeletion reports whether a package of the spec must be uninstalled before the Skyhook is deleted.
func (c *Compiled) uninstallsOnDeletion() bool {
	for _, d := range c.defs {
		if d.isUninstallEnabled() {
			return true
		}
	}
	return false
}

// definition finds a definition by its hash; nil when it is not known.
func (c *Compiled) definition(hash string) *Definition {
	if d := c.byHash[hash]; d != nil {
		return d
	}
	return c.in.Definitions[hash]
}

// edits reports whether the definition of a finished package changed in a way that affects its pods but runs nothing.
func (c *Compiled) edits(hash string, want *Definition) bool {
	old := c.definition(hash)
	return old == nil || old.pod != want.pod
}

// compileTarget compiles one node, unless this Skyhook has nothing to do with it.
func (tc targetCompiler) compileTarget(n *node.Node, selected bool, groups *policy.Grouping) {
	s := tc.in.Skyhook
	pods := tc.pods[n.Name]
	if len(pods) > 0 {
		n = tc.recordUnstarted(tc.recordBegun(n))
	}
	on := n.Skyhook(s.Name)
	if ended := n.EndKeptCordon(); selected && !ended.Empty() {
		tc.Adopt = append(tc.Adopt, node.NamedEdit{Node: n.Name, Edit: ended})
	}
	rec, isWrong := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State).LimitTimes(tc.in.Now)
	tc.hasReadClock = tc.hasReadClock || isWrong
	leaving := !selected && !tc.Rollout.Deleting
	switch {
	case tc.Rollout.Deleting && len(pods) == 0 && !tc.hasMarks(n),
		leaving && !rec.Admitted && !on.Cordoned && len(pods)+len(tc.driftPods[n.Name])+len(tc.pullPods[n.Name]) == 0:
		if leaving {
			tc.clearNodeStatus(n)
		}
		return
	}
	tc.Rollout.Targets = append(tc.Rollout.Targets, &rollout.Target{
		Node: n.Name, UID: n.UID, Class: n.OrderClass(), Visit: rollout.Visit{Admission: rec.Admission, Order: rec.Order, Batch: rec.Batch, BatchOf: rec.Group}, Leaving: leaving,
	})
	out := tc.Rollout.Targets[len(tc.Rollout.Targets)-1]
	if rec.FinishedAt != nil {
		out.Visit.FinishedAt = *rec.FinishedAt
		if rec.At != nil && !rec.Skipped {
			out.Visit.Took = max(0, rec.FinishedAt.Sub(*rec.At))
		}
	}
	out.Group, out.Place = tc.groupOf(n, groups), policy.FindTopologyValue(tc.in.Policy, n.Labels)
	out.Unproven = tc.unprovenReason(n, &rec)
	out.Proof = Proofs(tc.in.Skyhook, tc.in.Policy).Compile(n, node.ProofState{Since: rec.Proving, Offered: rec.Offered, Missing: tc.in.Findings, Commands: tc.commandPods(n, &rec)})
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
		out.Drain.HeldAt = tc.clock()
	}
	out.Visit.Skipped = rec.Skipped && rec.Generation == s.Generation && rec.State == on.StateHash // an edit or a rerun makes it eligible again
	if selected {
		tc.takeBack(&rec, on.State)
	}
	tc.compileRollback(&rec, on.State, out)
	t := &target{node: n, on: on, rec: rec, selected: selected && !tc.Rollout.Deleting, wanted: tc.wantedOn(&rec)}
	tc.all = append(tc.all, t)
	if isWrong || on.Cordoned && !n.Unschedulable {
		tc.correctRecord(t)
	}
	tc.compileWork(t, out)
	tc.compileDrift(t, out)
	tc.compilePull(t, out)
}

// groupOf returns the group of a node.
func (tc targetCompiler) groupOf(n *node.Node, groups *policy.Grouping) rollout.GroupRef {
	of := policy.Node{Name: n.Name, Labels: n.Labels}
	if groups.HasCanaries() {
		of = tc.policyNode(n)
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
func (tc targetCompiler) compileWork(t *target, out *rollout.Target) {
	isUnreadable := t.on.Problem != "" && !(tc.Rollout.Deleting && !tc.uninstallsOnDeletion())
	switch {
	case tc.Rollout.Deleting && !tc.hasMarks(t.node):
		out.Wiped, out.Visit.Admitted = true, false
		tc.taskCompiler().addStrays(t, out, nil)
	case isUnreadable:
		out.Blocked = &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: t.on.Problem, About: "Node " + t.node.Name}
		tc.taskCompiler().addStrays(t, out, nil)
	case out.Leaving:
		tc.compileLeaving(t, out)
	default:
		tc.compileTasks(t, out)
		if why := tc.excludedReason(t.node); why != nil {
			out.Blocked = why
		}
	}
}

// correctRecord adds the edit that replaces times in the future on the node, and notes that somebody uncordoned it.
func (tc targetCompiler) correctRecord(t *target) {
	rec, isWrong := t.on.Record.LimitTimes(tc.in.Now)
	held, isUncordoned := rec.Held.NoteUncordon(t.node)
	if t.on.RecordUnreadable || !isWrong && !isUncordoned {
		return
	}
	rec.Held = held
	e := node.Edit{}
	e.SetAnnotation(t.node, v1alpha1.PrefixRecord+tc.in.Skyhook.Name, rec.String())
	tc.Adopt = append(tc.Adopt, node.NamedEdit{Node: t.node.Name, Edit: e})
}

// clearNodeStatus removes the status marks of a node that is no longer selected and not in flight.
func (tc targetCompiler) clearNodeStatus(n *node.Node) {
	e := node.Edit{}
	e.RemoveSkyhookStatus(n, tc.in.Skyhook.Name)
	if tc.reporter().hasOwnCondition(n) {
		e = e.Plus(tc.recorder().removeConditions(n))
	}
	if !e.Empty() {
		tc.Adopt = append(tc.Adopt, node.NamedEdit{Node: n.Name, Edit: e})
	}
}

// compileLeaving compiles a node that is no longer selected: the running task ends and nothing starts.
func (tc targetCompiler) compileLeaving(t *target, out *rollout.Target) {
	w := tc.diffPackages(t.node, t.on, t.rec)
	w.leaving = true
	p := &packageSteps{}
	for _, name := range sortedNames(w.entries) {
		p.name = name
		w.keepStarted(p)
	}
	of := tc.taskCompiler().compileAll(w, p.removal)
	out.Tasks, out.Objects.Queues, t.steps = of.tasks, of.queues, of.steps
	tc.taskCompiler().addStrays(t, out, of.used)
}

// compileTasks compiles the tasks of a selected node. Nodes with the same state have the same tasks, which are computed
// once; a node with pods is computed by itself.
func (tc targetCompiler) compileTasks(t *target, out *rollout.Target) {
	if tc.isSettled(t) {
		return
	}
	isUnknown := !t.on.HasRecord() && !t.on.Cordoned
	alone := out.Visit.Admitted || t.wanted.isBack || len(tc.pods[t.node.Name]) > 0 || t.rec.State != t.on.StateHash && !isUnknown || tc.hasRebootedSince(t)
	key := shape{t.on.Shape, tc.isCompactOn(t.node, &t.rec)}
	d := tc.alike[key]
	if d == nil || alone {
		d = tc.deriveTasks(t, out.Visit.Admitted)
		if !alone {
			tc.alike[key] = d
		}
	} else {
		for _, st := range d.steps {
			tc.taskCompiler().keepDefinition(st.def)
		}
	}
	out.Tasks, out.Objects.Queues, out.Rebooted, t.steps, t.edited, t.stuck = d.tasks, d.queues, d.rebooted, d.steps, d.edited, d.stuck
	if d.blocked {
		out.Blocked = d.stuck
	}
	tc.taskCompiler().addStrays(t, out, d.used)
	tc.taskCompiler().markStale(t, d)
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
func (tc targetCompiler) deriveTasks(t *target, admitted bool) *targetTasks {
	w := tc.diffPackages(t.node, t.on, t.rec)
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
	d.compiledTasks = tc.taskCompiler().compileAll(w, steps)
	return d
}

// owesSince returns since when the Skyhook is not complete, from its status; zero when it is complete.
func owesSince(s *v1alpha1.Skyhook) time.Time {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return s.CreationTimestamp.Time
	case ready.Status == metav1.ConditionFalse:
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

// hasRebootedSince reports whether a reboot may require that packages are applied again.
func (tc targetCompiler) hasRebootedSince(t *target) bool {
	if !tc.in.Config.ReapplyOnReboot {
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
func (tc targetCompiler) isSettled(t *target) bool {
	if tc.Rollout.Deleting || len(t.on.State) != len(t.wanted.defs) || len(tc.pods[t.node.Name]) > 0 {
		return false
	}
	for key, rec := range t.rec.Packages {
		name, _, _ := cutKey(key)
		want := t.wanted.defs[name]
		if want == nil || rec.Goal != "" || rec.Hash != want.Hash || tc.isUninstalled(t.wanted, name) ||
			tc.in.Config.ReapplyOnReboot && rec.Boot != t.node.BootID {
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
func (tc targetCompiler) hasMarks(n *node.Node) bool {
	_, labelled := n.Labels[v1alpha1.PrefixStatus+tc.in.Skyhook.Name]
	hasAnnotations := n.HasSkyhook(tc.in.Skyhook.Name) && !n.Skyhook(tc.in.Skyhook.Name).IsKept()
	return hasAnnotations || labelled || tc.reporter().hasOwnCondition(n)
}

// excludedReason returns which label or taint excludes a node; nil for none.
func (tc targetCompiler) excludedReason(n *node.Node) *rollout.Why {
	if n.Labels[v1alpha1.LabelIgnore] == "true" {
		return &rollout.Why{Reason: rollout.ReasonIgnored, About: "Node " + n.Name,
			Text: "the node has the label " + v1alpha1.LabelIgnore + "=true: remove it to go on"}
	}
	if taint := tc.firstUntoleratedTaint(n); taint != nil {
		return &rollout.Why{Reason: rollout.ReasonTaintNotTolerated, About: "Node " + n.Name,
			Text: fmt.Sprintf("taint %s is not tolerated: add it to additionalTolerations, or remove it from the node", taint.ToString())}
	}
	return nil
}

// deadlineOf returns how long one pod of a task may take; 0 for no limit.
func (tc targetCompiler) deadlineOf(st *step) time.Duration {
	if d := st.def.Package.StageTimeout; d != nil {
		return d.Duration
	}
	if st.isInterrupt() {
		return tc.in.Config.interruptDeadline()
	}
	return tc.in.Config.stageDeadline()
}

func (c Config) stageDeadline() time.Duration {
	if c.StageDeadline > 0 {
		return c.StageDeadline
	}
	return DefaultStageDeadline
}

func (c Config) interruptDeadline() time.Duration {
	if c.InterruptDeadline > 0 {
		return c.InterruptDeadline
	}
	return DefaultInterruptDeadline
}
