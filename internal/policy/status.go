// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// User is an object that uses a policy, and the verdicts of its targets.
type User struct {
	Ref      rollout.Ref
	Verdicts []rollout.Verdict
}

const (
	maxUsers       = 200  // in the status
	maxListedUsers = 3    // in a sentence
	maxMessage     = 2000 // bytes
)

// nodeProgress is the progress of one node, over all users.
type nodeProgress struct{ isBusy, isOpen, hasFailed bool }

// BuildStatus returns the status of a policy. Transition times of conditions that did not change are kept, and so is the
// ledger, which has other writers.
func BuildStatus(p *v1alpha1.DeploymentPolicy, users []User, groups []rollout.GroupReport, now time.Time) v1alpha1.DeploymentPolicyStatus {
	b := statusBuilder{policy: p, groups: groups, now: now}
	b.status = v1alpha1.DeploymentPolicyStatus{ObservedGeneration: p.Generation, Users: len(users), Admission: p.Status.Admission}
	b.addUsers(users)
	b.addNodes(users)
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		b.status.CompartmentStatuses = ToCompartmentStatuses(Ref(p), groups)
		if b.status.CompartmentStatuses == nil { // without users the results of earlier batches stay
			b.status.CompartmentStatuses = p.Status.CompartmentStatuses
		}
	}
	b.addAccepted()
	b.addReady()
	b.addStopped()
	b.addDeletionBlocked()
	return b.status
}

// statusBuilder builds the status of one policy.
type statusBuilder struct {
	policy *v1alpha1.DeploymentPolicy
	groups []rollout.GroupReport
	now    time.Time
	status v1alpha1.DeploymentPolicyStatus
	failed int // nodes
}

func (b *statusBuilder) addUsers(users []User) {
	for _, u := range users {
		b.status.UsedBy = append(b.status.UsedBy, u.Ref.String())
	}
	slices.Sort(b.status.UsedBy)
	b.status.UsedBy = b.status.UsedBy[:min(len(b.status.UsedBy), maxUsers)]
}

func (b *statusBuilder) addNodes(users []User) {
	nodes := map[string]nodeProgress{}
	for _, u := range users {
		for _, v := range u.Verdicts {
			nodes[v.Node] = nodes[v.Node].add(v.Phase)
		}
	}
	complete := 0
	for _, n := range nodes {
		b.status.NodesInProgress += countIf(n.isBusy)
		b.failed += countIf(n.hasFailed)
		complete += countIf(!n.isOpen)
	}
	b.status.NodesTotal, b.status.CompleteNodes = len(nodes), fmt.Sprintf("%d/%d", complete, len(nodes))
}

func (n nodeProgress) add(phase rollout.Phase) nodeProgress {
	hasFailed := phase == rollout.PhaseFailing || phase == rollout.PhaseFailed
	isBusy := hasFailed || phase == rollout.PhaseInFlight
	return nodeProgress{
		isBusy:    n.isBusy || isBusy,
		isOpen:    n.isOpen || phase != rollout.PhaseFinished,
		hasFailed: n.hasFailed || hasFailed,
	}
}

func countIf(counts bool) int {
	if counts {
		return 1
	}
	return 0
}

func (b *statusBuilder) addAccepted() {
	problems := FindProblems(b.policy, b.now)
	if len(problems) > 0 {
		b.addCondition(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalidSpec, strings.Join(problems, "; "))
		return
	}
	b.addCondition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the policy is valid")
}

func (b *statusBuilder) addReady() {
	message := b.status.CompleteNodes + " nodes complete"
	waiting := b.findGroup(func(g *rollout.GroupReport) bool { return g.Why != nil && g.Why.Reason == rollout.ReasonApproval })
	if waiting == nil {
		waiting = b.findGroup(func(g *rollout.GroupReport) bool { return g.Why != nil })
	}
	if waiting != nil {
		message += "; " + waiting.Group.Compartment + ": " + waiting.Why.Text
		if waiting.Why.Reason == rollout.ReasonApproval {
			message += " (" + waiting.Why.Remedy("", "", "") + ")"
		}
	}
	isComplete := b.status.CompleteNodes == fmt.Sprintf("%d/%[1]d", b.status.NodesTotal)
	reason := v1alpha1.ReasonWaiting
	switch {
	case isComplete:
		reason = v1alpha1.ReasonNodesConverged
	case b.failed > 0:
		reason = v1alpha1.ReasonErroring
	case b.status.NodesInProgress > 0:
		reason = v1alpha1.ReasonProgressing
	}
	b.addCondition(v1alpha1.ConditionReady, isComplete, reason, message)
}

func (b *statusBuilder) addStopped() {
	stopped := b.findGroup(func(g *rollout.GroupReport) bool { return g.Memory.Stopped })
	if stopped == nil {
		return
	}
	text := "no more nodes start"
	if stopped.Why != nil {
		text = stopped.Why.Text
	}
	reason := v1alpha1.ReasonFailureThreshold
	if gate := stopped.Memory.StoppedBy; gate != "" {
		reason, text = v1alpha1.ReasonHealthGate, DescribeGateStop(gate)
	}
	b.addCondition(v1alpha1.ConditionRolloutStopped, true, reason, stopped.Group.Compartment+": "+text)
}

// DescribeGateStop says that a health gate stopped a group.
func DescribeGateStop(gate string) string {
	return "a health gate stopped it, and no further node starts until somebody resumes it: " + gate
}

func (b *statusBuilder) addDeletionBlocked() {
	isDeleting := b.policy.DeletionTimestamp != nil
	if isDeleting && b.status.Users > 0 {
		message := DescribeUsers(b.status.UsedBy, b.status.Users)
		b.addCondition(v1alpha1.ConditionDeletionBlocked, true, v1alpha1.ReasonInUse, message)
	}
}

// findGroup returns the first group of the policy that matches; nil if there is none.
func (b *statusBuilder) findGroup(matches func(*rollout.GroupReport) bool) *rollout.GroupReport {
	owner := Ref(b.policy)
	i := slices.IndexFunc(b.groups, func(g rollout.GroupReport) bool {
		return g.Group.Owner == owner && matches(&g)
	})
	if i < 0 {
		return nil
	}
	return &b.groups[i]
}

// addCondition adds a condition, with the transition time of the same condition in the stored status.
func (b *statusBuilder) addCondition(kind string, isTrue bool, reason, message string) {
	stored := meta.FindStatusCondition(b.policy.Status.Conditions, kind)
	if stored != nil {
		b.status.Conditions = append(b.status.Conditions, *stored)
	}
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&b.status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		Reason:             reason,
		Message:            rollout.Truncate(message, maxMessage),
		ObservedGeneration: b.policy.Generation,
		LastTransitionTime: metav1.NewTime(b.now.UTC().Truncate(time.Second)),
	})
}

// DescribeUsers returns why a policy in use cannot be deleted.
func DescribeUsers(users []string, total int) string {
	listed := users[:min(len(users), maxListedUsers)]
	text := strings.Join(listed, ", ")
	if more := total - len(listed); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "used by " + text + ": delete them, or have them name another policy, to let the deletion continue"
}
