// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

const (
	mostListed    = 10 // node names in a condition
	mostMalformed = 5  // of nodes whose annotations cannot be read
	// MostReasons is how many the message of Ready has.
	MostReasons = 3
)

// AcceptedText begins the message of Accepted. What has no effect follows.
const AcceptedText = "the spec can be carried out"

// readyReasons are the reasons of the condition Ready, by status.
var readyReasons = map[v1alpha1.Status]string{
	v1alpha1.StatusComplete: v1alpha1.ReasonNodesConverged, v1alpha1.StatusInProgress: v1alpha1.ReasonProgressing,
	v1alpha1.StatusBlocked: v1alpha1.ReasonBlocked, v1alpha1.StatusErroring: v1alpha1.ReasonErroring,
	v1alpha1.StatusPaused: v1alpha1.ReasonPaused, v1alpha1.StatusWaiting: v1alpha1.ReasonWaiting,
	v1alpha1.StatusDisabled: v1alpha1.ReasonDisabled, v1alpha1.StatusUnknown: v1alpha1.ReasonUnknown,
}

// twins are the conditions that are also written under their older name with the profile Compatible.
var twins = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionTaintNotTolerable, v1alpha1.ConditionNodesIgnored,
	v1alpha1.ConditionApplyPackage, v1alpha1.ConditionDeploymentPolicyNotFound,
}

// conditionWriter collects conditions, some of them under two names.
type conditionWriter struct {
	policy.ConditionSet
	hasTwins bool
}

func (t *conditionWriter) set(kind string, yes bool, reason, message string) {
	t.Set(kind, yes, reason, message)
	if t.hasTwins && slices.Contains(twins, kind) {
		t.Set(v1alpha1.LegacyCondition(kind), yes, reason, message)
	}
}

// setConditions fills in all conditions in a fixed order, and the verdict.
func (rep Reporter) setConditions(is *v1alpha1.SkyhookStatus, nodes []nodeStatus, groups []rollout.GroupReport) {
	isCompatible := rep.Facts.Skyhook.Spec.Profile != v1alpha1.ProfileRecommended
	t := &conditionWriter{policy.ConditionSet{Stored: rep.Stored.Conditions, Generation: rep.Facts.Skyhook.Generation, Now: rep.Facts.Now}, isCompatible}
	rep.setAccepted(t)
	complete := int(is.NodeCounts[v1alpha1.StatusComplete]) == len(nodes) && rep.Rollout.Broken == nil
	busy := is.Status == v1alpha1.StatusInProgress || is.Status == v1alpha1.StatusErroring || is.Status == v1alpha1.StatusWaiting
	message := rep.summarize(nodes, is)
	reason := readyReasons[is.Status]
	hasRolledBack := func(n nodeStatus) bool { return n.why.Reason == rollout.ReasonRolledBack }
	if is.Status == v1alpha1.StatusErroring && slices.ContainsFunc(nodes, hasRolledBack) {
		reason = v1alpha1.ReasonRolledBack
	}
	t.set(v1alpha1.ConditionProgressing, busy, reason, message)
	if rep.Rollout.Rollback.Cause != nil && !complete {
		reason = v1alpha1.ReasonRolledBack
	}
	t.set(v1alpha1.ConditionReady, complete, reason, message)
	if isCompatible {
		rep.setTransition(t, is, complete, message)
	}
	rep.setNodeConditions(t, nodes)
	rep.setDrain(t, nodes)
	rep.setApplyPackage(t, is.NodeCounts[v1alpha1.StatusInProgress] > 0)
	rep.setImagesPinned(t, is.Internal.ImagePins)
	rep.setDrifted(t)
	rep.setUnlimited(t)
	rep.setUninstall(t, nodes)
	s := policy.Standing{Refused: rep.Rollout.Broken, Nodes: judgeable(nodes), Other: rollout.Why{Reason: rollout.Reason(reason), Text: is.CompleteNodes + " nodes complete"}}
	switch {
	case complete:
		s.Ready = &s.Other
	case rep.Rollout.Paused: // or disabled
		s.Held = &s.Other
	}
	for _, g := range groups {
		if g.Memory.Stopped && rep.usesGroup(g.Group) {
			reason, text := rep.describeStopped(g, nodes)
			s.Failed = &rollout.Why{Reason: rollout.Reason(reason), Text: text}
			t.set(v1alpha1.ConditionRolloutStopped, true, reason, text)
			break
		}
	}
	s.Deleting = rep.setDeletion(t, nodes)
	verdict := s.Judge()
	verdict.SetConditions(t.set)
	is.Outcome, is.Conditions = verdict.Outcome, t.Conditions
}

