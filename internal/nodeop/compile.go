// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// target is a node of this NodeOp with everything known about it.
type target struct {
	node    *Node
	rec     Record // what counts of the node's record, or what a predecessor's status and objects say
	adopted bool   // the record is not on the node
	entry   v1alpha1.NodeStatus
	listed  bool // there is an entry
	leaving bool
	problem string
	objects objects
	index   int // among the rollout's targets; -1 when it is none
}

// Compile turns a NodeOp into a rollout. One that is wrong gives Problems and a rollout that is Broken.
func Compile(in *Input) *Compiled {
	o := in.NodeOp
	c := &Compiled{in: in, targets: map[string]*target{}, Spared: map[string][]string{}}
	c.final = o.Status.Phase == v1alpha1.PhaseCompleted || o.Status.Phase == v1alpha1.PhaseFailed
	deleting := o.DeletionTimestamp != nil
	c.Rollout = rollout.Rollout{
		Name: RolloutName(o), UID: string(o.UID), Kind: RolloutName(o), // a kind of its own: NodeOps do not wait for each other's turn
		Since: o.CreationTimestamp.Time, Paused: on(o.Spec.Suspend), Once: true, KeepHeld: !on(o.Spec.UncordonOnFailure) && !deleting, Drain: drain(o.Spec.DrainOptions),
	}
	c.check()
	if len(c.Problems) > 0 && !deleting && !c.final {
		c.Rollout.Broken = &rollout.Why{Reason: c.Problems[0].Reason, Text: c.Problems[0].Text}
	}
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.NodeSelector.Kubernetes())
	if err != nil { // checked: the rollout is broken
		selector = labels.Nothing()
	}
	mine := c.objectsByNode()
	failed := ""
	for _, n := range in.Nodes {
		if (c.final || deleting) && !c.marked(n) {
			continue
		}
		selected := selector.Matches(labels.Set(n.Labels)) && !deleting && !c.final
		if t := c.target(n, selected, mine[n.Name]); t != nil {
			if r := t.rec.Result; r != nil && r.Phase == v1alpha1.PhaseFailed && failed == "" {
				failed = n.Name
			}
			if c.final || deleting {
				c.leaveBehind(t)
			}
		}
	}
	for _, name := range c.lines() {
		if c.targets[name] == nil && !slices.ContainsFunc(in.Nodes, func(n *Node) bool { return n.Name == name }) {
			c.gone = append(c.gone, name)
			failed = first(failed, c.failedAway(name))
		}
	}
	c.group(failed)
	c.Ledger = c.ledger()
	c.Removed = deleting && len(c.Rollout.Targets) == 0 && len(c.Adopt) == 0
	return c
}

