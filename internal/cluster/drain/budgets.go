// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// FindForbidden returns which pods may not be evicted now, by UID, with the disruption budget that allows no disruption.
func FindForbidden(budgets []policyv1.PodDisruptionBudget, pods map[string][]*corev1.Pod) map[types.UID]string {
	out := map[types.UID]string{}
	for i := range budgets {
		budget := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || budget.Status.DisruptionsAllowed > 0 {
			continue
		}
		for _, onNode := range pods {
			for _, p := range onNode {
				if p.Namespace == budget.Namespace && selector.Matches(labels.Set(p.Labels)) {
					out[p.UID] = "PodDisruptionBudget " + budget.Namespace + "/" + budget.Name
				}
			}
		}
	}
	return out
}