// judgeable returns the nodes as the verdict about the Skyhook needs them.
func judgeable(nodes []nodeStatus) iter.Seq[rollout.Verdict] {
	return func(yield func(rollout.Verdict) bool) {
		for _, n := range nodes {
			v := rollout.Verdict{Node: n.name, Phase: n.phase, Why: *n.why}
			if n.status == v1alpha1.StatusBlocked { // also when what remains of a dependency keeps it from being complete
				v.Phase = rollout.PhaseBlocked
			}
			if !yield(v) {
				return
			}
		}
	}
}

func (rep Reporter) setAccepted(t *conditionWriter) {
	isPolicyMissing := slices.ContainsFunc(rep.Problems, func(p plan.Problem) bool { return p.Reason == rollout.ReasonPolicyMissing })
	if isPolicyMissing {
		t.set(v1alpha1.ConditionDeploymentPolicyNotFound, true, v1alpha1.ConditionDeploymentPolicyNotFound,
			policy.DescribeMissing(plan.PolicyName(rep.Facts.Skyhook, rep.Facts.Config)))
	}
	var wrong, minor []string
	reason := v1alpha1.ReasonInvalidSpec
	for _, p := range rep.Problems {
		if p.IsCondition {
			continue
		}
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
		t.set(v1alpha1.ConditionAccepted, false, reason, strings.Join(wrong, "; "))
		return
	}
	t.set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, strings.Join(append([]string{AcceptedText}, minor...), "; "))
}

// summarize returns the message of Ready: the number of complete nodes, the others, and the most urgent reasons.
func (rep Reporter) summarize(nodes []nodeStatus, is *v1alpha1.SkyhookStatus) string {
	parts := []string{is.CompleteNodes + " nodes complete"}
	for _, b := range []struct {
		status v1alpha1.Status
		words  string
	}{
		{v1alpha1.StatusInProgress, "in progress"}, {v1alpha1.StatusBlocked, "blocked"}, {v1alpha1.StatusErroring, "erroring"},
		{v1alpha1.StatusWaiting, "waiting"}, {v1alpha1.StatusPaused, "paused"}, {v1alpha1.StatusDisabled, "disabled"}, {v1alpha1.StatusUnknown, "unknown"},
	} {
		if names := nodesWithStatus(nodes, b.status); len(names) > 0 {
			parts = append(parts, b.words+": "+formatNames(names))
		}
	}
	text := strings.Join(parts, ", ")
	if is.Rollback != nil {
		text += "; " + rep.describeRollback(is.Rollback)
	}
	if rep.Rollout.Broken != nil {
		text += "; " + rep.Rollout.Broken.Text
	} else {
		text += rep.listReasons(nodes)
	}
	if edited := rep.EditedNodes(); edited > 0 {
		text += fmt.Sprintf("; on %s the image, env or resources of a finished package changed: that runs nothing until its next install or upgrade, or a rerun", countOf(edited, "node"))
	}
	return text
}

// EditedNodes counts the nodes on which an edit of a finished package runs nothing.
func (rep Reporter) EditedNodes() int {
	n := 0
	for _, t := range rep.Targets {
		if t.Edited > 0 {
			n++
		}
	}
	return n
}

// listReasons lists each reason why nodes are not complete or do not count yet, with the first node that has it, worst
// first.
func (rep Reporter) listReasons(nodes []nodeStatus) string {
	first, counts := map[rollout.Reason]nodeStatus{}, map[rollout.Reason]int{}
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
	if at := slices.Index(order, rollout.ReasonApproval); at >= MostReasons { // a person is waited for: that is never left out
		order = slices.Insert(slices.Delete(order, at, at+1), MostReasons-1, rollout.ReasonApproval)
	}
	text := ""
	for i, r := range order {
		if i == MostReasons {
			return text + fmt.Sprintf("; and %d more reasons", len(order)-i)
		}
		text += "; " + first[r].name
		if counts[r] > 1 {
			text += fmt.Sprintf(" and %d more", counts[r]-1)
		}
		text += ": " + node.Truncate(rollout.Verdict{Node: first[r].name, Why: *first[r].why}.Sentence(rep.Facts.Skyhook.Name), 500)
	}
	return text
}

// setTransition sets the condition with the last change of status.
func (rep Reporter) setTransition(t *conditionWriter, is *v1alpha1.SkyhookStatus, complete bool, message string) {
	was := rep.Stored.Status
	old := meta.FindStatusCondition(t.Stored, v1alpha1.ConditionTransition)
	switch {
	case was != "" && was != is.Status:
		message = fmt.Sprintf("Transitioned [%s] -> [%s]", was, is.Status)
	case old != nil && old.Reason == string(is.Status) && strings.HasPrefix(old.Message, "Transitioned"):
		message = old.Message
	}
	t.set(v1alpha1.ConditionTransition, complete, string(is.Status), message)
}

