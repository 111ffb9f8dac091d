// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/handover"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Lists are the objects that were listed, in a total order.
type Lists struct {
	Nodes      []*node.Node        // by creation, then name
	Skyhooks   []*v1alpha1.Skyhook // by priority, then name
	Policies   []*v1alpha1.DeploymentPolicy
	Pods       []*corev1.Pod // in our namespace, labelled as a Skyhook's; by name
	ConfigMaps []*corev1.ConfigMap
	NodeOps    []*opv1.NodeOp // by creation, then name
	Upgrades   []*opv1.NodeOpUpgrade
	Jobs       []*batchv1.Job // of NodeOps
	NodeOpPods []*corev1.Pod  // of NodeOps and of their Jobs

	places        map[string]int // of the nodes, by name
	arePodsStored bool           // Pods are those of a store, and not of a list that copied them
}

// Objects is what was observed at one moment. Nothing in it may be changed.
type Objects struct {
	Config plan.Config
	Self   string
	Lists

	Definitions map[string]*plan.Definition
	Workloads   map[string][]*corev1.Pod         // by node, of the nodes that are held; missing: not listed yet
	Refusals    map[types.UID]drain.Refusal      // evictions that were refused, by pod
	Gates       map[string]gates.Result          // what health gates found, by policy
	Findings    map[rollout.Ref]node.Findings    // of the nodes on which a proof is waited for
	Profiles    map[rollout.Ref]*profile.Chosen  // of Skyhooks, NodeOps and policies
	Defaults    map[rollout.Ref]rollout.Defaults // what the profiles decided, also that of the policy of an object
	Avoid       map[rollout.Ref]*v1alpha1.Avoid  // on which nodes nothing begins
	Handovers   map[rollout.Ref]handover.Asker   // whom rollouts ask for their nodes
	Orphans     map[rollout.Ref]bool             // owners of holds that are proven gone
	Err         error                            // what could not be read; everything else here is true nevertheless
	RetryAt     time.Time                        // when to observe again though nothing has changed; zero for never

	observedAt time.Time // when observing began
	opConfig   nodeop.Config
	refused    refusedRequests
	revisions  *revisions
	inFlight   inFlightView      // then: what was observed of it is about to change
	durations  *timing.Durations // of the operator; nil for another observer
	isFirst    bool              // nothing was observed before
	vanished   []string          // nodes that existed before

	answers map[askKey]gates.Answer // of those who are asked for nodes
}

// Problem is something wrong with one object. It never stops the others.
type Problem struct {
	Rollout rollout.Ref
	Text    string
	Refuses bool // the object is not accepted; otherwise it is a warning
}

// Outcome says what became of a plan.
type Outcome struct {
	Applied    []AppliedActions       // carried out, and known to be since the last outcome
	Incomplete map[rollout.Ref]bool   // rollouts whose reports are not true, because they were not admitted or not worked on
	Errors     map[rollout.Ref]string // by rollout: the first error
	Untainted  map[string]string      // nodes to which the runtime-required taint could not be added, with the error
	RetryAt    time.Time              // when to try again what failed or was put off; zero for never
}

// AppliedActions are actions that were carried out, those of one node in order, and what they were decided from.
type AppliedActions struct {
	From    *Compiled
	Actions []rollout.Action
}

// AllActions are all that was carried out.
func (o Outcome) AllActions() []rollout.Action {
	var out []rollout.Action
	for _, d := range o.Applied {
		out = append(out, d.Actions...)
	}
	return out
}

// IsInFlight reports whether the node was in flight when this was observed: nothing is decided about it.
func (o *Objects) IsInFlight(node string) bool { return o.inFlight.nodes[node] }

// isBeingDeleted reports whether an action deletes what was being deleted when this was observed.
func (o *Objects) isBeingDeleted(a *rollout.Action) bool {
	return a.Verb == rollout.VerbSweep && o.inFlight.deleting[objectOf(a)]
}

// hasInFlight reports whether something was being sent for a rollout when this was observed.
func (o *Objects) hasInFlight(ref rollout.Ref) bool {
	_, ok := o.inFlight.rollouts[ref]
	return ok
}

// generationOf is the generation of a rollout's object.
func (o *Objects) generationOf(name rollout.Ref) int64 {
	for _, s := range o.Skyhooks {
		if plan.Ref(s.Name) == name {
			return s.Generation
		}
	}
	for _, op := range o.NodeOps {
		if nodeop.Ref(op) == name {
			return op.Generation
		}
	}
	return 0
}

// Node is the node of this name; nil when there is none.
func (o *Lists) Node(name string) *node.Node {
	at, exists := o.places[name]
	if !exists {
		return nil
	}
	return o.Nodes[at]
}

// indexNodes makes the index of the nodes. It uses that of the nodes of another pass again if these have the same names.
func (o *Lists) indexNodes(before []*node.Node, places map[string]int) {
	o.places = node.IndexByName(before, places, o.Nodes, func(n *node.Node) *node.Node { return n })
}

// policyOfSkyhook finds the policy that a Skyhook names.
func (o *Objects) policyOfSkyhook(s *v1alpha1.Skyhook) (by *v1alpha1.DeploymentPolicy, missing bool) {
	name, _ := plan.PolicyName(s, o.Config)
	return o.policyNamed(name)
}

func (o *Objects) policyNamed(name string) (by *v1alpha1.DeploymentPolicy, missing bool) {
	if name == "" {
		return nil, false
	}
	at := slices.IndexFunc(o.Policies, func(p *v1alpha1.DeploymentPolicy) bool { return p.Name == name })
	if at < 0 {
		return nil, true
	}
	return o.Policies[at], false
}

