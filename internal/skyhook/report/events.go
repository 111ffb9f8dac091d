// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Events returns the events for applied actions and changes of the status. Events on a node report admission,
// interrupts, failures and completion; others are aggregated on the Skyhook.
func (rep Reporter) Events(done []rollout.Action, was, is v1alpha1.SkyhookStatus) []Event {
	var out []Event
	started := map[string]int{}
	for _, a := range done {
		if a.Rollout != rep.Rollout.Ref {
			continue
		}
		if e := rep.eventOf(a); e != nil {
			out = append(out, *e)
		}
		_, name, version, stage := plan.SplitTaskID(a.Task)
		if a.Verb == rollout.VerbRun && !plan.IsInterruptStage(stage) {
			started[fmt.Sprintf("stage %s of package %s %s", stage, name, version)]++
		}
	}
	for _, what := range plan.SortedNames(started) {
		out = append(out, Event{OnSkyhook: true, Type: corev1.EventTypeNormal, Reason: v1alpha1.EventApply,
			Message: "started " + what + " on " + countOf(started[what], "node")})
	}
	if was.Status != is.Status && was.Status != "" {
		out = append(out, Event{OnSkyhook: true, Type: corev1.EventTypeNormal, Reason: v1alpha1.EventState,
			Message: fmt.Sprintf("status changed from %s to %s", was.Status, is.Status)})
	}
	out = append(out, acceptanceEvents(was, is)...)
	out = append(out, ImageEvents(was, is)...)
	out = append(out, unlimitedEvents(was, is)...)
	return append(out, rep.deletionEvents(was, is)...)
}

// acceptanceEvents returns an event when an accepted spec newly has fields without effect.
func acceptanceEvents(was, is v1alpha1.SkyhookStatus) []Event {
	now, before := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionAccepted), meta.FindStatusCondition(was.Conditions, v1alpha1.ConditionAccepted)
	if now == nil || now.Status != metav1.ConditionTrue || before != nil && before.Message == now.Message {
		return nil
	}
	ignored, found := strings.CutPrefix(now.Message, AcceptedText+"; ")
	if !found {
		return nil
	}
	return []Event{{OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: v1alpha1.EventFieldIgnored, Message: node.Truncate(ignored, 1000)}}
}

