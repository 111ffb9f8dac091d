// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// probeForKairos is request.object of a probe.
const probeForKairos = "probe for Kairos"

// probeKairos creates and deletes the pods that find out which nodes run Kairos. What they found is written to the nodes
// with their other work.
func (p *pass) probeKairos(ctx context.Context) kairos.Probes {
	probes := kairos.PlanProbes(p.objects.Nodes, p.objects.NodeOpPods, p.objects.opConfig, p.now)
	p.inFlight.retry(probes.RetryAt)
	for _, pod := range probes.Delete {
		if _, err := p.try(request{node: pod.Spec.NodeName, object: probeForKairos}, func() error { return p.deleteOpPod(ctx, pod) }); err != nil {
			p.inFlight.recordError(rollout.Ref{}, err)
		}
	}
	for _, pod := range probes.Create {
		var err error
		isCreated, _ := p.try(request{object: probeForKairos}, func() error {
			err = p.options.Client.Create(ctx, pod)
			return err
		})
		switch {
		case isCreated:
			p.writes.OpPods.PutCreated(StripNodeOpPod(pod))
		case apierrors.IsAlreadyExists(err): // the cache does not show it yet
			p.inFlight.retry(p.now.Add(time.Second))
		case err != nil:
			p.inFlight.recordError(rollout.Ref{}, fmt.Errorf("creating pod %s, which probes node %s for Kairos: %w", pod.Name, pod.Spec.NodeName, err))
			return probes // the others would fail in the same way
		default: // one was refused a moment ago
			return probes
		}
	}
	return probes
}
