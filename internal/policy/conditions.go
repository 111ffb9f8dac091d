// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxMessage is the most bytes of the message of a condition.
const maxMessage = 2000

// ConditionSet collects the conditions of an object. Stored conditions that are not set again are removed.
type ConditionSet struct {
	Stored     []metav1.Condition
	Conditions []metav1.Condition
	Generation int64
	Now        time.Time
}

// Set sets a condition. Its transition time changes only with its status.
func (s *ConditionSet) Set(kind string, holds bool, reason, message string) {
	if stored := meta.FindStatusCondition(s.Stored, kind); stored != nil && meta.FindStatusCondition(s.Conditions, kind) == nil {
		s.Conditions = append(s.Conditions, *stored)
	}
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: rollout.Truncate(message, maxMessage),
		ObservedGeneration: s.Generation, LastTransitionTime: metav1.NewTime(s.Now.UTC().Truncate(time.Second)),
	})
}