func (rep Reporter) setNodeConditions(t *conditionWriter, nodes []nodeStatus) {
	byReason := map[rollout.Reason][]string{}
	for _, n := range nodes {
		if b := rep.Rollout.Targets[n.index].Blocked; b != nil {
			byReason[b.Reason] = append(byReason[b.Reason], n.name)
		}
	}
	tell := func(kind string, names []string, words, reason, none string) {
		slices.Sort(names)
		if len(names) == 0 {
			t.set(kind, false, reason, none)
			return
		}
		t.set(kind, true, kind, words+": "+formatNames(names))
	}
	tell(v1alpha1.ConditionTaintNotTolerable, byReason[rollout.ReasonTaintNotTolerated], "taints are not tolerated on", v1alpha1.ReasonTaintsTolerated, "every taint is tolerated")
	tell(v1alpha1.ConditionNodesIgnored, byReason[rollout.ReasonIgnored], "the label "+v1alpha1.LabelIgnore+" excludes", v1alpha1.ReasonNoneIgnored, "no node is excluded")
	if names := byReason[rollout.ReasonStateUnreadable]; len(names) > 0 {
		slices.Sort(names)
		var list []string
		for _, name := range names[:min(len(names), mostMalformed)] {
			list = append(list, clipName(name))
		}
		t.set(v1alpha1.ConditionNodeStateMalformed, true, v1alpha1.ReasonParseError,
			fmt.Sprintf("nodeState annotation cannot be parsed on %d node(s): %s; %s", len(names), strings.Join(list, ", "), rep.Target(names[0]).On.Problem))
	}
	var stuck []string
	var why string
	for _, n := range nodes {
		if n.target.Stuck != nil {
			stuck, why = append(stuck, n.name), n.target.Stuck.Text
		}
	}
	if len(stuck) > 0 {
		slices.Sort(stuck)
		t.set(v1alpha1.ConditionBlocked, true, v1alpha1.ReasonDependencyUninstalled, why+"; on "+formatNames(stuck))
	}
}

// setApplyPackage names the pod that started last, until another one starts or no node is in progress.
func (rep Reporter) setApplyPackage(t *conditionWriter, isInProgress bool) {
	var last *podstate.Pod
	var where string
	for _, on := range rep.Targets {
		for _, p := range on.Pods.Work {
			if p.Tag.Name != "" && (last == nil || p.Created.After(last.Created)) {
				last, where = p, on.Node.Name
			}
		}
	}
	switch old := meta.FindStatusCondition(t.Stored, v1alpha1.ConditionApplyPackage); {
	case last != nil:
		t.set(v1alpha1.ConditionApplyPackage, true, v1alpha1.ConditionApplyPackage,
			fmt.Sprintf("package %s %s, stage %s, on node %s", last.Tag.Name, last.Tag.Version, last.Tag.Stage, where))
	case old != nil && isInProgress:
		t.set(v1alpha1.ConditionApplyPackage, old.Status == metav1.ConditionTrue, old.Reason, old.Message)
	case old != nil:
		t.set(v1alpha1.ConditionApplyPackage, false, v1alpha1.ReasonNoStageRuns, "no stage runs on any node")
	}
}

func (rep Reporter) setUninstall(t *conditionWriter, nodes []nodeStatus) {
	var going, failing []string
	why := ""
	for _, n := range nodes {
		var runs, fails bool
		for _, task := range rep.Rollout.Targets[n.index].Tasks {
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
		t.set(v1alpha1.ConditionUninstallInProgress, true, v1alpha1.ReasonUninstallInProgress, "packages are to be uninstalled on "+formatNames(going))
	}
	if len(failing) > 0 {
		text := "uninstall fails on " + formatNames(failing)
		if why != "" {
			text += "; " + node.Truncate(why, 500)
		}
		t.set(v1alpha1.ConditionUninstallFailed, true, v1alpha1.ReasonUninstallPodFailing, text)
	}
}

// usesGroup reports whether targets of this Skyhook are in the group.
func (rep Reporter) usesGroup(group rollout.GroupRef) bool {
	return slices.ContainsFunc(rep.Groups, func(g rollout.Group) bool { return g.Ref == group })
}

func formatBatches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

// describeStopped describes the failures, or the health gate, that stopped a group.
func (rep Reporter) describeStopped(g rollout.GroupReport, nodes []nodeStatus) (reason, text string) {
	if gate := g.Memory.StoppedBy; gate != "" {
		return v1alpha1.ReasonHealthGate, g.Group.Name() + ": " + policy.DescribeGateStop(gate)
	}
	text = fmt.Sprintf("%s: %s failed in a row, and no further batch starts", g.Group.Name(), formatBatches(g.Memory.ConsecutiveFailures))
	var first []string
	for _, n := range nodes {
		if n.status == v1alpha1.StatusErroring && rep.Rollout.Targets[n.index].Group == g.Group && len(first) < 3 {
			first = append(first, n.name+": "+node.Truncate(n.why.Text, 300))
		}
	}
	if len(first) > 0 {
		text += "; " + strings.Join(first, "; ")
	}
	return v1alpha1.ReasonFailureThreshold, text
}
