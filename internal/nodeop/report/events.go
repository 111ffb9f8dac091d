// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Reasons of events.
const (
	eventStarted  = "Started"
	eventFinished = "Finished"
	eventFailed   = "Failed"
	eventReboot   = "Reboot"
	eventQuorum   = "ControlPlaneAtOnce"
	eventPodsLeft = "PodsLeft"
	eventDrain    = "Drain"
)

// Event is an event of the NodeOp and, when a node is named, of that node.
type Event struct {
	Node    string // empty: on the NodeOp only
	Type    string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason  string
	Message string
}

func normalEvent(on, reason, message string) []Event {
	return []Event{{Node: on, Type: corev1.EventTypeNormal, Reason: reason, Message: node.Truncate(message, 900)}}
}

func warningEvent(on, reason, message string) []Event {
	return []Event{{Node: on, Type: corev1.EventTypeWarning, Reason: reason, Message: node.Truncate(message, 900)}}
}

// Events are the events of actions that were carried out, and of what Status changed.
func Events(c *nodeop.Compiled, done []rollout.Action, before, status v1alpha1.NodeOpStatus) []Event {
	var out []Event
	for _, a := range done {
		if a.Rollout == c.Rollout.Ref {
			out = append(out, actionEvents(c, a)...)
		}
	}
	if before.Phase == status.Phase {
		return out
	}

	summary := summarize(status.Counters)
	switch status.Phase {
	case v1alpha1.PhaseRunning:
		if before.Phase == "" || before.Phase == v1alpha1.PhasePending {
			out = append(out, quorumEvents(c)...)
		}
	case v1alpha1.PhaseCompleted:
		out = append(out, Event{Type: corev1.EventTypeNormal, Reason: eventFinished, Message: summary})
	case v1alpha1.PhaseFailed:
		out = append(out, Event{Type: corev1.EventTypeWarning, Reason: eventFailed, Message: joinTexts(summary, firstFailure(&status))})
	}
	return out
}

func actionEvents(c *nodeop.Compiled, a rollout.Action) []Event {
	name := c.Rollout.Ref.Title()
	isCommand := a.Task == nodeop.TaskCommand
	switch {
	case a.Verb == rollout.VerbAdmit:
		return normalEvent(a.Node, eventStarted, name+" begins to work on node "+a.Node)
	case a.Verb == rollout.VerbRun && isCommand && len(c.LeftPods[a.Node]) > 0:
		return warningEvent(a.Node, eventPodsLeft, "drainOptions.force is false, so pods that nothing recreates stay on node "+a.Node+": "+ListNames(c.LeftPods[a.Node]))
	case a.Verb == rollout.VerbRecord && isCommand && a.State == rollout.StateDone && c.Operation.RebootsAtOnce():
		return normalEvent(a.Node, eventReboot, name+": the command ended well, node "+a.Node+" reboots")
	case a.Verb == rollout.VerbJoin:
		return normalEvent(a.Node, eventReboot, name+" is ready for the reboot of node "+a.Node+", which others may share")
	case a.Verb == rollout.VerbRun && a.Task == nodeop.TaskReboot && c.Operation.SharesReboot():
		return normalEvent(a.Node, eventReboot, name+": node "+a.Node+" reboots")
	case a.Verb == rollout.VerbAsk && a.Why.Reason == rollout.ReasonHandoverTimeout:
		return warningEvent(a.Node, eventDrain, name+" "+a.Why.Text)
	case a.Verb == rollout.VerbRetire && a.Skip:
		return warningEvent(a.Node, eventFailed, name+" failed on node "+a.Node+": "+a.Why.Text)
	case a.Verb == rollout.VerbRetire:
		return normalEvent(a.Node, eventFinished, name+" is done with node "+a.Node+": "+a.Why.Text)
	}
	return nil
}

// quorumEvents warns when all control-plane nodes may be down at the same time.
func quorumEvents(c *nodeop.Compiled) []Event {
	n := 0
	for _, node := range c.Nodes {
		if node.IsControlPlane {
			n++
		}
	}
	concurrency := c.Operation.Concurrency()
	isLimited := concurrency > 0 && concurrency < n || c.SharesBudget
	if n < 2 || isLimited || !c.Operation.Reboots() {
		return nil
	}
	return warningEvent("", eventQuorum, fmt.Sprintf("all %d control plane nodes may reboot at the same time: set concurrency to 1", n))
}

// ListNames lists at most five names.
func ListNames(names []string) string {
	slices.Sort(names)
	text := strings.Join(names[:min(5, len(names))], ", ")
	if more := len(names) - 5; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
