// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// mostUnlimited is how many nodes a Skyhook without a budget may interrupt at the same time before it is warned of.
const mostUnlimited = 10

// interruptingPackages names the packages of a Skyhook that may interrupt workloads, sorted.
func interruptingPackages(s *v1alpha1.Skyhook) []string {
	return slices.DeleteFunc(plan.SortedNames(s.Spec.Packages), func(name string) bool {
		p := s.Spec.Packages[name]
		return p.Interrupt == nil && len(p.ConfigInterrupts) == 0
	})
}

// warnUnlimited adds a problem if the packages interrupt more than mostUnlimited nodes without a budget. That is carried out as the
// spec says.
func (c *Compiled) warnUnlimited(selected int) {
	names := interruptingPackages(c.facts.Skyhook)
	if len(names) == 0 || c.facts.HasBudget() || selected <= mostUnlimited || c.facts.Deleting {
		return
	}
	c.unlimited = fmt.Sprintf("nothing limits how many of the %d selected nodes %s interrupts at the same time: "+
		"set interruptionBudget or deploymentPolicy, or interruptionBudget.percent: 100 if that is meant", selected, formatPackages(names))
	c.Problems = append(c.Problems, plan.Problem{Reason: rollout.ReasonBudget, Field: "interruptionBudget", Text: c.unlimited, IsCondition: true})
}

func formatPackages(names []string) string {
	if len(names) == 1 {
		return "package " + names[0]
	}
	return fmt.Sprintf("one of %d packages, such as %s,", len(names), names[0])
}

// Warnings says what a person probably did not mean by a Skyhook; it is for those who see no cluster.
func Warnings(s *v1alpha1.Skyhook) (all []string) {
	if names := interruptingPackages(s); len(names) > 0 && !(&plan.Facts{Skyhook: s}).HasBudget() {
		all = append(all, fmt.Sprintf("%s interrupts all selected nodes at the same time, unless the operator has a default policy: "+
			"set interruptionBudget or deploymentPolicy if there can be more than %d", formatPackages(names), mostUnlimited))
	}
	if selector := s.Spec.NodeSelectors; len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		all = append(all, "nodeSelectors selects every node: name a label if that is not meant")
	}
	for _, name := range plan.SortedNames(s.Spec.Packages) {
		scripts := s.Spec.Packages[name].ConfigMap
		if _, isChecked := scripts["uninstall_check.sh"]; scripts["uninstall.sh"] != "" && !isChecked {
			all = append(all, "package "+name+" has uninstall.sh and no uninstall_check.sh: nothing checks what it leaves")
		}
	}
	return all
}
