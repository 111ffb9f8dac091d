// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// DriftRecord is what a node remembers of the checks whether it is still as a Skyhook left it: the annotation drift_<skyhook>.
type DriftRecord struct {
	Node      string                  `json:"node"`               // UID, as in SkyhookRecord
	Skyhook   string                  `json:"skyhook"`            // UID
	CheckedAt time.Time               `json:"checkedAt"`          // when the last check was noted
	Pod       string                  `json:"pod,omitempty"`      // that checked the node; it stays while its log shows what drifted
	Packages  map[string]PackageDrift `json:"packages,omitempty"` // by name|version; not those that are as they were left
	Repairs   map[string][]time.Time  `json:"repairs,omitempty"`  // by name of a package: within the last day
}

// PackageDrift is a package that is not as it was left, or that could not be checked.
type PackageDrift struct {
	Hash         string    `json:"hash"`                   // of the definition that is installed
	Since        time.Time `json:"since"`                  // when it was found first
	Text         string    `json:"text"`                   // what was found
	NotCheckable bool      `json:"notCheckable,omitempty"` // nothing is known about it
	Checks       []string  `json:"checks,omitempty"`       // check modes that failed
	Files        []string  `json:"files,omitempty"`        // delivered files that differ
	Repair       string    `json:"repair,omitempty"`       // the stage from which it runs again
}

// maxRepairs is how often a package is repaired on a node within repairPeriod.
const (
	maxRepairs   = 3
	repairPeriod = 24 * time.Hour
)

// ParseDriftRecord is the one reader of the annotation drift_<skyhook>.
func ParseDriftRecord(raw string) (DriftRecord, error) {
	var r DriftRecord
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return DriftRecord{}, fmt.Errorf("it is not a record: %w", err)
	}
	return r, nil
}

// String is the value of the annotation drift_<skyhook>; there is no other writer.
func (r DriftRecord) String() string { return EncodeJSON(r) }

// Effective returns the record if it is of this node and this Skyhook, with no time in the future, and otherwise an empty one. A check
// that was noted in the future does not count: if now took its place in every pass, the next check would never be due.
func (r DriftRecord) Effective(nodeUID, skyhookUID string, now time.Time) DriftRecord {
	if r.Node != nodeUID || r.Skyhook != skyhookUID {
		return DriftRecord{Node: nodeUID, Skyhook: skyhookUID}
	}
	if isInFuture(r.CheckedAt, now) {
		r.CheckedAt = time.Time{}
	}
	if !isAnyInFuture(r.eachTime, now) {
		return r
	}
	r.Repairs, r.Packages = maps.Clone(r.Repairs), maps.Clone(r.Packages)
	for name, repairs := range r.Repairs {
		r.Repairs[name] = slices.Clone(repairs)
	}
	r.eachTime(limitTo(now))
	return r
}

// IsInFuture reports whether a time of the record is later than the clock, so that what counts of it depends on the clock.
func (r DriftRecord) IsInFuture(now time.Time) bool {
	return isInFuture(r.CheckedAt, now) || isAnyInFuture(r.eachTime, now)
}

// eachTime calls a function with every time of the record but CheckedAt.
func (r DriftRecord) eachTime(do func(*time.Time)) {
	for _, repairs := range r.Repairs {
		for i := range repairs {
			do(&repairs[i])
		}
	}
	for key, found := range r.Packages {
		before := found.Since
		if do(&found.Since); !found.Since.Equal(before) {
			r.Packages[key] = found
		}
	}
}

// Drifted returns the keys of the packages that are not as they were left, sorted.
func (r DriftRecord) Drifted() (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(r.Packages)) {
		if !r.Packages[key].NotCheckable {
			keys = append(keys, key)
		}
	}
	return keys
}

// MayRepair reports whether a package may be repaired once more.
func (r DriftRecord) MayRepair(name string, now time.Time) bool {
	return len(r.recentRepairs(name, now)) < maxRepairs
}

// NoteRepair returns the repairs of the last day, with one more of a package.
func (r DriftRecord) NoteRepair(name string, now time.Time) map[string][]time.Time {
	out := r.RecentRepairs(now)
	if out == nil {
		out = map[string][]time.Time{}
	}
	out[name] = append(out[name], WholeSeconds(now))
	return out
}

// RecentRepairs returns the repairs of the last day; nil if there were none.
func (r DriftRecord) RecentRepairs(now time.Time) (out map[string][]time.Time) {
	for name := range r.Repairs {
		if recent := r.recentRepairs(name, now); len(recent) > 0 {
			if out == nil {
				out = map[string][]time.Time{}
			}
			out[name] = recent
		}
	}
	return out
}

func (r DriftRecord) recentRepairs(name string, now time.Time) (out []time.Time) {
	for _, at := range r.Repairs[name] {
		if now.Sub(at) < repairPeriod {
			out = append(out, at)
		}
	}
	return out
}
