// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// look has nodes looked at whether they run Kairos. What was found is written by those who gather the work on nodes.
func (r *round) look(ctx context.Context) nodeop.KairosProbes {
	probes := nodeop.PlanKairosProbes(r.o.opNodes, r.o.OpPods, r.o.opConfig, r.now)
	if !probes.RetryAt.IsZero() {
		r.later(probes.RetryAt)
	}
	for _, p := range probes.Delete {
		if err := r.deleteOpPod(ctx, p); err != nil {
			r.fail(rollout.Ref{}, err)
		}
	}
	for _, p := range probes.Create {
		err := r.options.Client.Create(ctx, p)
		switch {
		case err == nil:
			r.writes.OpPods.PutCreated(StripOpPod(p))
		case apierrors.IsAlreadyExists(err): // the cache does not show it yet
			r.later(r.now.Add(time.Second))
		default:
			r.fail(rollout.Ref{}, fmt.Errorf("creating pod %s, which looks whether node %s runs Kairos: %w", p.Name, p.Spec.NodeName, err))
			return probes // the others would fail in the same way
		}
	}
	return probes
}
