// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

func nodeKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

// checkSeats checks that a Skyhook with its own budget has not taken a seat beyond it, and holds no more nodes than it may. What it
// took under a policy, before it had that budget, is not beyond it.
// A seat is a node that it holds, where a pod of it works, or that it admitted. A node where a stage failed for good gave its
// seat back; it may go on there, but hold the node only within the budget.
func (r *Run) checkSeats(what string) {
	for _, key := range r.server.keys(Skyhooks) {
		limit := r.limitOf(key)
		seats, held := r.seatsOf(key.Name)
		r.checkAdded(what+": seats of", key.Name, seats, limit)
		r.checkAdded(what+": held by", key.Name, held, limit)
	}
}

// checkAdded checks a set of nodes that may only grow up to a limit. A node that its record claims does not come new to the set:
// somebody edited its state, which may end its admission or change nothing, and the operator goes on with that admission.
func (r *Run) checkAdded(what, skyhook string, now []string, limit int) {
	before := r.truth.seats[skyhook+" "+what[strings.LastIndexByte(what, ':'):]]
	r.truth.seats[skyhook+" "+what[strings.LastIndexByte(what, ':'):]] = now
	isNew := slices.ContainsFunc(now, func(uid string) bool {
		return !slices.Contains(before, uid) && !r.truth.claimed[uid][skyhook]
	})
	known := slices.DeleteFunc(slices.Clone(now), func(uid string) bool { return r.hasOnlyPods(skyhook, uid) && !r.isSeenByLeader(uid) })
	if !isNew || len(known) <= limit {
		return
	}
	var names []string
	for _, uid := range now {
		names = append(names, r.nameOf(uid))
	}
	r.violate("the budget is never exceeded", "%s Skyhook %s are now %s, and it may have %d", what, skyhook, strings.Join(names, ", "), limit)
}

// hasOnlyPods reports whether nothing but pods of a Skyhook takes its seat on a node: it is neither admitted nor held.
func (r *Run) hasOnlyPods(skyhook, uid string) bool {
	return !r.truth.held[uid][skyhook] && !r.truth.admitted[uid][skyhook]
}

// isSeenByLeader reports whether the leader can know that a node exists. A pod that it made for a node which was deleted meanwhile
// lands on another one of the same name, and takes a seat there that no operator can count before it sees that node.
func (r *Run) isSeenByLeader(uid string) bool {
	seen, isSeen := r.leader.caches[0].watchedOf(Nodes).objects[client.ObjectKey{Name: r.nameOf(uid)}]
	return isSeen && string(seen.GetUID()) == uid
}

// limitOf is how many nodes a Skyhook may take by its own budget, as it is now or was when the operator last wrote its status: an
// admission that is written there goes to its node although the budget is lowered meanwhile. A Skyhook that has no budget of its
// own, or had none as its leader has seen it, is not limited here: its admissions are written to the policy.
func (r *Run) limitOf(key client.ObjectKey) int {
	seen, isSeen := r.leader.caches[0].watchedOf(Skyhooks).objects[key].(*v1alpha1.Skyhook)
	if isSeen && seen.Spec.InterruptionBudget.Count == nil {
		return math.MaxInt
	}
	return max(readLimit(r.server.objects[Skyhooks.Kind][key]), r.truth.limits[key.Name])
}

// readLimit reads the budget of a Skyhook.
func readLimit(c content) int {
	if count, found := nestedMap(c, "spec", "interruptionBudget")["count"].(int64); found {
		return int(count)
	}
	return math.MaxInt
}

// seatsOf are the nodes, by UID, that a Skyhook has taken, and those that it holds.
func (r *Run) seatsOf(skyhook string) (seats, held []string) {
	pods := r.podsOf(skyhook)
	for _, key := range r.server.keys(Nodes) {
		uid := r.uidOf(key)
		isHeld := r.truth.held[uid][skyhook]
		if isHeld {
			held = append(held, uid)
		}
		if (isHeld || pods[uid] || r.truth.admitted[uid][skyhook]) && !r.truth.gaveUp[uid][skyhook] {
			seats = append(seats, uid)
		}
	}
	return seats, held
}

