// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// compiler builds a Compiled from the nodes of the cluster and from the objects of the NodeOp.
type compiler struct {
	in       *Input
	op       *operation
	pass     *passState
	out      *Compiled
	selector labels.Selector
	objects  map[string]*nodeObjects // by node, of those that are compiled
	failed   string                  // the first node on which the operation failed

	isMember   func(*node.Node) bool // of the nodes of the start; nil if all selected nodes belong to the operation
	isStarting bool                  // these nodes are not recorded yet
}

// Compile turns a NodeOp into a rollout. An invalid one gives Problems and a rollout that is Broken.
func Compile(in *Input) *Compiled {
	c := newCompiler(in)
	c.checkSpec()
	c.compileStart()
	c.addNodes()
	c.pass.usualVisit = c.out.findUsualVisit()
	c.addMissingNodes()
	c.addGroups()
	c.out.Rollout.Usual = rollout.FindUsual(c.out.Rollout.Targets)

	c.out.Ledger = readLedger(c.pass)
	c.out.Removed = c.op.isDeleting() && len(c.out.Rollout.Targets) == 0 && len(c.out.Edits) == 0
	return c.out
}

// maxEnv is the maximum size of the environment: a Job must be smaller than 1.5 MiB.
const maxEnv = 1 << 20

func newCompiler(in *Input) *compiler {
	op := newOperation(in)
	pass := &passState{operation: op, status: &in.NodeOp.Status, now: in.Now, timing: in.Durations, refused: in.Refused, findings: in.Findings}
	c := &compiler{in: in, op: op, pass: pass}
	c.out = &Compiled{in: in, op: op, pass: pass, sharesBudget: in.Budget != nil, budget: in.Budget, index: map[string]*target{}, LeftPods: map[string][]string{}}
	c.out.Rollout = rollout.Rollout{
		Targets:       []*rollout.Target{},
		Ref:           op.ref(),
		UID:           string(in.NodeOp.UID),
		Sequence:      op.ref().String(), // one of its own: NodeOps do not wait for each other
		Since:         in.NodeOp.CreationTimestamp.Time,
		Paused:        isTrue(op.spec().Suspend),
		Once:          true,
		KeepHeld:      !isTrue(op.spec().UncordonOnFailure) && !op.isDeleting(),
		Drain:         translateDrain(op.spec().DrainOptions),
		SharesReboots: op.sharesReboot(),
		Announce:      in.Marks.Conditions || in.Marks.PreferNoSchedule,
	}
	return c
}

// checkSpec parses the node selector and collects what makes the NodeOp invalid.
func (c *compiler) checkSpec() {
	o := c.in.NodeOp
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.NodeSelector.Kubernetes())
	if err != nil {
		selector = labels.Nothing()
		c.addProblem(rollout.ReasonInvalidSpec, "nodeSelector is not valid: "+node.Truncate(err.Error(), 200))
	}
	c.selector = selector
	if allowed := c.in.Config.Namespaces; len(allowed) > 0 && !slices.Contains(allowed, o.Namespace) {
		c.addProblem(rollout.ReasonInvalidSpec, "the operator carries out NodeOps of some namespaces only, and "+o.Namespace+
			" is none of them: create it in another, or change NODEOP_NAMESPACES")
	}
	if c.in.PolicyMissing {
		c.addProblem(rollout.ReasonPolicyMissing, "DeploymentPolicy "+o.Spec.DeploymentPolicy+
			" does not exist: create it, or create a NodeOp that names another")
	}
	if p := o.Spec.Proof; p != nil {
		for _, text := range policy.FindObjectProblems("proof.objects", p.Objects, true) {
			c.addProblem(rollout.ReasonInvalidSpec, text)
		}
	}
	c.checkDrain()
	env := 0
	for _, e := range o.Spec.Env {
		env += len(e.Name) + len(e.Value)
	}
	if env > maxEnv {
		c.addProblem(rollout.ReasonInvalidSpec, fmt.Sprintf("env has %d bytes, and %d is the most a Job can carry: move large values into the image", env, maxEnv))
	}
	if len(c.out.Problems) > 0 && c.op.selectsNodes() {
		c.out.Rollout.Broken = &rollout.Why{Reason: c.out.Problems[0].Reason, Text: c.out.Problems[0].Text}
	}
}

func (c *compiler) addProblem(reason rollout.Reason, text string) {
	c.out.Problems = append(c.out.Problems, Problem{reason, text})
}

// addNodes compiles the nodes. A finished operation, and one that is being deleted, has nothing on most of them.
func (c *compiler) addNodes() {
	nodes := c.in.Nodes
	if !c.op.selectsNodes() {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node.Node) bool { return !c.op.isOn(n) })
	}
	c.groupObjects(nodes)
	for _, n := range nodes {
		c.addNode(n)
	}
}

// addNode compiles one node, which is no target if this NodeOp has nothing to do with it.
func (c *compiler) addNode(n *node.Node) {
	t := newTargetCompiler(c.pass, n, *c.objects[n.Name])
	selected := c.selects(n)

	if selected || t.hasBegun() || t.rec.Result != nil {
		c.out.order = append(c.out.order, t.target)
		c.out.index[n.Name] = t.target
	}
	if selected || t.hasBegun() { // others that have finished only count
		t.leaving = !selected && (!c.op.isFinished() || t.rec.Admitted || c.op.isDeleting())
		compiled := t.compile()
		if c.isStarting && compiled.Blocked == nil {
			compiled.Blocked = awaitsStart()
		}
		c.out.Rollout.Targets = append(c.out.Rollout.Targets, &compiled)
	}
	if limit := t.attemptLimit(); limit != nil {
		c.out.Limits = append(c.out.Limits, *limit)
	}
	if c.failed == "" && t.rec.Result.IsFailed() {
		c.failed = n.Name
	}
	if !c.op.selectsNodes() {
		t.removeRecord()
	}
	for _, e := range t.edits {
		c.out.Edits = append(c.out.Edits, node.NamedEdit{Node: n.Name, Edit: e})
	}
}

// addMissingNodes finds nodes that were started and do not exist any more.
func (c *compiler) addMissingNodes() {
	if c.op.isFinished() {
		return
	}
	entries := c.in.NodeOp.Status.NodeStatuses
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		exists := c.out.index[name] != nil || slices.ContainsFunc(c.in.Nodes, func(n *node.Node) bool { return n.Name == name })
		if exists {
			continue
		}
		c.out.missing = append(c.out.missing, name)
		e := entries[name]
		succeeded := isEntryFinal(e) && e.Phase != v1alpha1.PhaseFailed
		if c.failed == "" && !succeeded {
			c.failed = name
		}
	}
}

// isEntryFinal reports whether an entry of the status does not change any more.
func isEntryFinal(e v1alpha1.NodeStatus) bool {
	awaitsReboot := e.RebootStatus == v1alpha1.RebootPending
	return e.Phase == v1alpha1.PhaseFailed || e.Phase == v1alpha1.PhaseCompleted && !awaitsReboot
}
