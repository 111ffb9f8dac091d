// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
	out.ByPriority = d.Order == v1alpha1.DrainByPriority
}

// ParsePodSelector parses a selector of pods of either API group, of which messages name the field; nil for one that is absent or empty.
func ParsePodSelector[T interface{ Kubernetes() *metav1.LabelSelector }](field string, l *T) (labels.Selector, error) {
	if l == nil {
		return nil, nil
	}
	plain := (*l).Kubernetes()
	if len(plain.MatchLabels)+len(plain.MatchExpressions) == 0 {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(plain)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", field, err)
	}
	return selector, nil
}
