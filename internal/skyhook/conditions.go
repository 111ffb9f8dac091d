// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

const (
	mostListed    = 10 // node names in a condition
	mostMalformed = 5  // of nodes whose annotations cannot be read
	mostReasons   = 3  // in the message of Ready
)

// readyReasons are the reasons of the condition Ready, by status.
var readyReasons = map[v1alpha1.Status]string{
	v1alpha1.StatusComplete: v1alpha1.ReasonNodesConverged, v1alpha1.StatusInProgress: v1alpha1.ReasonProgressing,
	v1alpha1.StatusBlocked: v1alpha1.ReasonBlocked, v1alpha1.StatusErroring: v1alpha1.ReasonErroring,
	v1alpha1.StatusPaused: v1alpha1.ReasonPaused, v1alpha1.StatusWaiting: v1alpha1.ReasonWaiting,
	v1alpha1.StatusDisabled: v1alpha1.ReasonDisabled, v1alpha1.StatusUnknown: v1alpha1.ReasonUnknown,
}

// twins are the conditions that are written a second time under their older name.
var twins = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionTaintNotTolerable, v1alpha1.ConditionNodesIgnored,
	v1alpha1.ConditionApplyPackage, v1alpha1.ConditionDeploymentPolicyNotFound,
}

// teller collects conditions; those it is not told of are gone afterwards, but for what keep names.
type teller struct {
	c   *Compiled
	old []metav1.Condition
	new []metav1.Condition
}

func (t *teller) say(kind string, yes bool, reason, message string) {
	status := metav1.ConditionFalse
	if yes {
		status = metav1.ConditionTrue
	}
	names := []string{kind}
	if slices.Contains(twins, kind) {
		names = append(names, v1alpha1.LegacyCondition(kind))
	}
	for _, name := range names {
		if old := meta.FindStatusCondition(t.old, name); old != nil && meta.FindStatusCondition(t.new, name) == nil {
			t.new = append(t.new, *old)
		}
		meta.SetStatusCondition(&t.new, metav1.Condition{
			Type: name, Status: status, Reason: reason, Message: bounded(message, 2000),
			ObservedGeneration: t.c.in.Skyhook.Generation, LastTransitionTime: metav1.NewTime(node.WholeSeconds(t.c.in.Now)),
		})
	}
}

// conditions are all that hold, in a fixed order.
func (c *Compiled) conditions(nodes []said, is *v1alpha1.SkyhookStatus, groups []rollout.GroupReport) []metav1.Condition {
	t := &teller{c: c, old: c.in.Skyhook.Status.Conditions}
	c.sayAccepted(t)
	complete := is.NodeCounts[v1alpha1.StatusComplete] == len(nodes) && c.Rollout.Broken == nil
	busy := is.Status == v1alpha1.StatusInProgress || is.Status == v1alpha1.StatusErroring || is.Status == v1alpha1.StatusWaiting
	message := c.summary(nodes, is)
	t.say(v1alpha1.ConditionProgressing, busy, readyReasons[is.Status], message)
	t.say(v1alpha1.ConditionReady, complete, readyReasons[is.Status], message)
	c.sayTransition(t, is, complete, message)
	c.sayNodes(t, nodes)
	c.sayApply(t)
	c.sayUninstall(t, nodes)
	for _, g := range groups {
		if g.Memory.Stopped && c.uses(g.Group) {
			t.say(v1alpha1.ConditionRolloutStopped, true, v1alpha1.ReasonFailureThreshold, c.stopped(g, nodes))
			break
		}
	}
	c.sayDeletion(t, nodes)
	return t.new
}

func (c *Compiled) sayAccepted(t *teller) {
	if c.in.PolicyMissing {
		t.say(v1alpha1.ConditionDeploymentPolicyNotFound, true, v1alpha1.ConditionDeploymentPolicyNotFound,
			policy.Missing(PolicyName(c.in.Skyhook, c.in.Config)))
	}
	var wrong, minor []string
	reason := v1alpha1.ReasonInvalidSpec
	for _, p := range c.Problems {
		if !p.Refuses {
			minor = append(minor, p.Text)
			continue
		}
		if len(wrong) == 0 {
			reason = string(p.Reason)
		}
		wrong = append(wrong, p.Text)
	}
	if len(wrong) > 0 {
		t.say(v1alpha1.ConditionAccepted, false, reason, strings.Join(wrong, "; "))
		return
	}
	t.say(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, strings.Join(append([]string{"the spec can be carried out"}, minor...), "; "))
}