// lines are the nodes of the status in their order; of a finished NodeOp they do not matter any more.
func (c *Compiled) lines() []string {
	if c.final {
		return nil
	}
	return slices.Sorted(maps.Keys(c.in.NodeOp.Status.NodeStatuses))
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// failedAway is the name of a node that is gone, when that is a failure: it had begun and not ended well.
func (c *Compiled) failedAway(name string) string {
	if e := c.in.NodeOp.Status.NodeStatuses[name]; ended(e) && e.Phase != v1alpha1.PhaseFailed {
		return ""
	}
	return name
}

// ended says that a line of the status is final.
func ended(e v1alpha1.NodeStatus) bool {
	return e.Phase == v1alpha1.PhaseFailed || e.Phase == v1alpha1.PhaseCompleted && e.RebootStatus != v1alpha1.RebootPending
}

func on(b *bool) bool { return b != nil && *b }

func drain(d *v1alpha1.DrainOptions) rollout.Drain {
	out := rollout.Drain{OnTimeout: rollout.DrainWait}
	if d != nil && d.TimeoutSeconds != nil && *d.TimeoutSeconds > 0 {
		out = rollout.Drain{Timeout: time.Duration(*d.TimeoutSeconds) * time.Second, OnTimeout: rollout.DrainSkip}
	}
	return out
}

// Grace is the grace period that replaces that of the pods a drain evicts; nil for their own.
func (c *Compiled) Grace() *int64 {
	d := c.in.NodeOp.Spec.DrainOptions
	if d == nil || d.GracePeriodSeconds == nil || *d.GracePeriodSeconds < 0 {
		return nil
	}
	return pointer(int64(*d.GracePeriodSeconds))
}

func (c *Compiled) check() {
	o := c.in.NodeOp
	if _, err := metav1.LabelSelectorAsSelector(o.Spec.NodeSelector.Kubernetes()); err != nil {
		c.Problems = append(c.Problems, Problem{rollout.ReasonInvalidSpec, "nodeSelector is not valid: " + bounded(err.Error(), 200)})
	}
	if allowed := c.in.Config.Namespaces; len(allowed) > 0 && !slices.Contains(allowed, o.Namespace) {
		c.Problems = append(c.Problems, Problem{rollout.ReasonInvalidSpec, "the operator carries out NodeOps of some namespaces only, and " + o.Namespace + " is none of them: create it in another, or change NODEOP_NAMESPACES"})
	}
	if c.in.PolicyMissing {
		c.Problems = append(c.Problems, Problem{rollout.ReasonPolicyMissing, "DeploymentPolicy " + o.Spec.DeploymentPolicy + " does not exist: create it, or create a NodeOp that names another"})
	}
}

// target compiles one node, unless this NodeOp has nothing to do with it.
func (c *Compiled) target(n *Node, selected bool, mine objects) *target {
	o := c.in.NodeOp
	t := &target{node: n, objects: mine, index: -1}
	t.entry, t.listed = o.Status.NodeStatuses[n.Name]
	held := c.known(t)
	begun := t.rec.Admitted || held || t.problem != ""
	if !selected && !begun && t.rec.Result == nil {
		if c.final || o.DeletionTimestamp != nil {
			c.leaveBehind(t)
		}
		return nil
	}
	c.targets[n.Name] = t
	c.order = append(c.order, t)
	if !selected && !begun {
		return t // finished, and not selected any more: it counts all the same
	}
	t.leaving = !selected && (!c.final || t.rec.Admitted || o.DeletionTimestamp != nil)
	t.index = len(c.Rollout.Targets)
	out := rollout.Target{
		Node: n.Name, UID: n.UID, Class: class(n), Admitted: t.rec.Admitted, Admission: t.rec.Admission, Order: t.rec.Order,
		Batch: t.rec.Batch, BatchOf: t.rec.Group, Leaving: t.leaving,
	}
	if out.Admitted && t.rec.At != nil {
		out.AdmittedAt = *t.rec.At
	}
	if held {
		out.HeldAt = c.in.Now
		if t.rec.Held != nil {
			out.HeldAt = t.rec.Held.At
		}
	}
	switch r := t.rec.Result; {
	case t.problem != "":
		out.Blocked = &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: t.problem, About: "Node " + n.Name}
	case c.final && !t.rec.Admitted: // what it holds stays held after a failure
		out.Skipped = t.entry.Phase == v1alpha1.PhaseFailed || r != nil && r.Phase == v1alpha1.PhaseFailed
	case r != nil && !t.rec.Admitted:
		out.Skipped = r.Phase == v1alpha1.PhaseFailed
		if out.Skipped && !t.leaving {
			out.Tasks = []rollout.Task{failure(r)}
		}
		if r.Phase == v1alpha1.PhaseCompleted {
			out.FinishedAt = r.At
		}
	default:
		out.Tasks = c.tasks(t)
	}
	out.Strays, out.Going = c.strays(t)
	c.Rollout.Targets = append(c.Rollout.Targets, out)
	return t
}

// failure is what a node owes for ever on which it failed.
func failure(r *Result) rollout.Task {
	reason := rollout.Reason(r.Reason)
	if reason == "" {
		reason = rollout.ReasonStageFailed
	}
	return rollout.Task{ID: taskCommand, Label: taskCommand, State: rollout.Failing, Recorded: rollout.Failing, Attempts: 1, Noted: 1,
		Retries: 1, Bounded: true, Why: &rollout.Why{Reason: reason, Text: r.Message, Since: r.At}}
}

