// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// One pass is bounded, so that what happens meanwhile is soon observed. Nodes that exceed a bound wait for the next pass.
const (
	maxActiveNodes     = 200 // nodes with actions
	maxStatusOnlyNodes = 100 // nodes that only get annotations and conditions, with those of earlier passes that still wait for theirs
	usualActions       = 3   // of one node: an outcome, what comes next, and the object that ended
)

// MaxUnrecorded is how long a node may not record with which stage a compact pod has gone on, or what succeeded beside another pod.
const MaxUnrecorded = 5 * time.Second

// workKind says what a work on a node is for: how soon it is sent (plansBefore), and who waits for its end.
type workKind int

// The kinds of work.
const (
	workStages    workKind = iota // what comes next on a node, and what is recorded and said about it
	workAdmission                 // a target is admitted: a request to change the node itself, which a policy about nodes may refuse
	workChecks                    // checks for drift start or end, and nothing else happens: nobody waits for that
	workStatus                    // annotations and conditions only: nobody waits for them
	workDeletions                 // objects that ended are deleted, on a node that is free: the pass that their watches request is soon enough
)

// nodeWork is all that one plan does on one node.
type nodeWork struct {
	kind     workKind
	node     string
	actions  []rollout.Action
	rollouts map[rollout.Ref]int // with the number past the order of an admission; not changed while it is sent
	updates  []annotationUpdate
	adopted  []node.NamedEdit // records for a node that a predecessor finished, and what was found out about the node

	begun      bool             // the first part is done
	withdrawn  []string         // holders whose handovers ended, and their objects are deleted
	after      *node.Node       // the node then
	conditions node.Edit        // conditions that are still to be written
	deletions  []rollout.Action // of objects that ended; when all else is done they are a work of their own
	done       []rollout.Action
	failed     map[rollout.Ref]bool // rollouts whose work on the node failed
	changed    bool                 // something was changed that is to be observed at once
	observed   bool                 // a pass left the node alone because of this work; see inFlight.view
	late       bool                 // the outcome of its pass was taken before it completed
}

// fail notes that the work of one rollout on the node failed. What is left of it is not done; that of others is.
func (w *nodeWork) fail(name rollout.Ref) {
	if w.failed == nil {
		w.failed = map[rollout.Ref]bool{}
	}
	w.failed[name] = true
}

// hasSecondPart reports whether something is to be sent after the first part: see nodeWriter.finish.
func (w *nodeWork) hasSecondPart() bool {
	return w.deletesItself() && len(w.deletions) > 0 || w.after != nil && w.conditions.TouchesStatus()
}

// deletesItself reports whether objects that ended are deleted as part of the work: on a node that is gone, and of checks for drift.
func (w *nodeWork) deletesItself() bool { return w.after == nil || w.kind == workChecks }

// takeDeletions returns the deletions as a work that leaves the node free: what comes next there does not wait for them. It returns nil
// if there are none, or if the work itself deletes them.
func (w *nodeWork) takeDeletions() *nodeWork {
	if w.deletesItself() || len(w.deletions) == 0 {
		return nil
	}
	d := &nodeWork{kind: workDeletions, node: w.node, begun: true, deletions: w.deletions}
	for _, a := range d.deletions {
		d.addRollout(a.Rollout)
	}
	w.deletions = nil
	return d
}

// withoutFailed leaves out the actions of rollouts whose work on the node failed.
func (w *nodeWork) withoutFailed(actions []rollout.Action) []rollout.Action {
	if len(w.failed) == 0 {
		return actions
	}
	return slices.DeleteFunc(slices.Clone(actions), func(a rollout.Action) bool { return w.failed[a.Rollout] })
}

// annotationUpdate is what a rollout's verdict says on a node.
type annotationUpdate struct {
	by      *skyhook.Compiled
	verdict rollout.Verdict
}

// hasWords reports whether the verdicts of rollouts change what the node says.
func (w *nodeWork) hasWords(n *node.Node) bool {
	return slices.ContainsFunc(w.updates, func(u annotationUpdate) bool { return !u.by.Words(n, u.verdict).Empty() })
}

