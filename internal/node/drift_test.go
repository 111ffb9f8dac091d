// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

var driftNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func parseDriftRecord(t *testing.T, text string) DriftRecord {
	t.Helper()
	rec, err := ParseDriftRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseDriftRecord(rec.String()); err != nil || !reflect.DeepEqual(again, rec) {
		t.Errorf("%s is read as %+v, %v", rec, again, err)
	}
	return rec
}

// TestDriftRecordIsOfOneNodeAndSkyhook: a record of another node or Skyhook of the same name says nothing.
func TestDriftRecordIsOfOneNodeAndSkyhook(t *testing.T) {
	rec := parseDriftRecord(t, `{"node":"n","skyhook":"s","checkedAt":"2026-05-01T11:00:00Z","packages":{"a|1":{"hash":"h","text":"x"}},"repairs":{"a":["2026-05-01T11:00:00Z"]}}`)
	if got := rec.Effective("n", "s", driftNow); !reflect.DeepEqual(got, rec) {
		t.Errorf("the record is %+v", got)
	}
	for _, of := range [][2]string{{"other", "s"}, {"n", "other"}} {
		if got := rec.Effective(of[0], of[1], driftNow); !reflect.DeepEqual(got, DriftRecord{Node: of[0], Skyhook: of[1]}) {
			t.Errorf("for %v the record is %+v", of, got)
		}
	}
	if _, err := ParseDriftRecord("{"); err == nil {
		t.Error("half a record can be read")
	}
}

// TestDriftRecordOfTheFuture: a check that an operator with a wrong clock noted is not waited for until that time, and repairs in the
// future are not counted for longer than a day. What is parsed stays as it is, because others share it.
func TestDriftRecordOfTheFuture(t *testing.T) {
	const text = `{"node":"n","skyhook":"s","checkedAt":"2099-01-01T00:00:00Z","packages":{"a|1":{"hash":"h","since":"2099-01-01T00:00:00Z","text":"x"}},` +
		`"repairs":{"a":["2099-01-01T00:00:00Z","2026-05-01T11:00:00Z"]}}`
	rec := parseDriftRecord(t, text)
	got := rec.Effective("n", "s", driftNow)
	if !got.CheckedAt.IsZero() || !got.Packages["a|1"].Since.Equal(driftNow) || !got.Repairs["a"][0].Equal(driftNow) || got.Repairs["a"][1].Equal(driftNow) {
		t.Errorf("the record is %+v", got)
	}
	if !reflect.DeepEqual(rec, parseDriftRecord(t, text)) {
		t.Errorf("the parsed record was changed: %+v", rec)
	}
	if kept := got.RecentRepairs(driftNow.Add(24 * time.Hour)); len(kept) > 0 {
		t.Errorf("a day later these repairs count: %v", kept)
	}
	soon := DriftRecord{Node: "n", Skyhook: "s", CheckedAt: driftNow.Add(maxClockSkew)}
	if got := soon.Effective("n", "s", driftNow); !got.CheckedAt.Equal(soon.CheckedAt) {
		t.Errorf("a check that is later by the skew of clocks is taken for one at %s", got.CheckedAt)
	}
}

// TestDriftRepairsOfADay: a package is repaired three times a day on a node; others do not count, and the oldest is forgotten.
func TestDriftRepairsOfADay(t *testing.T) {
	rec := DriftRecord{}
	for i := range 3 {
		at := driftNow.Add(time.Duration(i) * time.Hour)
		if !rec.MayRepair("a", at) {
			t.Fatalf("after %d repairs no more is allowed", i)
		}
		rec.Repairs = rec.NoteRepair("a", at)
	}
	rec.Repairs = rec.NoteRepair("b", driftNow.Add(2*time.Hour))
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{2 * time.Hour, false}, {24*time.Hour - time.Second, false}, {24 * time.Hour, true}} {
		if got := rec.MayRepair("a", driftNow.Add(c.after)); got != c.want {
			t.Errorf("after %s it may be repaired: %v", c.after, got)
		}
	}
	if !rec.MayRepair("b", driftNow.Add(2*time.Hour)) {
		t.Error("repairs of another package count")
	}
	later := driftNow.Add(25 * time.Hour)
	if got := rec.RecentRepairs(later); len(got["a"]) != 1 || len(got["b"]) != 1 {
		t.Errorf("a day later these are kept: %v", got)
	}
	if got := rec.RecentRepairs(driftNow.Add(48 * time.Hour)); got != nil {
		t.Errorf("two days later these are kept: %v", got)
	}
}

func TestDriftedPackages(t *testing.T) {
	rec := DriftRecord{Packages: map[string]PackageDrift{"b|1": {Text: "x"}, "a|1": {Text: "x"}, "c|1": {Text: "x", NotCheckable: true}}}
	if got := rec.Drifted(); !slices.Equal(got, []string{"a|1", "b|1"}) {
		t.Errorf("drifted are %v", got)
	}
}
