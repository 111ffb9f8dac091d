// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// mostUnlimited is how many nodes a Skyhook without a budget may interrupt at the same time before it is warned of.
const mostUnlimited = 10

// interruptingPackages names the packages of a Skyhook that may interrupt workloads, sorted.
func interruptingPackages(s *v1alpha1.Skyhook) []string {
	return slices.DeleteFunc(sortedNames(s.Spec.Packages), func(name string) bool {
		p := s.Spec.Packages[name]
		return p.Interrupt == nil && len(p.ConfigInterrupts) == 0
	})
}

// hasBudget reports whether a budget or a policy limits how many nodes are in progress at the same time. A budget of 100 percent
// that somebody wrote is one.
func (f *facts) hasBudget() bool {
	b := f.Skyhook.Spec.InterruptionBudget
	return b.Percent != nil || b.Count != nil || f.policyName() != ""
}

// warnUnlimited adds a problem if the packages interrupt more than mostUnlimited nodes without a budget. That is carried out as the
// spec says.
func (c *Compiled) warnUnlimited(selected int) {
	names := interruptingPackages(c.facts.Skyhook)
	if len(names) == 0 || c.facts.hasBudget() || selected <= mostUnlimited || c.facts.Deleting {
		return
	}
	c.unlimited = fmt.Sprintf("nothing limits how many of the %d selected nodes %s interrupts at the same time: "+
		"set interruptionBudget or deploymentPolicy, or interruptionBudget.percent: 100 if that is meant", selected, formatPackages(names))
	c.Problems = append(c.Problems, Problem{Reason: rollout.ReasonBudget, Field: "interruptionBudget", Text: c.unlimited, IsCondition: true})
}

func formatPackages(names []string) string {
	if len(names) == 1 {
		return "package " + names[0]
	}
	return fmt.Sprintf("one of %d packages, such as %s,", len(names), names[0])
}

// UnlimitedWarning says that a Skyhook has packages that interrupt nodes, and no budget of its own; empty if that is not so. It is for
// those who do not know how many nodes there are.
func UnlimitedWarning(s *v1alpha1.Skyhook) string {
	f := &facts{Skyhook: s}
	names := interruptingPackages(s)
	if len(names) == 0 || f.hasBudget() {
		return ""
	}
	return fmt.Sprintf("%s interrupts all selected nodes at the same time, unless the operator has a default policy: "+
		"set interruptionBudget or deploymentPolicy if there can be more than %d", formatPackages(names), mostUnlimited)
}

// setUnlimited reports packages that interrupt many nodes without a budget.
func (rep reporter) setUnlimited(t *conditionWriter) {
	if rep.unlimited != "" {
		t.set(v1alpha1.ConditionUnlimited, true, v1alpha1.ReasonNoBudget, rep.unlimited)
	}
}

// unlimitedEvents returns an event when the packages newly interrupt many nodes without a budget.
func unlimitedEvents(was, is v1alpha1.SkyhookStatus) []Event {
	now := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionUnlimited)
	if now == nil || meta.FindStatusCondition(was.Conditions, v1alpha1.ConditionUnlimited) != nil {
		return nil
	}
	return []Event{{OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: v1alpha1.ConditionUnlimited, Message: node.Truncate(now.Message, 1000)}}
}