// addRollout notes that a rollout has a part in the work.
func (w *nodeWork) addRollout(name rollout.Ref) {
	if w.rollouts == nil {
		w.rollouts = map[rollout.Ref]int{}
	}
	w.rollouts[name] = max(w.rollouts[name], 0)
}

// adoptedEdit is the sum of the edits that are written without an action of the plan.
func (w *nodeWork) adoptedEdit() (sum node.Edit) {
	for _, e := range w.adopted {
		sum = sum.Plus(e.Edit)
	}
	return sum
}

// workFilter says which part of a plan is collected.
type workFilter struct {
	skip       map[string]bool // nodes that are left alone
	leaves     map[string]bool // nodes whose actions are left out
	actionsOf  map[string]bool // nodes whose actions are collected; nil for all
	activeOnly bool            // leave out nodes without actions
}

// hasActionsOf reports whether the actions of a node are collected.
func (f *workFilter) hasActionsOf(node string) bool {
	return !f.skip[node] && !f.leaves[node] && (f.actionsOf == nil || f.actionsOf[node])
}

// workCollector sorts a plan by node.
type workCollector struct {
	*pass
	workFilter

	byNode             map[string]*nodeWork
	active, statusOnly []*nodeWork
}

// collectWork returns what is to be sent of a plan.
func (p *pass) collectWork(plan rollout.Plan, f workFilter) []*nodeWork {
	c := &workCollector{pass: p, workFilter: f, byNode: map[string]*nodeWork{}}
	c.addActions(plan.Actions)
	c.addAdoptedByNodeOps()
	for _, probed := range p.probes.Edits {
		if w := c.statusWork(probed.Node); w != nil {
			w.adopted = append(w.adopted, probed)
		}
	}
	for _, report := range plan.Reports {
		if by := p.compiled.Skyhooks[report.Rollout]; by != nil && !p.incomplete[report.Rollout] {
			c.addReport(report, by)
		}
	}
	c.addMarks()
	c.active = slices.DeleteFunc(c.active, c.putOffProgress)
	for _, w := range c.active {
		switch {
		case slices.ContainsFunc(w.actions, func(a rollout.Action) bool { return a.Verb == rollout.VerbAdmit }):
			w.kind = workAdmission
		case c.isOnlyChecks(w):
			w.kind = workChecks
		}
	}
	active := p.withoutRefused(p.inFlight.withoutFailed(c.active, p.now))
	statusOnly := p.withoutRefused(p.inFlight.withoutFailed(c.statusOnly, p.now))
	if len(active) > maxActiveNodes {
		p.inFlight.retry(p.now)
	}
	return append(p.nextActive(active), p.nextStatusOnly(plan, statusOnly)...)
}

// nextStatusOnly bounds the nodes of a pass that only get annotations and conditions, and decides for which of them somebody waits. Those of
// earlier passes for which nobody does take room only from others like them.
func (p *pass) nextStatusOnly(plan rollout.Plan, all []*nodeWork) (out []*nodeWork) {
	if len(all) == 0 {
		return nil
	}
	admitted := findAdmittedNodes(plan)
	room, roomForStatus := maxStatusOnlyNodes, p.inFlight.queue.roomForStatus(maxStatusOnlyNodes)
	for _, w := range all {
		left := &room
		if len(admitted) <= maxActiveNodes && !admitted[w.node] && len(w.adopted) == 0 && !p.objects.hasEndedHandovers(w.node) {
			w.kind, left = workStatus, &roomForStatus
		}
		if *left == 0 {
			p.inFlight.retry(p.now)
			continue
		}
		*left--
		out = append(out, w)
	}
	return out
}

// findAdmittedNodes returns the nodes on which a plan finds targets admitted. If they are more than a pass works on, each waits for many
// others whatever is sent first. Then nothing goes last, it would only add passes, and not all of them are returned.
func findAdmittedNodes(plan rollout.Plan) map[string]bool {
	out := map[string]bool{}
	for i := range plan.Reports {
		for j := range plan.Reports[i].Verdicts {
			switch v := &plan.Reports[i].Verdicts[j]; v.Phase {
			case rollout.PhaseInFlight, rollout.PhaseFailing, rollout.PhaseFailed:
				out[v.Node] = true
			}
			if len(out) > maxActiveNodes {
				return out
			}
		}
	}
	return out
}

