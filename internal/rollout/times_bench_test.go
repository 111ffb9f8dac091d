// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
)

// BenchmarkTimes reads what 10,000 nodes recorded of three rollouts with three packages each.
func BenchmarkTimes(b *testing.B) {
	var rollouts []Rollout
	for i := range 3 {
		r := newWork(fmt.Sprint("Skyhook/", i), []string{"a|1/apply"})
		for n := range int64(10000) {
			t := &Target{Visit: Visit{LastAdmittedAt: noon, Took: noon.Sub(noon.Add(-1000e9))}}
			for p := range 3 {
				t.Visit.Runs = append(t.Visit.Runs, ranOn(fmt.Sprint(i, p, "|1"), n%97+10, n%31+5).Visit.Runs...)
			}
			r.Targets = append(r.Targets, t)
		}
		rollouts = append(rollouts, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		NewTimes(rollouts)
	}
}
