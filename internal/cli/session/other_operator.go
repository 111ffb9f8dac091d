// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// startFindingOtherLeader finds, in the background, the operator of another namespace that leads, so that the one of this namespace
// waits. The function it returns gives its lease; nil without one. Whoever may not list leases is told of none.
func startFindingOtherLeader(ctx context.Context, c client.Reader, namespace string) func() *coordinationv1.Lease {
	found := make(chan *coordinationv1.Lease, 1)
	go func() {
		leases := &coordinationv1.LeaseList{}
		if c.List(ctx, leases, client.MatchingFields{"metadata.name": options.LeaseName}) != nil {
			found <- nil
			return
		}
		found <- findOtherLeader(leases.Items, namespace, time.Now())
	}()
	return func() *coordinationv1.Lease { return <-found }
}

// findOtherLeader returns the lease of another namespace that is held while that of the namespace is not; nil without one.
func findOtherLeader(leases []coordinationv1.Lease, namespace string, now time.Time) *coordinationv1.Lease {
	var other *coordinationv1.Lease
	for i := range leases {
		l := &leases[i]
		if !isHeld(l, now) {
			continue
		}
		if l.Namespace == namespace {
			return nil
		}
		if other == nil {
			other = l
		}
	}
	return other
}

// isHeld reports whether a lease has a holder that renewed it lately. The clocks of nodes differ, so twice its term counts.
func isHeld(l *coordinationv1.Lease, now time.Time) bool {
	return ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil && l.Spec.RenewTime.Add(2*options.LeaseTerm(l.Spec)).After(now)
}
