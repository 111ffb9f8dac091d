// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// TestOtherOperator: status says why the operator does nothing while one of another namespace leads, and only then.
func TestOtherOperator(t *testing.T) {
	s := newTestCluster(t, 1)
	ctx := context.Background()
	elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "predecessor-"}}
	s.Must(s.Client.Create(ctx, elsewhere))
	newLease := func(namespace string, renewed time.Time) *coordinationv1.Lease {
		holder, seconds, at := "manager-x2x7z_0b8c", int32(15), metav1.NewMicroTime(renewed)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: options.LeaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
		}
		s.Must(s.Client.Create(ctx, lease))
		t.Cleanup(func() { s.Must(s.Client.Delete(ctx, lease)) })
		return lease
	}
	requireWarning := func(when string, want bool) {
		t.Helper()
		_, said := s.runBoth(0, "status")
		text := "the operator in namespace " + s.Namespace + " waits, because one in namespace " + elsewhere.Name + " leads (manager-x2x7z_0b8c)"
		if strings.Contains(said, text) != want {
			t.Errorf("%s status says %q; want that it says %q: %v", when, said, text, want)
		}
	}
	requireWarning("without leases", false)
	lease := newLease(elsewhere.Name, time.Now().Add(-time.Minute))
	requireWarning("with a lease that has run out", false)
	at := metav1.NowMicro()
	lease.Spec.RenewTime = &at
	s.Must(s.Client.Update(ctx, lease))
	requireWarning("with a lease elsewhere", true)
	newLease(s.Namespace, time.Now())
	requireWarning("with a leader here", false)
}
