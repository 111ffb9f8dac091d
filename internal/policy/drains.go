// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// DescribeDrain returns what a status says about a drain; nil for one that does not take long.
func DescribeDrain(d rollout.Drained) *v1alpha1.DrainProgress {
	if !d.Long {
		return nil
	}
	out := &v1alpha1.DrainProgress{PodsLeft: int32(min(d.Left, 1<<30)), PodsTotal: int32(min(d.All, 1<<30))}
	if !d.Since.IsZero() {
		out.Since = metav1.NewTime(d.Since.UTC().Truncate(time.Second))
	}
	for _, p := range d.Slowest {
		pod := v1alpha1.DrainPod{Pod: p.Pod, Reason: string(p.Reason), Message: p.Text}
		if !p.Ends.IsZero() {
			pod.ExpectedEnd = &metav1.Time{Time: p.Ends.UTC().Truncate(time.Second)}
		}
		out.Slowest = append(out.Slowest, pod)
	}
	return out
}

// AddPodOptions adds the options of a drain about pods. Those that select pods are for the back end.
func AddPodOptions(out *rollout.Drain, d *v1alpha1.DrainPodOptions) {
	if d.WaitTimeout != nil {
		out.WaitTimeout = d.WaitTimeout.Duration
	}
	out.WaitFirst, out.OnWaitTimeout = d.Wait == v1alpha1.WaitBeforeCordon, rollout.DrainTimeout(d.OnWaitTimeout)
	out.ByPriority, out.FewestPods = d.Order == v1alpha1.DrainByPriority, d.NodeOrder == v1alpha1.NodeOrderFewestPods
}