func (rep Reporter) eventOf(a rollout.Action) *Event {
	name := rep.Facts.Skyhook.Name
	t := rep.Target(a.Node)
	st, _ := t.FindStep(a.Task)
	normal := func(reason, format string, args ...any) *Event {
		return &Event{Node: a.Node, Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case a.Verb == rollout.VerbAdmit:
		if a.Why.Reason == rollout.ReasonRolledBack {
			return normal(v1alpha1.EventState, "Skyhook %s goes back to what was complete on the node: %s", name, a.Why.Text)
		}
		if t != nil && t.Reapplies() {
			e := normal(v1alpha1.EventReboot, "the node booted: Skyhook %s applies its packages again", name)
			e.OnSkyhook = true
			return e
		}
		if rep.isShortVisit(a.Node) {
			return nil
		}
		return normal(v1alpha1.EventApply, "Skyhook %s begins to work on the node", name)
	case a.Verb == rollout.VerbJoin:
		return normal(v1alpha1.EventInterrupt, "Skyhook %s is ready for the reboot of the node, which others may share", name)
	case a.Verb == rollout.VerbRun && st != nil && st.IsInterrupt():
		effect := st.Payload
		for _, id := range a.Covers {
			if other, err := t.FindStep(id); err == nil {
				effect = plan.MergeInterrupts(effect, other.Payload)
			}
		}
		e := normal(v1alpha1.EventInterrupt, "Skyhook %s interrupts the node for package %s: %s", name, st.Name, describeInterrupt(effect))
		if a.Why.About != "" { // another one owes a reboot, too
			e.Message += ": " + a.Why.Text
		}
		e.OnSkyhook = true
		return e
	case a.Verb == rollout.VerbRecord && a.State == rollout.StateFailing && st != nil:
		text := a.Why.Text
		if rep.Facts.IsAnswerWrong(t, st) {
			e := normal(v1alpha1.EventPreflightWrong, "package %s %s said %s, and its check fails at stage %s: all of its work runs: %s",
				st.Name, st.Version, t.Record.Preflight[st.Key].Answer, st.Stage, text)
			e.Type, e.OnSkyhook = corev1.EventTypeWarning, true
			return e
		}
		e := normal(v1alpha1.EventState, "package %s %s fails at stage %s, attempt %d: %s", st.Name, st.Version, st.Stage, a.Attempts, text)
		e.Type = corev1.EventTypeWarning
		return e
	case a.Verb == rollout.VerbRollback:
		e := normal(v1alpha1.EventState, "Skyhook %s goes back to what was complete on the node: %s", name, a.Why.Text)
		e.Type, e.OnSkyhook = corev1.EventTypeWarning, true
		return e
	case a.Verb == rollout.VerbRetire && a.Why.Reason == rollout.ReasonRolledBack:
		return normal(v1alpha1.EventState, "Skyhook %s gives the node back: %s", name, a.Why.Text)
	case a.Verb == rollout.VerbRetire && a.Postpone:
		return normal(v1alpha1.EventDrain, "Skyhook %s gives the node back and continues there later: %s", name, a.Why.Text)
	case a.Verb == rollout.VerbRetire && a.Skip:
		e := normal(v1alpha1.EventState, "Skyhook %s gives the node back unfinished: %s", name, a.Why.Text)
		e.Type, e.OnSkyhook = corev1.EventTypeWarning, true
		return e
	case a.Verb == rollout.VerbRetire && a.Why.Reason == rollout.ReasonGiveUp:
		e := normal(v1alpha1.EventState, "Skyhook %s is deleted without %s being uninstalled: %s", name, rep.packagesLeftOn(a.Node), a.Why.Text)
		e.Type, e.OnSkyhook = corev1.EventTypeWarning, true
		return e
	case a.Verb == rollout.VerbRetire && a.Why.Reason == rollout.ReasonProofFailed:
		e := normal(v1alpha1.EventState, "Skyhook %s gives the node back unproven: %s", name, a.Why.Text)
		e.Type, e.OnSkyhook = corev1.EventTypeWarning, true
		return e
	case a.Verb == rollout.VerbNote && t != nil && len(rep.Facts.PackagesToAsk(t)) > 0:
		return rep.preflightEvent(a, t)
	case a.Verb == rollout.VerbNote:
		return rep.driftEvent(a)
	case a.Verb == rollout.VerbAsk && a.Why.Reason == rollout.ReasonHandoverTimeout:
		e := normal(v1alpha1.EventDrain, "Skyhook %s %s", name, a.Why.Text)
		e.Type, e.OnSkyhook = corev1.EventTypeWarning, true
		return e
	case a.Verb == rollout.VerbProve:
		return normal(v1alpha1.EventState, "Skyhook %s has done all work on the node; it is given back when its proof is complete", name)
	case a.Verb == rollout.VerbRetire && !a.Wipe:
		return normal(v1alpha1.EventState, "Skyhook %s is complete on the node", name)
	}
	return nil
}

// isShortVisit reports whether the pods of a node are compact and interrupt nothing: it is complete in a moment, and that is the event.
func (rep Reporter) isShortVisit(nodeName string) bool {
	t := rep.Target(nodeName)
	if t == nil || !rep.Facts.IsCompactOn(t.Node, &t.Record) {
		return false
	}
	for _, st := range t.Steps {
		if st.Effect != nil || st.IsInterrupt() {
			return false
		}
	}
	return true
}

// packagesLeftOn lists the packages that stay on a node when its uninstall is given up.
func (rep Reporter) packagesLeftOn(node string) string {
	t := rep.Target(node)
	if t == nil || len(t.On.State) == 0 {
		return "its packages"
	}
	var out []string
	for _, key := range plan.SortedNames(t.On.State) {
		out = append(out, strings.Replace(key, "|", " ", 1))
	}
	return listNames(out, 10)
}

// deletionEvents returns events about what blocks a deletion and about nodes that disappeared with packages on them.
func (rep Reporter) deletionEvents(was, is v1alpha1.SkyhookStatus) []Event {
	if !rep.Rollout.Deleting {
		return nil
	}
	var out []Event
	now, before := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionDeletionBlocked), meta.FindStatusCondition(was.Conditions, v1alpha1.ConditionDeletionBlocked)
	if now != nil && (before == nil || before.Reason != now.Reason) {
		out = append(out, Event{OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: v1alpha1.EventDeletionBlocked, Message: now.Message})
	}
	if !rep.Facts.UninstallsOnDeletion() {
		return out
	}
	for _, name := range plan.SortedNames(was.NodeState) {
		gone := !slices.ContainsFunc(rep.Nodes, func(n *node.Node) bool { return n.Name == name })
		if _, still := is.NodeState[name]; gone && !still && len(was.NodeState[name]) > 0 {
			out = append(out, Event{OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: v1alpha1.EventState,
				Message: fmt.Sprintf("node %s is gone: nothing was uninstalled there", name)})
		}
	}
	return out
}
