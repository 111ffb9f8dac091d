// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
)

// TestOpenSpans compares the spans with each minute of four weeks: over changes of the local time, midnight and blackouts.
func TestOpenSpans(t *testing.T) {
	for name, c := range map[string]struct {
		windows string
		from    time.Time
		spans   int
	}{
		"one minute":        {`{open: [{schedule: 7 12 * * *, duration: 1m}]}`, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), 28},
		"always":            {`{open: [{schedule: 0 * * * *, duration: 1h}]}`, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), 1},
		"nights in summer":  {`{timeZone: Europe/Berlin, open: [{schedule: "0 22 * * 1,5", duration: 7h}]}`, time.Date(2026, 3, 20, 1, 3, 0, 0, time.UTC), 8},
		"nights in winter":  {`{timeZone: Europe/Berlin, open: [{schedule: 30 1 * * *, duration: 105m}]}`, time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC), 28},
		"with a blackout":   {`{open: [{schedule: 0 * * * *, duration: 1h}], blackouts: [{from: "2026-12-24", to: "2026-12-26"}]}`, time.Date(2026, 12, 10, 0, 0, 0, 0, time.UTC), 2},
		"two that overlap":  {`{open: [{schedule: 0 20 * * *, duration: 3h}, {schedule: 0 22 * * *, duration: 3h}]}`, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), 29},
		"a schedule":        {`{open: [{schedule: 13 3 * * 6, duration: 90m}]}`, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), 4},
		"begins in between": {`{open: [{schedule: 0 10 * * *, duration: 2h}]}`, time.Date(2026, 11, 1, 11, 0, 0, 0, time.UTC), 29},
	} {
		windows := &v1alpha1.Windows{}
		if err := yaml.UnmarshalStrict([]byte(c.windows), windows); err != nil {
			t.Fatal(err)
		}
		calendar, err := policy.NewCalendar(windows)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		to := c.from.AddDate(0, 0, 28)
		spans := calendar.OpenSpans(c.from, to)
		if len(spans) != c.spans {
			t.Errorf("%s: %d spans, want %d: %v", name, len(spans), c.spans, spans)
		}
		for at := c.from; at.Before(to); at = at.Add(time.Minute) {
			isIn := false
			for _, span := range spans {
				isIn = isIn || !at.Before(span.From) && at.Before(span.To)
			}
			if isIn != calendar.IsOpen(at) {
				t.Fatalf("%s: at %s open is %v, and the spans are %v", name, at, !isIn, spans)
			}
		}
	}
}
