// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// Prefixes of the names that objects have in a plan, as in "Job check-n1-abcde".
const (
	PrefixJob = "Job "
	PrefixPod = "Pod "
)

// SplitObjectName splits the name that an object has in a plan into its name and its kind.
func SplitObjectName(object string) (name string, isJob bool) {
	if name, isJob := strings.CutPrefix(object, PrefixJob); isJob {
		return name, true
	}
	return strings.TrimPrefix(object, PrefixPod), false
}

// IsPodFinished reports whether all containers of a pod have ended.
func IsPodFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// FinalCondition returns the condition of an ended Job; nil before. Only then does no pod of it run.
func FinalCondition(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		cond := &j.Status.Conditions[i]
		isFinal := cond.Type == batchv1.JobComplete || cond.Type == batchv1.JobFailed
		if isFinal && cond.Status == corev1.ConditionTrue {
			return cond
		}
	}
	return nil
}

// IsJobKept reports whether a Job of a NodeOp is kept for its logs although a plan sweeps it.
func IsJobKept(j *batchv1.Job) bool { return FinalCondition(j) != nil }

// IsPodKept is IsJobKept for a pod.
func IsPodKept(p *corev1.Pod) bool {
	return p.Labels[v1alpha1.LabelReboot] == "true" && p.Status.Phase == corev1.PodSucceeded
}
