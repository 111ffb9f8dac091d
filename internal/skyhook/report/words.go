// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Reasons of the node conditions, for True and for False. The predecessor's, with spaces.
var (
	notReadyReasons = [2]string{"Incomplete", "Complete"}
	erroringReasons = [2]string{"Package(s) Erroring or Unknown", "Not Erroring"}
)

// Words returns the edit of a node's status marks: annotation, label, version and node conditions. It is empty when all are current.
// Nodes that only wait get no conditions yet, nor do those that are complete in a moment, and a Skyhook that is being deleted adds none.
func (rep Reporter) Words(n *node.Node, v rollout.Verdict) node.Edit {
	t := rep.Target(n.Name)
	if rep.Rollout.Deleting || t == nil || !t.Selected {
		return node.Edit{}
	}
	on, status := n.Skyhook(rep.Facts.Skyhook.Name), rep.statusOf(t, v.Phase)
	spoken := n.Annotations[rep.Facts.Keys.Status] == string(status) && n.Labels[rep.Facts.Keys.Status] == string(status)
	silent := status == v1alpha1.StatusWaiting && len(on.State) == 0 && !rep.Facts.Keys.HasCondition(n.Conditions)
	open, failing := status != v1alpha1.StatusComplete, on.Erroring
	silent = silent || status == v1alpha1.StatusInProgress && !failing && rep.isBrief(t)
	if spoken && (silent || rep.HasConditions(n, open, failing)) {
		return node.Edit{}
	}
	var e node.Edit
	e.SetSkyhookStatus(n, rep.Facts.Skyhook.Name, status)
	if !silent {
		rep.setNodeCondition(&e, n, rep.Facts.Keys.NotReady, open, chooseReason(open, notReadyReasons), "Skyhook "+rep.Facts.Skyhook.Name+" Ready")
		rep.setNodeCondition(&e, n, rep.Facts.Keys.Erroring, failing, chooseReason(failing, erroringReasons), "Package Erroring or Unknown for "+rep.Facts.Skyhook.Name)
	}
	return e
}

// HasConditions reports whether the conditions of a node say so already.
func (rep Reporter) HasConditions(n *node.Node, open, failing bool) bool {
	return n.HasConditionReason(rep.Facts.Keys.NotReady, chooseReason(open, notReadyReasons)) && n.HasConditionReason(rep.Facts.Keys.Erroring, chooseReason(failing, erroringReasons))
}

// brief is how long a node may be in progress before its conditions say so, if what is done there interrupts nothing.
const brief = 10 * time.Second

// isBrief reports whether the work on a node is expected to be complete in a moment.
func (rep Reporter) isBrief(t *plan.Target) bool {
	hasBegun := t.Record.Admitted && t.Record.At != nil
	return rep.isShortVisit(t.Node.Name) && (!hasBegun || rep.Facts.Now.Sub(*t.Record.At) < brief)
}

// chooseReason returns the reason for True or for False.
func chooseReason(yes bool, reasons [2]string) string {
	if yes {
		return reasons[0]
	}
	return reasons[1]
}

// setNodeCondition sets a node condition when its reason changed.
func (rep Reporter) setNodeCondition(e *node.Edit, n *node.Node, kind corev1.NodeConditionType, yes bool, reason, message string) {
	if n.HasConditionReason(kind, reason) {
		return
	}
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	now := metav1.NewTime(node.WholeSeconds(rep.Facts.Now))
	e.SetConditions = append(e.SetConditions, corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	})
}

// nodesWithStatus returns the sorted names of the nodes with a status.
func nodesWithStatus(nodes []nodeStatus, status v1alpha1.Status) []string {
	var out []string
	for _, n := range nodes {
		if n.status == status {
			out = append(out, n.name)
		}
	}
	slices.Sort(out)
	return out
}

// formatNames joins names, or counts them when there are many.
func formatNames(names []string) string {
	if len(names) > mostListed {
		return fmt.Sprintf("%d (list truncated; see controller logs)", len(names))
	}
	return "[" + strings.Join(names, " ") + "]"
}

// listNames joins the first names and counts the others.
func listNames(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// clipName truncates a name in a list.
func clipName(name string) string {
	if len(name) > 10 {
		return name[:10] + "..."
	}
	return name
}

func countOf(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
