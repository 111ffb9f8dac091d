// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// setUnlimited reports packages that interrupt many nodes without a budget.
func (rep Reporter) setUnlimited(t *conditionWriter) {
	if rep.Unlimited != "" {
		t.set(v1alpha1.ConditionUnlimited, true, v1alpha1.ReasonNoBudget, rep.Unlimited)
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
