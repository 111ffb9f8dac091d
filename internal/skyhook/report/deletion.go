// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// deletionProgress sorts the nodes of a deleted Skyhook by what its deletion waits for there.
type deletionProgress struct {
	pending    bool         // something is to be uninstalled
	unreadable []string     // nodes whose annotations cannot be read
	forbidden  []nodeStatus // nodes on which nothing may run
	moving     bool         // an uninstall makes progress on some node
	waiting    []nodeStatus // nodes on which an uninstall waits
	remaining  []nodeStatus // nodes with pods that do not go
}

func (rep Reporter) findDeletionProgress(nodes []nodeStatus) deletionProgress {
	var p deletionProgress
	for _, n := range nodes {
		t := rep.Rollout.Targets[n.index]
		hasTasks := len(t.Tasks) > 0
		p.pending = p.pending || hasTasks
		switch {
		case t.Blocked != nil && t.Blocked.Reason == rollout.ReasonStateUnreadable:
			p.unreadable = append(p.unreadable, n.name)
		case hasTasks && t.Blocked != nil:
			p.forbidden = append(p.forbidden, n)
		case hasTasks && n.isMoving():
			p.moving = true
		case hasTasks:
			p.waiting = append(p.waiting, n)
		case n.phase == rollout.PhaseBlocked:
			p.remaining = append(p.remaining, n)
		}
	}
	slices.Sort(p.unreadable)
	return p
}

// isMoving reports whether work on the node makes progress, so that it ends or fails for good.
func (n nodeStatus) isMoving() bool {
	switch n.phase {
	case rollout.PhaseFailing, rollout.PhaseFailed:
		return true
	case rollout.PhaseInFlight:
		endsByItself := n.why.Reason == rollout.ReasonPodLeaving || n.why.Reason == rollout.ReasonDefinitionChanged
		return endsByItself || !n.why.Reason.IsWait() || n.why.Reason.IsTransient()
	}
	return n.why.Reason.IsTransient()
}

// setDeletion says what a deletion waits for, unless it makes progress. It returns nil if nothing is deleted.
func (rep Reporter) setDeletion(t *conditionWriter, nodes []nodeStatus) *rollout.Why {
	if !rep.Rollout.Deleting || rep.Removed {
		return nil
	}
	p := rep.findDeletionProgress(nodes)
	why := &rollout.Why{Reason: v1alpha1.ReasonDeleting}
	blocked := func(reason, text string) {
		why.Reason, why.Text = rollout.Reason(reason), text
		t.set(v1alpha1.ConditionDeletionBlocked, true, reason, text)
	}
	switch {
	case p.pending && rep.Rollout.Yields:
		blocked(v1alpha1.ReasonDisabledWithPendingUninstall, "the Skyhook is disabled: remove the annotation "+v1alpha1.AnnotationDisable+" to let the deletion go on")
	case p.pending && rep.Rollout.Paused:
		blocked(v1alpha1.ReasonPausedWithPendingUninstall, "the Skyhook is paused: remove the annotation "+v1alpha1.AnnotationPause+" to let the deletion go on")
	case len(p.unreadable) > 0:
		blocked(v1alpha1.ReasonMalformedNodeState, "annotations cannot be read on "+formatNames(p.unreadable)+": correct or delete them to let the deletion go on")
	case len(p.forbidden) > 0:
		_, text := rep.describeFirst(p.forbidden)
		blocked(v1alpha1.ReasonBlocked, "packages are to be uninstalled and nothing may run on "+text+"; remove the cause, or set uninstall.enabled to false")
	case len(p.waiting) > 0 && !p.moving:
		reason, text := rep.describeFirst(p.waiting)
		blocked(reason, "packages are to be uninstalled on "+text)
	case len(p.remaining) > 0:
		reason, text := rep.describeFirst(p.remaining)
		blocked(reason, "pods are left on "+text)
	}
	return why
}

// describeFirst returns the reason of the first node, and which nodes have it and why.
func (rep Reporter) describeFirst(nodes []nodeStatus) (reason, text string) {
	first := nodes[0]
	var names []string
	for _, n := range nodes {
		if n.why.Reason == first.why.Reason {
			names = append(names, n.name)
		}
	}
	slices.Sort(names)
	sentence := rollout.Verdict{Node: first.name, Why: *first.why}.Sentence(rep.Facts.Skyhook.Name)
	return string(first.why.Reason), formatNames(names) + ": " + node.Truncate(sentence, 700)
}
