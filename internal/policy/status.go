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

// User is an object that goes by a policy, and what became of its targets.
type User struct {
	Ref      rollout.Ref
	Verdicts []rollout.Verdict
}

const (
	maxUsers       = 200 // listed
	maxListedUsers = 3   // users in a sentence
)

// nodeProgress is how one node is, over all users.
type nodeProgress struct{ busy, open, failed bool }

// BuildStatus is what to say about a policy. Transition times of conditions that did not change are kept from the status it
// has, and so is the ledger, which others write.
func BuildStatus(p *v1alpha1.DeploymentPolicy, users []User, groups []rollout.GroupReport, now time.Time) v1alpha1.DeploymentPolicyStatus {
	nodes := map[string]nodeProgress{}
	out := v1alpha1.DeploymentPolicyStatus{ObservedGeneration: p.Generation, Users: len(users), Admission: p.Status.Admission}
	for _, u := range users {
		out.UsedBy = append(out.UsedBy, u.Ref.String())
		for _, v := range u.Verdicts {
			n := nodes[v.Node]
			n.busy = n.busy || v.Phase == rollout.PhaseInFlight || v.Phase == rollout.PhaseFailing || v.Phase == rollout.PhaseFailed
			n.failed = n.failed || v.Phase == rollout.PhaseFailing || v.Phase == rollout.PhaseFailed
			n.open = n.open || v.Phase != rollout.PhaseFinished
			nodes[v.Node] = n
		}
	}
	slices.Sort(out.UsedBy)
	out.UsedBy = out.UsedBy[:min(len(out.UsedBy), maxUsers)]
	complete, failed := 0, 0
	for _, n := range nodes {
		if n.busy {
			out.NodesInProgress++
		}
		if n.failed {
			failed++
		}
		if !n.open {
			complete++
		}
	}
	out.NodesTotal, out.CompleteNodes = len(nodes), fmt.Sprintf("%d/%d", complete, len(nodes))
	if p.Spec.Scope == v1alpha1.ScopePolicy {
		out.CompartmentStatuses = ToCompartmentStatuses(Ref(p), groups)
		if out.CompartmentStatuses == nil { // nobody uses it now: what it learned stays
			out.CompartmentStatuses = p.Status.CompartmentStatuses
		}
	}
	out.Conditions = buildConditions(p, &out, failed, groups, now)
	return out
}

func buildConditions(p *v1alpha1.DeploymentPolicy, is *v1alpha1.DeploymentPolicyStatus, failed int, groups []rollout.GroupReport, now time.Time) []metav1.Condition {
	var out []metav1.Condition
	say := func(kind string, yes bool, reason, message string) {
		if old := meta.FindStatusCondition(p.Status.Conditions, kind); old != nil {
			out = append(out, *old)
		}
		status := metav1.ConditionFalse
		if yes {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&out, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: clipText(message, 2000),
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second))})
	}
	if wrong := FindProblems(p, now); len(wrong) > 0 {
		say(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalidSpec, strings.Join(wrong, "; "))
	} else {
		say(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the policy can be carried out")
	}
	message, busy := is.CompleteNodes+" nodes complete", is.NodesInProgress > 0
	reason := v1alpha1.ReasonNodesConverged
	switch {
	case is.CompleteNodes == fmt.Sprintf("%d/%[1]d", is.NodesTotal):
	case failed > 0:
		reason = v1alpha1.ReasonErroring
	case busy:
		reason = v1alpha1.ReasonProgressing
	default:
		reason = v1alpha1.ReasonWaiting
	}
	if waits := describeWaiting(p, groups); waits != "" {
		message += "; " + waits
	}
	say(v1alpha1.ConditionReady, reason == v1alpha1.ReasonNodesConverged, reason, message)
	for _, g := range groups {
		if g.Group.Owner == Ref(p) && g.Memory.Stopped {
			name := g.Group.Compartment
			text := name + ": no further node begins"
			if g.Why != nil {
				text = name + ": " + g.Why.Text
			}
			say(v1alpha1.ConditionRolloutStopped, true, v1alpha1.ReasonFailureThreshold, text)
			break
		}
	}
	if p.DeletionTimestamp != nil && is.Users > 0 {
		say(v1alpha1.ConditionDeletionBlocked, true, v1alpha1.ReasonInUse, DescribeUsers(is.UsedBy, is.Users))
	}
	return out
}

// describeWaiting says what the first compartment that lets nobody begin waits for.
func describeWaiting(p *v1alpha1.DeploymentPolicy, groups []rollout.GroupReport) string {
	for _, g := range groups {
		if g.Group.Owner == Ref(p) && g.Why != nil {
			return g.Group.Compartment + ": " + g.Why.Text
		}
	}
	return ""
}

// DescribeUsers says who keeps a policy from being deleted.
func DescribeUsers(users []string, total int) string {
	text := strings.Join(users[:min(len(users), maxListedUsers)], ", ")
	if more := total - min(len(users), maxListedUsers); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "used by " + text + ": delete them, or have them name another policy, to let the deletion go on"
}

func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