// isOnlyChecks reports whether a work only starts or ends checks for drift. Nobody waits for these: the engine has asked for a pass in
// which it looks at all of them (rollout.nextPoll), so that a fleet is not observed anew after each.
func (c *workCollector) isOnlyChecks(w *nodeWork) bool {
	n := c.objects.Node(w.node)
	if n == nil || len(w.adopted) > 0 || n.HasEndedHandovers() || !c.announced.editOf(n).Empty() || !startsOrEndsChecks(w.actions) {
		return false
	}
	return !w.hasWords(n)
}

func startsOrEndsChecks(actions []rollout.Action) bool {
	noted := ""
	for _, a := range actions {
		switch {
		case a.Why.Reason == rollout.ReasonPreflight: // an admission waits for it
			return false
		case a.Verb == rollout.VerbVerify:
		case a.Verb == rollout.VerbNote:
			noted = a.Object
		case a.Verb == rollout.VerbSweep && a.Object != "" && a.Object == noted:
		default:
			return false
		}
	}
	return len(actions) > 0
}

// withoutRefused leaves out the nodes whose change was refused a moment ago.
func (p *pass) withoutRefused(all []*nodeWork) []*nodeWork {
	return slices.DeleteFunc(all, func(w *nodeWork) bool {
		until, waits := p.refused.isWaiting(request{node: w.node}, p.now)
		if waits {
			p.inFlight.retry(until)
		}
		return waits
	})
}

// nextActive bounds the active nodes of a pass. The nodes after the last one of the pass before come first.
func (a *applier) nextActive(all []*nodeWork) []*nodeWork {
	if len(all) <= maxActiveNodes {
		return all
	}
	next := slices.IndexFunc(all, func(w *nodeWork) bool { return w.node == a.lastNode }) + 1
	all = append(slices.Clone(all[next:]), all[:next]...)[:maxActiveNodes]
	a.lastNode = all[maxActiveNodes-1].node
	return all
}

func (c *workCollector) addActions(actions []rollout.Action) {
	for i := range actions {
		a := &actions[i]
		if !c.hasActionsOf(a.Node) || c.objects.isBeingDeleted(a) || c.inFlight.awaitRetry(a.Node, a.Rollout, c.now) {
			continue
		}
		w := c.byNode[a.Node]
		if w == nil {
			w = &nodeWork{node: a.Node, actions: make([]rollout.Action, 0, usualActions)}
			c.byNode[a.Node] = w
			c.active = append(c.active, w)
		}
		w.actions = append(w.actions, *a)
		w.addRollout(a.Rollout)
		if a.Verb == rollout.VerbAdmit {
			w.rollouts[a.Rollout] = a.Order + 1
		}
	}
}

// isLeftOut reports whether nothing may be added to a node that has no actions.
func (c *workCollector) isLeftOut(node string) bool {
	return c.skip[node] || c.activeOnly && c.byNode[node] == nil
}

// statusWork returns the work of a node that may have no actions; nil when the node is left out.
func (c *workCollector) statusWork(node string) *nodeWork {
	if c.isLeftOut(node) {
		return nil
	}
	w := c.byNode[node]
	if w == nil {
		w = &nodeWork{node: node}
		c.byNode[node] = w
		c.statusOnly = append(c.statusOnly, w)
	}
	return w
}

// isOnlyProgress reports whether a work only records that pods have gone on with their next stages, or succeeded beside others, which the
// pods show as well.
func (c *workCollector) isOnlyProgress(w *nodeWork) bool {
	n := c.objects.Node(w.node)
	isOther := func(e node.NamedEdit) bool { return len(e.Done) == 0 || slices.ContainsFunc(e.Done, isOfInterrupt) }
	isProgress := len(w.actions)+len(w.adopted) > 0 && !slices.ContainsFunc(w.actions, isDueNow) && !slices.ContainsFunc(w.adopted, isOther)
	return isProgress && n != nil && !n.HasEndedHandovers() && c.announced.editOf(n).Empty() && !w.hasWords(n.With(w.adoptedEdit()))
}