func (r *Run) nameOf(uid string) string {
	for _, key := range r.server.keys(Nodes) {
		if r.uidOf(key) == uid {
			return key.Name
		}
	}
	return uid
}

// checkPass checks what must be true after every pass.
func (r *Run) checkPass() {
	t := &r.truth
	if most := 60 + 25*len(r.server.objects[Nodes.Kind]); t.requests > most {
		r.violate("bounded work", "a pass made %d requests", t.requests)
	}
	if len(t.unchanged) > 0 && !t.refused {
		r.violate("no action changes nothing", "%s", strings.Join(t.unchanged, ", "))
	}
	isDue := !r.leader.next.IsZero() && !r.leader.next.After(r.now.Add(r.leader.clockOffset))
	if !isDue || t.writes > 0 || t.refused || !r.isQuiet {
		t.idlePasses = 0
	} else if t.idlePasses++; t.idlePasses > 1 { // the first one may have asked for the pods of a node, which the next one lists
		r.violate("a pass that achieved nothing does not wake the next one", "the next pass is due at once")
	}
	if t.nextLeader != nil {
		offset := *t.nextLeader
		t.nextLeader, t.isKilled = nil, false
		r.tracef("another operator leads, its clock is off by %s", offset)
		r.lead(offset)
	}
}

// checkRest checks what must be true when nothing happens any more.
func (r *Run) checkRest() {
	for _, key := range r.server.keys(Skyhooks) {
		r.checkFinished(decode(r.server.objects[Skyhooks.Kind][key], &v1alpha1.Skyhook{}))
	}
	for _, key := range r.server.keys(NodeOps) {
		op := decode(r.server.objects[NodeOps.Kind][key], &opv1.NodeOp{})
		selectsNone := op.Status.Phase == opv1.PhasePending && len(op.Status.NodeStatuses) == 0
		if selectsNone && op.DeletionTimestamp == nil {
			continue
		}
		if op.Status.Phase != opv1.PhaseCompleted && op.Status.Phase != opv1.PhaseFailed || op.DeletionTimestamp != nil {
			r.violate("everything finishes", "NodeOp %s is %s at rest: %s", key, op.Status.Phase, r.describe())
		}
	}
	for _, key := range r.server.keys(Policies) {
		if c := r.server.objects[Policies.Kind][key]; meta(c).GetDeletionTimestamp() != nil && !r.isPolicyUsed() {
			r.violate("everything finishes", "policy %s is not deleted at rest", key.Name)
		}
	}
	for _, key := range r.server.keys(Nodes) {
		r.checkNodeAtRest(key)
	}
	for _, key := range r.server.keys(Pods) {
		if key.Namespace == Namespace {
			r.violate("nothing is held", "pod %s is there at rest", key.Name)
		}
	}
	r.checkEmptyPlan()
}

func (r *Run) isPolicyUsed() bool {
	for _, k := range []Kind{Skyhooks, NodeOps} {
		for _, c := range r.server.objects[k.Kind] {
			if nestedMap(c, "spec")["deploymentPolicy"] == "policy" {
				return true
			}
		}
	}
	return false
}

// checkFinished checks that a Skyhook is complete and says so, or is Failed because it cannot be accepted.
func (r *Run) checkFinished(s *v1alpha1.Skyhook) {
	if s.DeletionTimestamp != nil {
		r.violate("everything finishes", "Skyhook %s is not deleted at rest: %s", s.Name, r.describe())
		return
	}
	isRejected := slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionFalse && c.ObservedGeneration == s.Generation
	})
	isReady := slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.Generation
	})
	if isReady != (s.Status.Verdict == v1alpha1.VerdictReady) || isRejected != (s.Status.Verdict == v1alpha1.VerdictFailed) || !isRejected && !(isReady && s.Status.Status == v1alpha1.StatusComplete) {
		r.violate("everything finishes", "Skyhook %s is %q, %s at rest: %s", s.Name, s.Status.Status, s.Status.Verdict, r.describe())
	}
}

