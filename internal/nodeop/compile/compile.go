// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package compile turns a NodeOp, the nodes, and its Jobs and pods into a rollout.Rollout, and into what is known of each node.
package compile

import (
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
)

// Input is everything that one NodeOp is compiled from.
type Input struct {
	Operation     *nodeop.Operation
	Nodes         []*node.Node   // all nodes of the cluster, in the order of their creation and names
	Jobs          []*batchv1.Job // of the namespace; others than those of this NodeOp are ignored
	Pods          []*corev1.Pod  // likewise
	Budget        *Budget        // of the policy; nil when none is named or it does not exist
	Findings      node.Findings  // of the nodes on which the proof is waited for
	PolicyMissing bool           // a policy is named and does not exist

	PolicyProblems []string // of a policy that cannot be used

	Refused    node.Refusals // tasks whose objects the API server refused at their last attempt
	Namespaces []string      // whose NodeOps are executed; empty for all
	Now        time.Time     // as in the Snapshot
	Durations  *timing.Durations
}

// Budget is what a DeploymentPolicy allows.
type Budget struct {
	Groups []rollout.Group
	Of     map[string]rollout.GroupRef // Group.Ref by node
	Place  map[string]string           // Target.Place by node

	Windows *skyhookv1.Windows
}

// compiler builds a Compiled from the nodes of the cluster and from the objects of the NodeOp.
type compiler struct {
	in       *Input
	op       *nodeop.Operation
	out      *nodeop.Compiled
	selector labels.Selector
	objects  map[string]*nodeObjects // by node, of those that are compiled
	targets  []*target               // of out.Nodes
	failed   string                  // the first node on which the operation failed

	isMember   func(*node.Node) bool // of the nodes of the start; nil if all selected nodes belong to the operation
	isStarting bool                  // these nodes are not recorded yet
}

// Compile turns a NodeOp into a rollout. An invalid one gives Problems and a rollout that is Broken.
func Compile(in *Input) *nodeop.Compiled {
	c := newCompiler(in)
	c.checkSpec()
	c.compileStart()
	c.addNodes()
	c.addMissingNodes()
	c.addGroups()
	c.out.Removed = c.op.IsDeleting() && len(c.out.Rollout.Targets) == 0 && len(c.out.Edits) == 0
	return c.out
}

// maxEnv is the maximum size of the environment: a Job must be smaller than 1.5 MiB.
const maxEnv = 1 << 20

func newCompiler(in *Input) *compiler {
	op := in.Operation
	out := &nodeop.Compiled{Operation: op, Now: in.Now, Ledger: policy.ReadLedger(op.Owner, op.NodeOp.Status.Internal.Admission), LeftPods: map[string][]string{}}
	if in.Budget != nil {
		out.SharesBudget, out.Windows = true, in.Budget.Windows
	}
	out.Rollout = rollout.Rollout{
		Targets:       []*rollout.Target{},
		Ref:           op.Owner,
		UID:           string(op.NodeOp.UID),
		Sequence:      op.Owner.String(), // one of its own: NodeOps do not wait for each other
		Since:         op.NodeOp.CreationTimestamp.Time,
		Paused:        nodeop.IsTrue(op.Spec().Suspend),
		Once:          true,
		KeepHeld:      !nodeop.IsTrue(op.Spec().UncordonOnFailure) && !op.IsDeleting(),
		Drain:         nodeop.TranslateDrain(op.Spec().DrainOptions),
		SharesReboots: op.SharesReboot(),
		Announce:      op.Marks.Has(skyhookv1.MarkConditions) || op.Marks.Has(skyhookv1.MarkPreferNoSchedule),
	}
	return &compiler{in: in, op: op, out: out}
}

