// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// DrainSelectors are the selectors of pods in the drain options; nil for one that is absent or empty.
type DrainSelectors struct {
	Protected labels.Selector // pods that are waited for
	Only      labels.Selector // pods that have to leave
	Skip      labels.Selector // pods that stay
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
	if out.Skip, err = policy.ParsePodSelector("drainOptions.skipSelector", d.SkipSelector); err != nil {
		return DrainSelectors{}, err
	}
	return out, nil
}

// checkDrain finds selectors of pods that cannot be used.
func (c *compiler) checkDrain() {
	if _, err := ParseDrainSelectors(c.op.spec().DrainOptions); err != nil {
		c.addProblem(rollout.ReasonInvalidSpec, node.Truncate(err.Error(), 200)+": correct the selector")
	}
}
