// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// TestLeaseTerm: a lease counts for a minute at most.
func TestLeaseTerm(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{10: 10 * time.Second, 60: time.Minute, math.MaxInt32: time.Minute} {
		if got := LeaseTerm(coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(seconds)}); got != want {
			t.Errorf("a term of %d s counts for %v, want %v", seconds, got, want)
		}
	}
	if got := LeaseTerm(coordinationv1.LeaseSpec{}); got != 15*time.Second {
		t.Errorf("without a term a lease counts for %v", got)
	}
}
