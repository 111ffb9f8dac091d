// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// lifecycleConditions are the conditions of Kubernetes about the maintenance of a node, in their order.
var lifecycleConditions = []corev1.NodeConditionType{
	corev1.NodeMaintenancePlanned, corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress,
}

// IsOurCondition reports whether a condition of a node is written by this program only.
func IsOurCondition(c corev1.NodeCondition) bool {
	return strings.HasPrefix(string(c.Type), v1alpha1.Group+"/") || isOurLifecycle(c)
}

// isOurLifecycle reports whether a lifecycle condition was set here. Anybody may set them; ours have our reason.
func isOurLifecycle(c corev1.NodeCondition) bool {
	return c.Reason == v1alpha1.NodeConditionReasonSkyhook && slices.Contains(lifecycleConditions, c.Type)
}

// Announced is what one rollout tells other programs about a node.
type Announced struct {
	Holder     string // see HolderOf
	Title      string
	State      rollout.MaintenanceState
	Taints     bool // the node, while its turn is still to come
	Conditions bool // are set
}

// isPlanned reports whether the turn of the node is still to come: a hold of this plan may not have been placed.
func (a Announced) isPlanned(isHolder map[string]bool) bool {
	return a.State == rollout.NodePlanned || !isHolder[a.Holder]
}

// Announce returns the edit of the taint and of the lifecycle conditions. Conditions of others stay as they are. A hold that is not
// listed is as far as before.
func (n *Node) Announce(all []Announced, now time.Time) Edit {
	e, isHolder := Edit{}, n.holders()
	wantsTaint := slices.ContainsFunc(all, func(a Announced) bool { return a.Taints && a.isPlanned(isHolder) })
	switch isTainted := n.HasTaint(MaintenancePlanned); {
	case wantsTaint && !isTainted:
		e.AddTaints = []corev1.Taint{MaintenancePlanned}
	case !wantsTaint && isTainted:
		e.RemoveTaints = []corev1.Taint{MaintenancePlanned}
	}
	wanted := n.wantedLifecycle(all, isHolder)
	for _, t := range lifecycleConditions {
		at := slices.IndexFunc(n.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
		text, isWanted := wanted[t]
		isForeign := at < 0 && n.Condition(string(t)) != ""
		switch {
		case !isWanted && at >= 0:
			e.RemoveConditions = append(e.RemoveConditions, t)
		case !isWanted || isForeign:
		case at < 0 || n.Conditions[at].Message != text || n.Conditions[at].Status != corev1.ConditionTrue:
			e.SetConditions = append(e.SetConditions, n.newLifecycleCondition(at, t, text, now))
		}
	}
	return e
}

// newLifecycleCondition returns a condition that replaces the one at an index, if that is not negative.
func (n *Node) newLifecycleCondition(at int, t corev1.NodeConditionType, text string, now time.Time) corev1.NodeCondition {
	out := corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeConditionReasonSkyhook, Message: text}
	out.LastHeartbeatTime = metav1.NewTime(WholeSeconds(now))
	out.LastTransitionTime = out.LastHeartbeatTime
	if at >= 0 && n.Conditions[at].Status == out.Status && !n.Conditions[at].LastTransitionTime.IsZero() {
		out.LastTransitionTime = n.Conditions[at].LastTransitionTime
	}
	return out
}

// wantedLifecycle returns the message of each condition that is true of the node.
func (n *Node) wantedLifecycle(all []Announced, isHolder map[string]bool) map[corev1.NodeConditionType]string {
	out := map[corev1.NodeConditionType]string{}
	var planned, holders []string
	isDraining, isDrained := false, false
	for _, a := range all {
		_, isShown := n.marks.Conditions[a.Holder]
		switch {
		case a.isPlanned(isHolder):
			if a.Conditions {
				planned = append(planned, a.Title)
			}
		case isShown:
			isDraining = isDraining || a.State == rollout.NodeDraining
			isDrained = isDrained || a.State == rollout.NodeDrained
		}
	}
	for holder := range n.marks.Conditions {
		if isHolder[holder] {
			holders = append(holders, titleOf(holder))
		}
	}
	if len(holders) > 0 {
		slices.Sort(holders)
		text := "for " + strings.Join(holders, ", ")
		wasDrained := slices.ContainsFunc(n.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeDrained })
		if isDraining || !isDrained && !wasDrained {
			planned = append(planned, holders...)
			out[corev1.NodeDrainInProgress] = "the node is drained " + text
		} else {
			out[corev1.NodeDrained] = "the node was drained " + text
			out[corev1.NodeMaintenanceInProgress] = "work is in progress " + text
		}
	}
	if len(planned) > 0 {
		slices.Sort(planned)
		out[corev1.NodeMaintenancePlanned] = "work that needs the node drained is planned for " + strings.Join(slices.Compact(planned), ", ")
	}
	for t, text := range out {
		out[t] = Truncate(text, 1000)
	}
	return out
}

// titleOf is a holder as messages name it.
func titleOf(holder string) string {
	path, _, _ := strings.Cut(holder, "@")
	return rollout.ParseRef(path).Title()
}
