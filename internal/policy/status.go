// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// User is an object that uses a policy, and the verdicts of its targets.
type User struct {
	Ref      rollout.Ref
	Verdicts []rollout.Verdict
}

const (
	maxUsers       = 200 // in the status
	maxListedUsers = 3   // in a sentence
)

// nodeProgress is the progress of one node, over all users.
type nodeProgress struct{ isBusy, isOpen, hasFailed bool }

// BuildStatus returns the status of a policy. Transition times of conditions that did not change are kept, and so is the
// ledger, which has other writers.
func BuildStatus(p *v1alpha1.DeploymentPolicy, users []User, groups []rollout.GroupReport, now time.Time) v1alpha1.DeploymentPolicyStatus {
	b := statusBuilder{policy: p, groups: groups, now: now}
	b.conditions = ConditionSet{Stored: p.Status.Conditions, Generation: p.Generation, Now: now}
	b.status = v1alpha1.DeploymentPolicyStatus{ObservedGeneration: p.Generation, Users: int32(len(users)), Internal: p.Status.Internal}
	b.addUsers(users)
	b.addNodes(users)
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		b.status.CompartmentStatuses = p.Status.CompartmentStatuses // without users the results of earlier batches stay
		if all, batches := ToCompartmentStatuses(Ref(p), groups); all != nil {
			b.status.CompartmentStatuses, b.status.Internal.Batches = all, batches
		}
	}
	s := Standing{Nodes: listVerdicts(users)}
	b.addAccepted(&s)
	b.addReady(&s)
	b.addStopped(&s)
	b.addDeletionBlocked(&s)
	verdict := s.Judge()
	verdict.SetConditions(b.conditions.Set)
	b.status.Outcome, b.status.Conditions = verdict.Outcome, b.conditions.Conditions
	return b.status
}

// statusBuilder builds the status of one policy.
type statusBuilder struct {
	policy *v1alpha1.DeploymentPolicy
	groups []rollout.GroupReport
	now    time.Time
	status v1alpha1.DeploymentPolicyStatus
	failed int // nodes

	conditions ConditionSet
}

// listVerdicts returns the verdicts of all users.
func listVerdicts(users []User) iter.Seq[rollout.Verdict] {
	return func(yield func(rollout.Verdict) bool) {
		for _, u := range users {
			for _, v := range u.Verdicts {
				if !yield(v) {
					return
				}
			}
		}
	}
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
		b.status.NodesInProgress += int32(countIf(n.isBusy))
		b.failed += countIf(n.hasFailed)
		complete += countIf(!n.isOpen)
	}
	b.status.NodesTotal, b.status.CompleteNodes = int32(len(nodes)), fmt.Sprintf("%d/%d", complete, len(nodes))
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

func (b *statusBuilder) addAccepted(s *Standing) {
	problems := FindProblems(b.policy, b.now)
	if len(problems) > 0 {
		s.Refused = &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: strings.Join(problems, "; ")}
		b.conditions.Set(v1alpha1.ConditionAccepted, false, string(s.Refused.Reason), s.Refused.Text)
		return
	}
	b.conditions.Set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the policy is valid")
}

func (b *statusBuilder) addReady(s *Standing) {
	message := b.status.CompleteNodes + " nodes complete"
	waiting := b.findGroup(func(g *rollout.GroupReport) bool { return g.Why != nil && g.Why.Reason == rollout.ReasonApproval })
	if waiting == nil {
		waiting = b.findGroup(func(g *rollout.GroupReport) bool { return g.Why != nil })
	}
	if waiting != nil {
		message += "; " + waiting.Group.Name() + ": " + waiting.Why.Text
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
	s.Other = rollout.Why{Reason: rollout.Reason(reason), Text: b.status.CompleteNodes + " nodes complete"}
	if isComplete {
		s.Ready = &s.Other
	}
	b.conditions.Set(v1alpha1.ConditionReady, isComplete, reason, message)
}

func (b *statusBuilder) addStopped(s *Standing) {
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
	s.Failed = &rollout.Why{Reason: rollout.Reason(reason), Text: stopped.Group.Name() + ": " + text}
	b.conditions.Set(v1alpha1.ConditionRolloutStopped, true, reason, s.Failed.Text)
}

// DescribeGateStop says that a health gate stopped a group.
func DescribeGateStop(gate string) string {
	return "a health gate stopped it, and no further node starts until somebody resumes it: " + gate
}

func (b *statusBuilder) addDeletionBlocked(s *Standing) {
	if b.policy.DeletionTimestamp == nil {
		return
	}
	s.Deleting = &rollout.Why{Reason: v1alpha1.ReasonDeleting}
	if b.status.Users > 0 {
		s.Deleting = &rollout.Why{Reason: v1alpha1.ReasonInUse, Text: DescribeUsers(b.status.UsedBy, int(b.status.Users))}
		b.conditions.Set(v1alpha1.ConditionDeletionBlocked, true, v1alpha1.ReasonInUse, s.Deleting.Text)
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

// DescribeUsers returns why a policy in use cannot be deleted.
func DescribeUsers(users []string, total int) string {
	listed := users[:min(len(users), maxListedUsers)]
	text := strings.Join(listed, ", ")
	if more := total - len(listed); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "used by " + text + ": delete them, or have them name another policy, to let the deletion continue"
}
