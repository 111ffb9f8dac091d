// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// DrainSelectors are the selectors of pods in the drain options; nil for one that is absent or empty.
type DrainSelectors struct {
	Protected labels.Selector // pods that are waited for
	Only      labels.Selector // pods that have to leave
}

// ParseDrainSelectors parses the selectors of pods in the drain options, which may be nil.
func ParseDrainSelectors(d *v1alpha1.DrainOptions) (out DrainSelectors, err error) {
	if d == nil {
		return out, nil
	}
	if out.Protected, err = policy.ParsePodSelector("drainOptions.podNonInterruptLabels", d.PodNonInterruptLabels); err != nil {
		return DrainSelectors{}, err
	}
	if out.Only, err = policy.ParsePodSelector("drainOptions.podSelector", d.PodSelector); err != nil {
		return DrainSelectors{}, err
	}
	return out, nil
}

// TranslateDrain translates the drain options. With a timeout the node is skipped after it, unless onTimeout says otherwise.
func TranslateDrain(d *v1alpha1.DrainOptions) rollout.Drain {
	out := rollout.Drain{OnTimeout: rollout.DrainWait}
	if d == nil {
		return out
	}
	if d.TimeoutSeconds != nil && *d.TimeoutSeconds > 0 {
		out.Timeout, out.OnTimeout = time.Duration(*d.TimeoutSeconds)*time.Second, rollout.DrainSkip
		if d.OnTimeout != "" {
			out.OnTimeout = rollout.DrainTimeout(d.OnTimeout)
		}
	}
	if IsTrue(d.Enabled) {
		out.Delete = IsTrue(d.DisableEviction)
		policy.AddPodOptions(&out, &d.DrainPodOptions)
	}
	if d.LoadBalancerDelaySeconds != nil {
		out.LoadBalancerDelay = time.Duration(*d.LoadBalancerDelaySeconds) * time.Second
	}
	return out
}

// GracePeriod is the grace period of evictions; nil for that of each pod.
func GracePeriod(d *v1alpha1.DrainOptions) *int64 {
	if d == nil || d.GracePeriodSeconds == nil || *d.GracePeriodSeconds < 0 {
		return nil
	}
	return new(int64(*d.GracePeriodSeconds))
}