// summary is the message of Ready: how many are complete, who is not, and the most urgent reason.
func (c *Compiled) summary(nodes []said, is *v1alpha1.SkyhookStatus) string {
	parts := []string{is.CompleteNodes + " nodes complete"}
	for _, b := range []struct {
		status v1alpha1.Status
		words  string
	}{
		{v1alpha1.StatusInProgress, "in progress"}, {v1alpha1.StatusBlocked, "blocked"}, {v1alpha1.StatusErroring, "erroring"},
		{v1alpha1.StatusWaiting, "waiting"}, {v1alpha1.StatusPaused, "paused"}, {v1alpha1.StatusDisabled, "disabled"}, {v1alpha1.StatusUnknown, "unknown"},
	} {
		if names := namesWith(nodes, b.status); len(names) > 0 {
			parts = append(parts, b.words+": "+shown(names))
		}
	}
	text := strings.Join(parts, ", ")
	if c.Rollout.Broken != nil {
		text += "; " + c.Rollout.Broken.Text
	} else {
		text += c.reasons(nodes)
	}
	if edited := c.EditedNodes(); edited > 0 {
		text += fmt.Sprintf("; on %s the image, env or resources of a finished package changed: that runs nothing until its next install or upgrade, or a rerun", count(edited, "node"))
	}
	return text
}

// EditedNodes counts the nodes on which an edit of a finished package runs nothing.
func (c *Compiled) EditedNodes() int {
	n := 0
	for _, t := range c.targets {
		if t.edited > 0 {
			n++
		}
	}
	return n
}

// reasons tells each reason for which nodes are not complete, or do not count yet, of the first node that has it; the
// worst come first.
func (c *Compiled) reasons(nodes []said) string {
	first, counts := map[rollout.Reason]said{}, map[rollout.Reason]int{}
	var order []rollout.Reason
	for _, status := range worst {
		for _, n := range nodes {
			if r := n.why.Reason; n.status == status && n.why.Text != "" && (status != v1alpha1.StatusComplete || r == rollout.ReasonSoak || r == rollout.ReasonHealthGate) {
				if counts[r]++; counts[r] == 1 {
					first[r], order = n, append(order, r)
				}
			}
		}
	}
	text := ""
	for i, r := range order {
		if i == mostReasons {
			return text + fmt.Sprintf("; and %d more reasons", len(order)-i)
		}
		text += "; " + first[r].name
		if counts[r] > 1 {
			text += fmt.Sprintf(" and %d more", counts[r]-1)
		}
		text += ": " + bounded(rollout.Verdict{Node: first[r].name, Why: first[r].why}.Sentence(c.in.Skyhook.Name), 500)
	}
	return text
}

// sayTransition keeps the condition that tells the last change of status, for programs that read it.
func (c *Compiled) sayTransition(t *teller, is *v1alpha1.SkyhookStatus, complete bool, message string) {
	was := c.in.Skyhook.Status.Status
	old := meta.FindStatusCondition(t.old, v1alpha1.ConditionTransition)
	switch {
	case was != "" && was != is.Status:
		message = fmt.Sprintf("Transitioned [%s] -> [%s]", was, is.Status)
	case old != nil && old.Reason == string(is.Status) && strings.HasPrefix(old.Message, "Transitioned"):
		message = old.Message
	}
	t.say(v1alpha1.ConditionTransition, complete, string(is.Status), message)
}

func (c *Compiled) sayNodes(t *teller, nodes []said) {
	byReason := map[rollout.Reason][]string{}
	for _, n := range nodes {
		if b := c.Rollout.Targets[n.index].Blocked; b != nil {
			byReason[b.Reason] = append(byReason[b.Reason], n.name)
		}
	}
	tell := func(kind string, names []string, words, none string) {
		slices.Sort(names)
		if len(names) == 0 {
			t.say(kind, false, kind, none)
			return
		}
		t.say(kind, true, kind, words+": "+shown(names))
	}
	tell(v1alpha1.ConditionTaintNotTolerable, byReason[rollout.ReasonTaintNotTolerated], "taints are not tolerated on", "every taint is tolerated")
	tell(v1alpha1.ConditionNodesIgnored, byReason[rollout.ReasonIgnored], "the label "+v1alpha1.LabelIgnore+" excludes", "no node is excluded")
	if names := byReason[rollout.ReasonStateUnreadable]; len(names) > 0 {
		slices.Sort(names)
		var list []string
		for _, name := range names[:min(len(names), mostMalformed)] {
			list = append(list, clipped(name))
		}
		t.say(v1alpha1.ConditionNodeStateMalformed, true, v1alpha1.ReasonParseError,
			fmt.Sprintf("nodeState annotation cannot be parsed on %d node(s): %s; %s", len(names), strings.Join(list, ", "), c.targets[names[0]].on.Problem))
	}
	var stuck []string
	var why string
	for _, n := range nodes {
		if n.target.stuck != nil {
			stuck, why = append(stuck, n.name), n.target.stuck.Text
		}
	}
	if len(stuck) > 0 {
		slices.Sort(stuck)
		t.say(v1alpha1.ConditionBlocked, true, v1alpha1.ReasonDependencyUninstalled, why+"; on "+shown(stuck))
	}
}

