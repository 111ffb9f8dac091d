// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// IsExpired reports whether the Jobs and pods of a finished NodeOp have been kept for ttlSecondsAfterFinished, and until when
// they are kept. The time is zero when they are kept forever.
func (c *Compiled) IsExpired() (expired bool, at metav1.Time) {
	ttl := c.op.spec().TTLSecondsAfterFinished
	if ttl == nil || !c.op.isFinished() || c.op.isDeleting() {
		return false, metav1.Time{}
	}
	finished := c.pass.status.LastUpdated
	if cond := meta.FindStatusCondition(c.pass.status.Conditions, v1alpha1.ConditionProgressing); cond != nil && !cond.LastTransitionTime.IsZero() {
		finished = cond.LastTransitionTime
	}
	at = metav1.NewTime(finished.Add(time.Duration(*ttl) * time.Second))
	return !c.pass.now.Before(at.Time), at
}

// KeepsObject reports whether an object is kept for its logs although a plan sweeps it.
func (c *Compiled) KeepsObject(object string) bool {
	for _, t := range c.order {
		for _, j := range t.objects.jobs {
			if finished, _ := jobOutcome(j); finished && kindJob+j.Name == object {
				return true
			}
		}
		for _, p := range t.objects.reboots {
			if p.Status.Phase == corev1.PodSucceeded && kindPod+p.Name == object {
				return true
			}
		}
	}
	return false
}

// SplitObjectName splits the name that an object has in a plan into its name and its kind.
func SplitObjectName(object string) (name string, job bool) {
	if name, ok := strings.CutPrefix(object, kindJob); ok {
		return name, true
	}
	return strings.TrimPrefix(object, kindPod), false
}