// isOwnedBy reports whether a ConfigMap is a Skyhook's, or was an earlier one's of the same name.
func isOwnedBy(m *corev1.ConfigMap, s *v1alpha1.Skyhook) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && owner.Kind == plan.Kind && owner.Name == s.Name
}

// configMap finds one of ours by name.
func (o *Lists) configMap(name string) *corev1.ConfigMap {
	return findNamed(o.ConfigMaps, name)
}

// pod finds a pod of a Skyhook by name.
func (o *Lists) pod(name string) *corev1.Pod { return findNamed(o.Pods, name) }

// findNamed returns the object with this name among those of one namespace, which are in the order of their names; nil if there is none.
func findNamed[T metav1.Object](objects []T, name string) (found T) {
	at, isFound := slices.BinarySearchFunc(objects, name, func(object T, name string) int { return strings.Compare(object.GetName(), name) })
	if isFound {
		found = objects[at]
	}
	return found
}

// sort puts everything in a total order, but Pods, which a podOrder sorts.
func (o *Lists) sort() {
	sortNodes(o.Nodes)
	slices.SortFunc(o.Skyhooks, func(a, b *v1alpha1.Skyhook) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), compareNames(a, b))
	})
	slices.SortFunc(o.NodeOps, func(a, b *opv1.NodeOp) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), compareNames(a, b))
	})
	slices.SortFunc(o.Policies, compareNames)
	slices.SortFunc(o.Upgrades, compareNames)
	slices.SortFunc(o.NodeOpPods, comparePods)
	slices.SortFunc(o.Jobs, compareNames)
	slices.SortFunc(o.ConfigMaps, compareNames)
}

// comparePods orders pods by namespace, then name. Thousands are compared in each pass, so it reads their fields itself.
func comparePods(a, b *corev1.Pod) int {
	if byNamespace := strings.Compare(a.Namespace, b.Namespace); byNamespace != 0 {
		return byNamespace
	}
	return strings.Compare(a.Name, b.Name)
}

// podOrder sorts the pods of one pass after the other. It has the order of the pass before, in which most of them were.
type podOrder struct {
	ordered []*corev1.Pod
	places  map[*corev1.Pod]int
}

// sort returns pods in the order of comparePods.
func (o *podOrder) sort(pods []*corev1.Pod) []*corev1.Pod {
	known, added := make([]*corev1.Pod, len(o.ordered)), []*corev1.Pod(nil)
	for _, p := range pods {
		if at, isKnown := o.places[p]; isKnown {
			known[at] = p
		} else {
			added = append(added, p)
		}
	}
	known = slices.DeleteFunc(known, func(p *corev1.Pod) bool { return p == nil })
	slices.SortFunc(added, comparePods)
	out := make([]*corev1.Pod, 0, len(pods))
	for _, p := range added {
		at, _ := slices.BinarySearchFunc(known, p, comparePods)
		out, known = append(append(out, known[:at]...), p), known[at:]
	}
	o.ordered = append(out, known...)
	if o.places == nil {
		o.places = make(map[*corev1.Pod]int, len(pods))
	}
	clear(o.places)
	for i, p := range o.ordered {
		o.places[p] = i
	}
	return o.ordered
}

// sortNodes sorts nodes by creation, then name.
func sortNodes(nodes []*node.Node) {
	if !slices.IsSortedFunc(nodes, node.Compare) { // they mostly are
		slices.SortFunc(nodes, node.Compare)
	}
}

func compareNames[T metav1.Object](a, b T) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// IsOurs reports whether a pod belongs to a Skyhook or a NodeOp, or is one of the operators: nothing could start another
// where every node is cordoned.
func (o *Objects) IsOurs(p *corev1.Pod) bool {
	if o.isOfNodeOp(p) || kairos.IsProbe(p, o.Config.Namespace) {
		return true
	}
	if p.Namespace != o.Config.Namespace {
		return false
	}
	isOperator := o.Config.OwnAccount != "" && p.Spec.ServiceAccountName == o.Config.OwnAccount
	owner := metav1.GetControllerOf(p)
	isOfSkyhook := owner != nil && owner.Kind == plan.Kind && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/")
	return isOperator || isOfSkyhook
}

// isOfNodeOp reports whether a pod belongs to a NodeOp, or to a Job of one.
func (o *Objects) isOfNodeOp(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return false
	}
	if owner.Kind == nodeop.Kind && strings.HasPrefix(owner.APIVersion, opv1.Group+"/") {
		return true
	}
	return owner.Kind == "Job" && slices.ContainsFunc(o.Jobs, func(j *batchv1.Job) bool {
		by := metav1.GetControllerOf(j)
		return j.UID == owner.UID && by != nil && by.Kind == nodeop.Kind
	})
}

// compileDeleted compiles a Skyhook that is gone and left a hold on a node behind. No other node matters for its release.
func (o *Objects) compileDeleted(ref rollout.Ref, n *node.Node) *skyhook.Compiled {
	s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, DeletionTimestamp: &metav1.Time{}}}
	return skyhook.Compile(&plan.Input{Skyhook: s, Nodes: []*node.Node{n}, Definitions: o.Definitions, Config: o.Config})
}

// holds lists the holds on a node. When no NodeOp has the UID of a hold, its owner is named with that UID.
func (o *Objects) holds(n *node.Node) []rollout.Hold {
	return n.Holds(func(owner rollout.Ref, uid string) bool {
		return slices.ContainsFunc(o.NodeOps, func(op *opv1.NodeOp) bool { return string(op.UID) == uid && nodeop.Ref(op) == owner })
	})
}