// checkDeletions checks that what a deletion waits for is said, before anybody repairs that.
func (r *Run) checkDeletions() {
	if !r.comesToRest(quietTurns / 4) {
		return // something is tried again
	}
	for _, key := range r.server.keys(Skyhooks) {
		s := decode(r.server.objects[Skyhooks.Kind][key], &v1alpha1.Skyhook{})
		if s.DeletionTimestamp != nil && !apimeta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionDeletionBlocked) {
			r.violate("a deletion ends, or says what it waits for", "Skyhook %s is still there: %s", s.Name, r.describe())
		}
	}
}

func (r *Run) checkNodeAtRest(key client.ObjectKey) {
	n := decode(r.server.objects[Nodes.Kind][key], &corev1.Node{})
	for name, value := range n.Annotations {
		owner, isMark := strings.CutPrefix(name, v1alpha1.PrefixCordon)
		isOurs := r.server.objects[Skyhooks.Kind][client.ObjectKey{Name: owner}] != nil
		if isMark && (value == "true" || isOurs) { // what else people write below our prefix is theirs
			r.violate("nothing is held", "node %s has %s at rest", key.Name, name)
		}
	}
	if n.Spec.Unschedulable != r.truth.cordoned[string(n.UID)] && !r.truth.unclear[string(n.UID)] {
		r.violate("nothing is held", "node %s is unschedulable=%v at rest, and an administrator left it %v", key.Name, n.Spec.Unschedulable, r.truth.cordoned[string(n.UID)])
	}
	if len(n.Spec.Taints) > 0 {
		r.violate("nothing is held", "node %s is tainted at rest", key.Name)
	}
	r.checkMarks(n)
	r.checkHandoverAtRest(n)
}

// checkEmptyPlan decides with what the API server has: nothing may be left to do.
func (r *Run) checkEmptyPlan() {
	api := r.server.Client()
	c := cluster.New(cluster.Options{Config: r.config(), Live: api, Clock: func() time.Time { return r.now }})
	o, err := c.Observe(context.WithoutCancel(r.ctx))
	if err != nil {
		r.violate("at rest the plan is empty", "%v", err)
		return
	}
	if plan := engine.Decide(cluster.Compile(o, r.now).Snapshot); len(plan.Actions) > 0 {
		r.violate("at rest the plan is empty", "%+v", plan.Actions)
	}
}

// describe is the state of the cluster in a few words.
func (r *Run) describe() string {
	var b strings.Builder
	for _, key := range r.server.keys(Skyhooks) {
		s := decode(r.server.objects[Skyhooks.Kind][key], &v1alpha1.Skyhook{})
		fmt.Fprintf(&b, "\n  Skyhook %s generation %d: %s", s.Name, s.Generation, s.Status.Status)
		for _, c := range s.Status.Conditions {
			if !strings.Contains(c.Type, "/") {
				fmt.Fprintf(&b, "\n    %s=%s %s", c.Type, c.Status, c.Message)
			}
		}
	}
	for _, key := range r.server.keys(NodeOps) {
		op := decode(r.server.objects[NodeOps.Kind][key], &opv1.NodeOp{})
		fmt.Fprintf(&b, "\n  NodeOp %s: %s", op.Name, op.Status.Phase)
		for _, name := range slices.Sorted(maps.Keys(op.Status.NodeStatuses)) {
			fmt.Fprintf(&b, "\n    %s: %s %s", name, op.Status.NodeStatuses[name].Phase, op.Status.NodeStatuses[name].Message)
		}
	}
	for _, key := range r.server.keys(Nodes) {
		n := decode(r.server.objects[Nodes.Kind][key], &corev1.Node{})
		fmt.Fprintf(&b, "\n  node %s unschedulable=%v", n.Name, n.Spec.Unschedulable)
		for _, name := range ourAnnotations(r.server.objects[Nodes.Kind][key]) {
			fmt.Fprintf(&b, "\n    %s=%.400s", name, n.Annotations[name])
		}
	}
	for _, key := range r.server.keys(Pods) {
		p := decode(r.server.objects[Pods.Kind][key], &corev1.Pod{})
		fmt.Fprintf(&b, "\n  pod %s on %s: %s, leaving %v", key, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp != nil)
	}
	return b.String()
}