// known fills in what is known of a node, and says whether this NodeOp holds it.
func (c *Compiled) known(t *target) (held bool) {
	o, n := c.in.NodeOp, t.node
	p, ok := n.records[recordKey(string(o.UID))]
	t.problem = p.problem
	switch {
	case ok && p.problem == "" && p.record.NodeOp == v1alpha1.CordonedBy(o) && p.record.Node == n.UID:
		t.rec = p.record
	case p.problem == "":
		c.inherit(t)
	}
	for _, h := range Holds(n) {
		held = held || h.UID == string(o.UID) && h.Owner == c.Rollout.Name
	}
	return held
}

// inherit rebuilds what a predecessor knew of a node from the line in status and from its objects. An entry older than
// the node is of another node of that name.
func (c *Compiled) inherit(t *target) {
	e := t.entry
	if !t.listed || c.final || c.in.NodeOp.DeletionTimestamp != nil {
		return
	}
	at := e.LastUpdated.Time
	if ended(e) {
		t.rec.Result = &Result{Phase: e.Phase, Skipped: e.Phase == v1alpha1.PhaseCompleted && e.JobName == "", Message: e.Message, At: at,
			Exit: e.ExitCode, Attempts: e.Attempts, Output: e.Output}
		t.rec.Job = e.JobName
		return
	}
	if e.JobName == "" || t.node.Created.After(at) {
		return // nothing but a check had begun there: it begins again
	}
	t.adopted = true
	t.rec = Record{Node: t.node.UID, NodeOp: v1alpha1.CordonedBy(c.in.NodeOp), Admitted: true, Admission: 1, At: &at, Job: e.JobName,
		Command: &Step{State: stepRunning, At: whole(c.in.Now), Seen: true}} // what it may take counts from now
	if e.Phase == v1alpha1.PhaseCompleted {
		t.rec.Command.State = stepDone
	}
	note := Edit{}
	note.annotate(t.node, recordKey(string(c.in.NodeOp.UID)), writeRecord(t.rec))
	c.Adopt = append(c.Adopt, NodeEdit{t.node.Name, note})
}

// class lets the control plane go first.
func class(n *Node) int {
	if controlPlane(n) {
		return 0
	}
	return 1
}

func controlPlane(n *Node) bool {
	_, master := n.Labels["node-role.kubernetes.io/master"]
	_, plane := n.Labels["node-role.kubernetes.io/control-plane"]
	return master || plane
}

// leaveBehind takes the record of a finished NodeOp from a node. A hold that stays after a failure keeps its record,
// unless a person has given the node back.
func (c *Compiled) leaveBehind(t *target) {
	key := recordKey(string(c.in.NodeOp.UID))
	_, there := t.node.Annotations[key]
	deleting := c.in.NodeOp.DeletionTimestamp != nil
	if !there || t.rec.Admitted || t.rec.Held != nil && (t.node.Unschedulable || deleting) {
		return // when it is deleted the hold is released first
	}
	e := Edit{}
	e.strip(t.node, key)
	if t.node.Annotations[v1alpha1.AnnotationCordonedBy] == v1alpha1.CordonedBy(c.in.NodeOp) {
		e.strip(t.node, v1alpha1.AnnotationCordonedBy)
	}
	c.Adopt = append(c.Adopt, NodeEdit{t.node.Name, e})
}

// marked says that a node carries anything of this NodeOp.
func (c *Compiled) marked(n *Node) bool {
	_, recorded := n.Annotations[recordKey(string(c.in.NodeOp.UID))]
	return recorded || n.Annotations[v1alpha1.AnnotationCordonedBy] == v1alpha1.CordonedBy(c.in.NodeOp)
}

// owned says that a Job or Pod is this NodeOp's.
func (c *Compiled) owned(m metav1.Object) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && owner.UID == c.in.NodeOp.UID && owner.UID != ""
}

// tolerations let our pods run on any node that is selected, and stay there while it is not ready.
func (c *Compiled) tolerations() []corev1.Toleration {
	return append([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, c.in.NodeOp.Spec.Tolerations...)
}