// checkSpec parses the node selector and collects what makes the NodeOp invalid.
func (c *compiler) checkSpec() {
	o := c.op.NodeOp
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.NodeSelector.Kubernetes())
	if err != nil {
		selector = labels.Nothing()
		c.addProblem(rollout.ReasonInvalidSpec, "nodeSelector is not valid: "+node.Truncate(err.Error(), 200))
	}
	c.selector = selector
	if allowed := c.in.Namespaces; len(allowed) > 0 && !slices.Contains(allowed, o.Namespace) {
		c.addProblem(rollout.ReasonInvalidSpec, "the operator carries out NodeOps of some namespaces only, and "+o.Namespace+
			" is none of them: create it in another, or change NODEOP_NAMESPACES")
	}
	if c.in.PolicyMissing {
		c.addProblem(rollout.ReasonPolicyMissing, "DeploymentPolicy "+o.Spec.DeploymentPolicy+
			" does not exist: create it, or create a NodeOp that names another")
	}
	for _, text := range c.in.PolicyProblems {
		c.addProblem(rollout.ReasonInvalidSpec, text)
	}
	for _, text := range policy.FindMarkProblems(c.op.Marks, o.Spec.NodeSelector.Kubernetes()) {
		c.addProblem(rollout.ReasonInvalidSpec, text)
	}
	if _, err := nodeop.ParseDrainSelectors(o.Spec.DrainOptions); err != nil {
		c.addProblem(rollout.ReasonInvalidSpec, node.Truncate(err.Error(), 200)+": correct the selector")
	}
	env := 0
	for _, e := range o.Spec.Env {
		env += len(e.Name) + len(e.Value)
	}
	if env > maxEnv {
		c.addProblem(rollout.ReasonInvalidSpec, fmt.Sprintf("env has %d bytes, and %d is the most a Job can carry: move large values into the image", env, maxEnv))
	}
	if len(c.out.Problems) > 0 && c.op.SelectsNodes() {
		c.out.Rollout.Broken = &rollout.Why{Reason: c.out.Problems[0].Reason, Text: c.out.Problems[0].Text}
	}
}

func (c *compiler) addProblem(reason rollout.Reason, text string) {
	c.out.Problems = append(c.out.Problems, nodeop.Problem{Reason: reason, Text: text})
}

// addNodes compiles the nodes. A finished operation, and one that is being deleted, has nothing on most of them.
func (c *compiler) addNodes() {
	nodes := c.in.Nodes
	if !c.op.SelectsNodes() {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node.Node) bool { return !c.op.IsOn(n) })
	}
	c.groupObjects(nodes)
	for _, n := range nodes {
		c.addNode(n)
	}
}

// addNode compiles one node, which is no target if this NodeOp has nothing to do with it.
func (c *compiler) addNode(n *node.Node) {
	t := newTarget(c.in, n, *c.objects[n.Name])
	selected := c.selects(n)

	if selected || t.hasBegun() { // others that have finished only count
		t.leaving = !selected && (!c.op.IsFinished() || t.rec.Admitted || c.op.IsDeleting())
		compiled := t.compile()
		if c.isStarting && compiled.Blocked == nil {
			compiled.Blocked = awaitsStart()
		}
		c.out.Rollout.Targets = append(c.out.Rollout.Targets, &compiled)
	}
	if selected || t.hasBegun() || t.rec.Result != nil {
		c.targets = append(c.targets, t)
		c.out.Add(t.result())
	}
	if limit := t.attemptLimit(); limit != nil {
		c.out.Limits = append(c.out.Limits, *limit)
	}
	if c.failed == "" && t.rec.Result.IsFailed() {
		c.failed = n.Name
	}
	if !c.op.SelectsNodes() {
		t.removeRecord()
	}
	for _, e := range t.edits {
		c.out.Edits = append(c.out.Edits, node.NamedEdit{Node: n.Name, Edit: e})
	}
}

// addMissingNodes finds nodes that were started and do not exist any more.
func (c *compiler) addMissingNodes() {
	if c.op.IsFinished() {
		return
	}
	entries := c.op.NodeOp.Status.NodeStatuses
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		exists := c.out.Node(name) != nil || slices.ContainsFunc(c.in.Nodes, func(n *node.Node) bool { return n.Name == name })
		if exists {
			continue
		}
		c.out.Missing = append(c.out.Missing, name)
		e := entries[name]
		succeeded := nodeop.IsEntryFinal(e) && e.Phase != v1alpha1.PhaseFailed
		if c.failed == "" && !succeeded {
			c.failed = name
		}
	}
}
