// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// StatusTimeout is how long a status may take to be written.
const StatusTimeout = 2 * time.Second

// statusWriter writes the statuses of the objects of our API groups.
//
// Each of its methods writes a status when it differs from what is there, and reports whether it does. The status was made for the
// version that was observed: when another client wrote since, nothing is written. The ledger and recorded digests of images are kept.
// With Options.OnComplete it does not wait for an answer: until there is one, no other status of the object is written, and
// no node is admitted by its ledger. While the ledger is being written, the last status that is made meanwhile is written afterwards.
type statusWriter struct {
	apiWriter
	inFlight *inFlight
	oldCRDs  *sync.Once
}

// UpdateSkyhookStatus writes the status of a Skyhook.
func (w statusWriter) UpdateSkyhookStatus(ctx context.Context, s *v1alpha1.Skyhook, status v1alpha1.SkyhookStatus) (wrote bool, err error) {
	return w.update(ctx, s.UID, func() statusChange {
		latest := w.writes.Skyhooks.Latest(s)
		status.Internal.Admission = latest.Status.Internal.Admission
		status.Internal.ImagePins = skyhook.KeepRecordedPins(latest.Status.Internal.ImagePins, status.Internal.ImagePins)
		return statusChange{latest: latest, answer: &v1alpha1.Skyhook{}, was: latest.Status, status: status}
	})
}

// UpdatePolicyStatus writes the status of a policy.
func (w statusWriter) UpdatePolicyStatus(ctx context.Context, p *v1alpha1.DeploymentPolicy, status v1alpha1.DeploymentPolicyStatus) (wrote bool, err error) {
	return w.update(ctx, p.UID, func() statusChange {
		latest := w.writes.Policies.Latest(p)
		status.Internal.Admission = latest.Status.Internal.Admission
		return statusChange{latest: latest, answer: &v1alpha1.DeploymentPolicy{}, was: latest.Status, status: status}
	})
}

// UpdateNodeOpStatus writes the status of a NodeOp.
func (w statusWriter) UpdateNodeOpStatus(ctx context.Context, o *opv1.NodeOp, status opv1.NodeOpStatus) (wrote bool, err error) {
	return w.update(ctx, o.UID, func() statusChange {
		latest := w.writes.NodeOps.Latest(o)
		status.Internal.Admission = latest.Status.Internal.Admission
		return statusChange{latest: latest, answer: &opv1.NodeOp{}, was: latest.Status, status: status}
	})
}

// UpdateUpgradeStatus writes the status of a NodeOpUpgrade.
func (w statusWriter) UpdateUpgradeStatus(ctx context.Context, u *opv1.NodeOpUpgrade, status opv1.NodeOpUpgradeStatus) (wrote bool, err error) {
	return w.update(ctx, u.UID, func() statusChange {
		latest := w.writes.Upgrades.Latest(u)
		return statusChange{latest: latest, answer: &opv1.NodeOpUpgrade{}, was: latest.Status, status: status}
	})
}

// statusChange is another status for an object.
type statusChange struct {
	latest      client.Object
	answer      client.Object // becomes what the API server has when it is written
	was, status any
	encoded     json.RawMessage // the status; nil if it is not encoded yet
}

// encode encodes the status, in which times have whole seconds then and empty fields are absent, and reports whether it differs.
func (c *statusChange) encode() (differs bool, err error) {
	if equality.Semantic.DeepEqual(c.was, c.status) {
		return false, nil
	}
	was, err := json.Marshal(c.was)
	encoded, encodeErr := json.Marshal(c.status)
	c.encoded = encoded
	return !bytes.Equal(was, encoded), errors.Join(err, encodeErr)
}

// update writes a status if it differs: now, or after the ledger of the object, which is being written.
func (w statusWriter) update(ctx context.Context, uid types.UID, change func() statusChange) (wrote bool, err error) {
	c := change()
	if differs, err := c.encode(); err != nil || !differs {
		return false, err
	}
	if !w.inFlight.tryBeginStatus(uid) {
		return w.inFlight.queueStatus(uid, func() { w.patchInFlight(ctx, uid, change()) }), nil
	}
	if w.options.OnComplete == nil {
		defer w.inFlight.endStatus(uid, nil)
		return w.patch(ctx, c)
	}
	w.inFlight.senders.Go(func() { w.patchInFlight(ctx, uid, c) })
	return true, nil
}

// patchInFlight writes a status that is in flight.
func (w statusWriter) patchInFlight(ctx context.Context, uid types.UID, c statusChange) {
	_, err := w.patch(ctx, c)
	if ctx.Err() != nil { // the operator stops
		err = nil
	}
	w.inFlight.endStatus(uid, err)
	w.options.OnComplete("")
}

// patch replaces the whole status, which costs less than to find out what differs, if the object still is the version that
// was observed. A conflict is no error: the next pass decides again.
func (w statusWriter) patch(ctx context.Context, c statusChange) (wrote bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, StatusTimeout)
	defer cancel()
	if c.encoded == nil { // it was made after the ledger
		if differs, err := c.encode(); err != nil || !differs {
			return false, err
		}
	}
	c.answer.SetNamespace(c.latest.GetNamespace())
	c.answer.SetName(c.latest.GetName())
	hasDropped, err := w.patchOwnerStatus(ctx, c.answer, types.JSONPatchType, []any{
		map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": c.latest.GetResourceVersion()},
		map[string]any{"op": "add", "path": "/status", "value": c.encoded},
	}, c.encoded)
	switch {
	case err == nil && hasDropped:
		w.oldCRDs.Do(func() {
			err = fmt.Errorf("the CRDs are older than the operator, and the API server drops fields of the status of %s: apply the CRDs of this version", c.latest.GetName())
		})
		return true, err
	case err == nil:
		return true, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	}
	return false, fmt.Errorf("writing the status of %s: %w", c.latest.GetName(), err)
}