// sayApply tells the pod that started last, and keeps telling it.
func (c *Compiled) sayApply(t *teller) {
	var last *seen
	var where string
	for _, node := range sortedNames(c.pods) {
		for _, p := range c.pods[node] {
			if p.tag.Name != "" && (last == nil || p.created.After(last.created)) {
				last, where = p, node
			}
		}
	}
	switch old := meta.FindStatusCondition(t.old, v1alpha1.ConditionApplyPackage); {
	case last != nil:
		t.say(v1alpha1.ConditionApplyPackage, true, v1alpha1.ConditionApplyPackage,
			fmt.Sprintf("package %s %s, stage %s, on node %s", last.tag.Name, last.tag.Version, last.tag.Stage, where))
	case old != nil:
		t.say(v1alpha1.ConditionApplyPackage, true, v1alpha1.ConditionApplyPackage, old.Message)
	}
}

func (c *Compiled) sayUninstall(t *teller, nodes []said) {
	var going, failing []string
	why := ""
	for _, n := range nodes {
		var runs, fails bool
		for _, task := range c.Rollout.Targets[n.index].Tasks {
			if !task.Uninstall {
				continue
			}
			runs = true
			if task.State == rollout.StateFailing {
				fails = true
				if why == "" && task.Why != nil {
					why = task.Label + " on " + n.name + ": " + task.Why.Text
				}
			}
		}
		if runs {
			going = append(going, n.name)
		}
		if fails {
			failing = append(failing, n.name)
		}
	}
	slices.Sort(going)
	slices.Sort(failing)
	if len(going) > 0 {
		t.say(v1alpha1.ConditionUninstallInProgress, true, v1alpha1.ReasonUninstallInProgress, "packages are to be uninstalled on "+shown(going))
	}
	if len(failing) > 0 {
		text := "uninstall fails on " + shown(failing)
		if why != "" {
			text += "; " + bounded(why, 500)
		}
		t.say(v1alpha1.ConditionUninstallFailed, true, v1alpha1.ReasonUninstallPodFailing, text)
	}
}

// uses says that the group is this Skyhook's, alone or with others.
func (c *Compiled) uses(group rollout.GroupRef) bool {
	return slices.ContainsFunc(c.Groups, func(g rollout.Group) bool { return g.Ref == group })
}

func batches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

// stopped says which failures stopped a group.
func (c *Compiled) stopped(g rollout.GroupReport, nodes []said) string {
	text := fmt.Sprintf("%s: %s failed in a row, and no further batch starts", g.Group.Compartment, batches(g.Memory.ConsecutiveFailures))
	var first []string
	for _, n := range nodes {
		if n.status == v1alpha1.StatusErroring && c.Rollout.Targets[n.index].Group == g.Group && len(first) < 3 {
			first = append(first, n.name+": "+bounded(n.why.Text, 300))
		}
	}
	if len(first) > 0 {
		text += "; " + strings.Join(first, "; ")
	}
	return text
}

func (c *Compiled) sayDeletion(t *teller, nodes []said) {
	if !c.Rollout.Deleting || c.Removed {
		return
	}
	var unreadable, others []string
	pending := false
	for _, n := range nodes {
		t := &c.Rollout.Targets[n.index]
		pending = pending || len(t.Tasks) > 0
		switch {
		case t.Blocked == nil:
		case t.Blocked.Reason == rollout.ReasonStateUnreadable:
			unreadable = append(unreadable, n.name)
		case len(t.Tasks) > 0:
			others = append(others, n.name)
		}
	}
	slices.Sort(unreadable)
	slices.Sort(others)
	blocked := func(reason, text string) { t.say(v1alpha1.ConditionDeletionBlocked, true, reason, text) }
	switch {
	case pending && c.Rollout.Yields:
		blocked(v1alpha1.ReasonDisabledWithPendingUninstall, "the Skyhook is disabled: remove the annotation "+v1alpha1.AnnotationDisable+" to let the deletion go on")
	case pending && c.Rollout.Paused:
		blocked(v1alpha1.ReasonPausedWithPendingUninstall, "the Skyhook is paused: remove the annotation "+v1alpha1.AnnotationPause+" to let the deletion go on")
	case len(unreadable) > 0:
		blocked(v1alpha1.ReasonMalformedNodeState, "annotations cannot be read on "+shown(unreadable)+": correct or delete them to let the deletion go on")
	case len(others) > 0:
		blocked(v1alpha1.ReasonBlocked, "packages are to be uninstalled and nothing may run on "+shown(others)+": remove the label or taint that forbids it, or set uninstall.enabled to false")
	}
}