// putOffProgress leaves a work that is only progress for a later pass, unless it was left long enough, and reports whether it did. With
// short stages one request records several of them, or the end of the last one.
func (c *workCollector) putOffProgress(w *nodeWork) (isPutOff bool) {
	if !c.isOnlyProgress(w) {
		return false
	}
	since, isKnown := c.unrecorded[w.node]
	if !isKnown {
		since = c.now
	}
	until := since.Add(MaxUnrecorded)
	if !c.now.Before(until) {
		return false
	}
	c.putOff[w.node] = since
	c.inFlight.retry(until)
	return true
}

// isDueNow reports whether an action does not wait for what follows on its node.
func isDueNow(a rollout.Action) bool { return !a.CanWait }

// isOfInterrupt reports whether an action is about an interrupt: that it ended is recorded at once.
func isOfInterrupt(a rollout.Action) bool {
	stage := report.StageOf(a.Task)
	return stage == v1alpha1.StageInterrupt || stage == v1alpha1.StageUninstallInterrupt
}

// adoptionWork returns the work of a node for which something is recorded. Where that has stages, the node is not one that only gets
// annotations, and is never put off for others that do.
func (c *workCollector) adoptionWork(adopted node.NamedEdit) *nodeWork {
	isNew := c.byNode[adopted.Node] == nil
	w := c.statusWork(adopted.Node)
	if w != nil && isNew && len(adopted.Done) > 0 {
		c.statusOnly = c.statusOnly[:len(c.statusOnly)-1]
		c.active = append(c.active, w)
	}
	return w
}

func (c *workCollector) addAdoptedByNodeOps() {
	for _, o := range c.objects.NodeOps {
		op := c.compiled.NodeOp(o)
		if op == nil || c.notReady[op.Rollout.Ref] || c.incomplete[op.Rollout.Ref] {
			continue
		}
		for _, adopted := range op.Edits {
			if w := c.statusWork(adopted.Node); w != nil && c.objects.Node(adopted.Node) != nil {
				w.addRollout(op.Rollout.Ref)
				w.adopted = append(w.adopted, adopted)
			}
		}
	}
}

func (c *workCollector) addReport(report rollout.Report, by *skyhook.Compiled) {
	for _, adopted := range by.Adopt {
		if w := c.adoptionWork(adopted); w != nil {
			w.addRollout(report.Rollout)
			w.adopted = append(w.adopted, adopted)
		}
	}
	for i := range report.Verdicts {
		v := &report.Verdicts[i]
		hasActions := c.byNode[v.Node] != nil
		if !hasActions && (c.activeOnly || by.IsQuiet(i, v)) {
			continue
		}
		n := c.objects.Node(v.Node)
		if n == nil || c.isLeftOut(v.Node) {
			continue
		}
		if !hasActions && by.Words(n, *v).Empty() {
			by.NoteQuiet(n, v)
			continue
		}
		w := c.statusWork(v.Node)
		w.updates = append(w.updates, annotationUpdate{by, *v})
	}
}

// nodeOp is what Snapshot made of the NodeOp of an action, or of one that is gone and left a hold on the node; nil for others.
func (p *pass) nodeOp(a rollout.Action) *nodeop.Compiled {
	c := p.compiled.NodeOps[a.Rollout]
	if c != nil || p.objects.Node(a.Node) == nil || !p.objects.Orphans[a.Rollout] || a.Rollout.Kind != nodeop.Kind {
		return c
	}
	_, uid, _ := strings.Cut(a.Rollout.Name, "@")
	return &nodeop.Compiled{Operation: nodeop.NewOrphan(a.Rollout, p.now), Now: p.now, Rollout: rollout.Rollout{Ref: a.Rollout, UID: uid}}
}
