// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

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
)

// Reasons of the node conditions, for True and for False. The predecessor's, with spaces.
var (
	notReadyReasons = [2]string{"Incomplete", "Complete"}
	erroringReasons = [2]string{"Package(s) Erroring or Unknown", "Not Erroring"}
)

// nodeMarks are the keys and messages of one Skyhook, built once.
type nodeMarks struct {
	status, version     string // keys
	notReady, erroring  corev1.NodeConditionType
	ready, errorMessage string // messages of the conditions
}

func newNodeMarks(skyhook string) nodeMarks {
	return nodeMarks{
		status: v1alpha1.PrefixStatus + skyhook, version: v1alpha1.PrefixVersion + skyhook,
		notReady: corev1.NodeConditionType(v1alpha1.NodeConditionNotReady(skyhook)),
		erroring: corev1.NodeConditionType(v1alpha1.NodeConditionErroring(skyhook)),
		ready:    "Skyhook " + skyhook + " Ready", errorMessage: "Package Erroring or Unknown for " + skyhook,
	}
}

// Words returns the edit of a node's status marks: annotation, label, version and node conditions. It is empty when all are current.
// Nodes that only wait get no conditions yet, nor do those that are complete in a moment, and a Skyhook that is being deleted adds none.
func (c *Compiled) Words(n *node.Node, v rollout.Verdict) node.Edit {
	t := c.target(n.Name)
	if c.Rollout.Deleting || t == nil || !t.selected {
		return node.Edit{}
	}
	on, status := n.Skyhook(c.in.Skyhook.Name), c.reporter().statusOf(t, v.Phase)
	spoken := n.Annotations[c.marks.status] == string(status) && n.Labels[c.marks.status] == string(status)
	silent := status == v1alpha1.StatusWaiting && len(on.State) == 0 && !c.reporter().hasOwnCondition(n)
	open, failing := status != v1alpha1.StatusComplete, on.Erroring
	silent = silent || status == v1alpha1.StatusInProgress && !failing && c.reporter().isBrief(t)
	if spoken && (silent || c.hasConditions(n, open, failing)) {
		return node.Edit{}
	}
	var e node.Edit
	e.SetSkyhookStatus(n, c.in.Skyhook.Name, status)
	if !silent {
		c.reporter().setNodeCondition(&e, n, c.marks.notReady, open, chooseReason(open, notReadyReasons), c.marks.ready)
		c.reporter().setNodeCondition(&e, n, c.marks.erroring, failing, chooseReason(failing, erroringReasons), c.marks.errorMessage)
	}
	return e
}

// hasConditions reports whether the conditions of a node say so already.
func (c *Compiled) hasConditions(n *node.Node, open, failing bool) bool {
	return n.HasConditionReason(c.marks.notReady, chooseReason(open, notReadyReasons)) && n.HasConditionReason(c.marks.erroring, chooseReason(failing, erroringReasons))
}

// brief is how long a node may be in progress before its conditions say so, if what is done there interrupts nothing.
const brief = 10 * time.Second

// isBrief reports whether the work on a node is expected to be complete in a moment.
func (rep reporter) isBrief(t *target) bool {
	hasBegun := t.rec.Admitted && t.rec.At != nil
	return rep.isShortVisit(t.node.Name) && (!hasBegun || rep.in.Now.Sub(*t.rec.At) < brief)
}

// NoteQuiet notes that Words has nothing to say about a node that is finished, waits, or has the conditions of one in progress. The pass
// that has the node, and those that take it over, need not ask again; what it says about other nodes depends on the clock. It is for the
// goroutine that makes the passes.
func (c *Compiled) NoteQuiet(n *node.Node, v *rollout.Verdict) {
	isSteady := v.Phase == rollout.PhaseFinished || v.Phase == rollout.PhaseWaiting ||
		v.Phase == rollout.PhaseInFlight && c.hasConditions(n, true, n.Skyhook(c.in.Skyhook.Name).Erroring)
	if t := c.target(n.Name); t != nil && t.node == n && isSteady {
		t.quiet = v.Phase
	}
}

// IsQuiet reports whether that was noted. The verdict is at this place of its report.
func (c *Compiled) IsQuiet(at int, v *rollout.Verdict) bool {
	t := c.targetAt(at, v.Node)
	return t != nil && t.quiet != "" && t.quiet == v.Phase
}

// chooseReason returns the reason for True or for False.
func chooseReason(yes bool, reasons [2]string) string {
	if yes {
		return reasons[0]
	}
	return reasons[1]
}

// hasOwnCondition reports whether the node has conditions of this Skyhook.
func (rep reporter) hasOwnCondition(n *node.Node) bool {
	return slices.ContainsFunc(n.Conditions, func(cond corev1.NodeCondition) bool { return rep.recorder().isOwnCondition(cond.Type) })
}

// setNodeCondition sets a node condition when its reason changed.
func (rep reporter) setNodeCondition(e *node.Edit, n *node.Node, kind corev1.NodeConditionType, yes bool, reason, message string) {
	if n.HasConditionReason(kind, reason) {
		return
	}
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	now := metav1.NewTime(node.WholeSeconds(rep.in.Now))
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
