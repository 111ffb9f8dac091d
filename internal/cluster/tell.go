// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Compiled is what Snapshot made of a Skyhook; nil when it is not among the objects.
func (o *Objects) Compiled(s *v1alpha1.Skyhook) *skyhook.Compiled {
	return o.compiled[skyhook.Ref(s.Name)]
}

// Node is the node of this name; nil when there is none.
func (o *Objects) Node(name string) *skyhook.Node { return o.nodes[name] }

// TellLimit is how long a status may take to be written.
const TellLimit = 2 * time.Second

// Tell writes the status of a Skyhook when it differs from what is there, and says whether it does. The status was made
// for the version that was observed: when anybody but this Cluster wrote since, nothing is written. The ledger is kept.
// It does not wait for an answer where somebody is told of landings: until there is one, no other status of the object is
// written, and nobody is admitted by its ledger.
func (c *Cluster) Tell(ctx context.Context, s *v1alpha1.Skyhook, status v1alpha1.SkyhookStatus) (wrote bool, err error) {
	latest := c.writes.Skyhooks.Latest(s)
	status.Admission = latest.Status.Admission
	changed := latest.DeepCopy()
	status.DeepCopyInto(&changed.Status)
	return c.tell(ctx, latest, changed, latest.Status, status)
}

// TellPolicy does the same for a policy.
func (c *Cluster) TellPolicy(ctx context.Context, p *v1alpha1.DeploymentPolicy, status v1alpha1.DeploymentPolicyStatus) (wrote bool, err error) {
	latest := c.writes.Policies.Latest(p)
	status.Admission = latest.Status.Admission
	changed := latest.DeepCopy()
	status.DeepCopyInto(&changed.Status)
	return c.tell(ctx, latest, changed, latest.Status, status)
}

func (c *Cluster) tell(ctx context.Context, latest, changed client.Object, was, is any) (wrote bool, err error) {
	same, err := equal(was, is)
	if err != nil || same || !c.flights.speak(latest.GetUID()) {
		return false, err
	}
	write := func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, TellLimit)
		defer cancel()
		err := c.patchStatus(ctx, latest, changed)
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err): // somebody else wrote: look again
			return false, nil
		}
		return false, fmt.Errorf("writing the status of %s: %w", latest.GetName(), err)
	}
	if c.options.Landed == nil {
		defer c.flights.spoke(latest.GetUID(), nil)
		return write()
	}
	c.flights.senders.Go(func() {
		_, err := write()
		if ctx.Err() != nil { // nobody waits for it any more
			err = nil
		}
		c.flights.spoke(latest.GetUID(), err)
		c.options.Landed()
	})
	return true, nil
}

// equal compares statuses as they are on the wire, where times have whole seconds and what is empty is absent.
func equal(a, b any) (bool, error) {
	if equality.Semantic.DeepEqual(a, b) {
		return true, nil
	}
	rawA, err := json.Marshal(a)
	if err != nil {
		return false, fmt.Errorf("encoding a status: %w", err)
	}
	rawB, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("encoding a status: %w", err)
	}
	return bytes.Equal(rawA, rawB), nil
}
