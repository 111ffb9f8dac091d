// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"
)

// TestTimesInTheFutureAreLimited replaces each recorded time that is later than the clock, and leaves the parsed record as it is.
func TestTimesInTheFutureAreLimited(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const future = `"2099-01-01T00:00:00Z"`
	skyhook, err := ParseSkyhookRecord(`{"node":"n","at":` + future + `,"finishedAt":` + future + `,"proving":` + future + `,"held":{"at":` + future + `},"packages":{"a|1":{"at":"apply/erroring","failedAt":` + future + `}}}`)
	if err != nil {
		t.Fatal(err)
	}
	nodeOp, err := ParseNodeOpRecord(`{"at":` + future + `,"proving":` + future + `,"held":{"at":` + future + `},"preflight":{"state":"done","at":` + future +
		`},"command":{"state":"done","at":` + future + `},"reboot":{"state":"done","at":` + future + `},"result":{"at":` + future + `}}`)
	if err != nil {
		t.Fatal(err)
	}
	limitedSkyhook, isChanged := skyhook.LimitTimes(now)
	limitedOp, isOpChanged := nodeOp.LimitTimes(now)
	if !isChanged || !isOpChanged {
		t.Errorf("changed: %v, %v", isChanged, isOpChanged)
	}
	count := 0
	for name, each := range map[string]func(func(*time.Time)){"Skyhook": limitedSkyhook.eachTime, "NodeOp": limitedOp.eachTime} {
		each(func(at *time.Time) {
			if count++; !at.Equal(now) {
				t.Errorf("a time of the record of the %s is %s", name, at)
			}
		})
	}
	for _, each := range []func(func(*time.Time)){skyhook.eachTime, nodeOp.eachTime} {
		each(func(at *time.Time) {
			if at.Year() != 2099 {
				t.Errorf("the parsed record was changed: %s", at)
			}
		})
	}
	if count != 12 {
		t.Errorf("%d times were limited, want 12", count)
	}
	later := now.Add(maxClockSkew)
	if _, isChanged := (SkyhookRecord{Visit: Visit{At: &later}}).LimitTimes(now); isChanged {
		t.Error("a time that is later by the skew of clocks is not kept")
	}
}
