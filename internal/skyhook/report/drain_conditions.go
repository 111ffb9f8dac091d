// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// drainCauses are the reasons of the condition DrainBlocked for pods that the drain options keep.
var drainCauses = map[string]string{
	rollout.KeepUnmanaged: v1alpha1.ReasonUnmanagedPod,
	rollout.KeepEmptyDir:  v1alpha1.ReasonEmptyDirData,
	rollout.KeepDaemonSet: v1alpha1.ReasonDaemonSetPod,
}

// drainCause returns why a pod cannot be evicted; empty when it can.
func drainCause(p rollout.Pod) (reason, text string) {
	switch {
	case p.Wait:
	case p.Keep != "":
		return drainCauses[p.Keep], p.Keep
	case p.Refused != "":
		return v1alpha1.ReasonPodDisruptionBudget, p.Refused
	}
	return "", ""
}

// setDrain sets the conditions about nodes whose drain cannot go on: DrainBlocked for pods that cannot be evicted, and Blocked
// for pods that are protected from interrupts, unless Blocked has another reason.
func (rep Reporter) setDrain(t *conditionWriter, nodes []nodeStatus) {
	var draining, protected, waiting []string
	var blocked, protections []string
	causes := map[string]bool{}
	for _, n := range nodes {
		target := rep.Rollout.Targets[n.index]
		if target.Drain.HeldAt.IsZero() && n.why.Reason == rollout.ReasonProtectedPod {
			waiting = append(waiting, n.name)
		}
		if target.Drain.HeldAt.IsZero() || len(target.Drain.Pods) == 0 {
			continue
		}
		draining = append(draining, n.name)
		if i := slices.IndexFunc(target.Drain.Pods, func(p rollout.Pod) bool { return p.Wait }); i >= 0 {
			protected, protections = append(protected, n.name), append(protections, target.Drain.Pods[i].Protection)
		}
		if reason, text := blockedDrain(target.Drain.Pods); reason != "" {
			causes[reason] = true
			blocked = append(blocked, n.name+" ("+text+")")
		}
	}
	if len(blocked) > 0 {
		reason := slices.Sorted(maps.Keys(causes))[0]
		if len(causes) > 1 {
			reason = v1alpha1.ReasonMultipleCauses
		}
		slices.Sort(blocked)
		text := fmt.Sprintf("%d of %s cannot be drained: %s", len(blocked), countOf(len(draining), "draining node"), strings.Join(blocked[:min(len(blocked), mostListed)], "; "))
		if more := len(blocked) - mostListed; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		t.set(v1alpha1.ConditionDrainBlocked, true, reason, text)
	}
	if text := protectedText(protected, waiting, protections); text != "" && !meta.IsStatusConditionTrue(t.Conditions, v1alpha1.ConditionBlocked) {
		t.set(v1alpha1.ConditionBlocked, true, v1alpha1.ReasonNonInterruptPodsRunning, text)
	}
}

// protectedText says on which nodes protected pods delay the drain, and on which the cordon; empty if there are none. What protects
// them is named if it is the same everywhere.
func protectedText(draining, waiting, protections []string) string {
	slices.Sort(protections)
	protections = slices.Compact(protections)
	what := "protected pods"
	switch {
	case len(protections) != 1 || protections[0] == "":
	case protections[0] == rollout.ProtectedByLabels:
		what = "pods that " + rollout.ProtectedByLabels + " protects"
	default:
		what = "pods that the annotation " + protections[0] + " protects"
	}
	slices.Sort(draining)
	slices.Sort(waiting)
	var out []string
	if len(draining) > 0 {
		out = append(out, what+" run on "+formatNames(draining)+": the drain begins when they have ended")
	}
	if len(waiting) > 0 {
		out = append(out, "protected pods run on "+formatNames(waiting)+": other nodes go first until they have ended")
	}
	return strings.Join(out, "; ")
}

// blockedDrain returns why a node cannot be drained: the reason, and the first pod with its text. It is empty when every pod can
// be evicted.
func blockedDrain(pods []rollout.Pod) (reason, text string) {
	more := 0
	for _, p := range pods {
		cause, why := drainCause(p)
		switch {
		case cause == "":
			continue
		case reason == "":
			reason, text = cause, "pod "+p.Namespace+"/"+p.Name+": "+why
			continue
		case cause != reason:
			reason = v1alpha1.ReasonMultipleCauses
		}
		more++
	}
	if more > 0 {
		text += fmt.Sprintf(", and %s more", countOf(more, "pod"))
	}
	return reason, text
}
