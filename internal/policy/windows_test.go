// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// oracle knows for each minute whether the windows are open. It is computed from the local time of each minute, without
// calendar arithmetic.
type oracle struct {
	first time.Time
	open  []bool
	opens []int // the first open minute from here on; -1 for none
}

// localTime is the local time of a minute.
type localTime struct {
	date                         string
	minute, hour, dom, month, dw int
}

// lead is how many minutes before the first one windows may have started.
const lead = 8 * 24 * 60

// newClock is the local time of each minute, beginning before the first one.
func newClock(zone *time.Location, first time.Time, minutes int) []localTime {
	clock := make([]localTime, lead+minutes)
	for i := range clock {
		t := first.Add(time.Duration(i-lead) * time.Minute).In(zone)
		clock[i] = localTime{t.Format(time.DateOnly), t.Minute(), t.Hour(), t.Day(), int(t.Month()), int(t.Weekday())}
	}
	return clock
}

func newOracle(clock []localTime, w *v1alpha1.Windows, first time.Time) *oracle {
	minutes := len(clock) - lead
	o := &oracle{first: first, open: make([]bool, minutes), opens: make([]int, minutes+1)}
	for _, window := range w.Open {
		left, schedule := 0, parseSchedule(window.Schedule)
		for i, c := range clock {
			if schedule.matches(c) {
				left = int(window.Duration.Duration / time.Minute)
			}
			if left > 0 {
				left--
				if i >= lead {
					o.open[i-lead] = true
				}
			}
		}
	}
	o.opens[minutes] = -1
	for i := minutes - 1; i >= 0; i-- {
		for _, b := range w.Blackouts {
			to := b.To
			if to == "" {
				to = b.From
			}
			if d := clock[lead+i].date; string(b.From) <= d && d <= string(to) {
				o.open[i] = false
			}
		}
		o.opens[i] = o.opens[i+1]
		if o.open[i] {
			o.opens[i] = i
		}
	}
	return o
}

// schedule has which values each field of an expression of cron fits.
type schedule [5][60]bool

// parseSchedule reads the part of cron that these tests use: numbers, lists, ranges and steps.
func parseSchedule(expression string) (out schedule) {
	for i, field := range strings.Fields(expression) {
		for value := range out[i] {
			out[i][value] = fits(field, value)
		}
	}
	return out
}

func (s *schedule) matches(c localTime) bool {
	return s[0][c.minute] && s[1][c.hour] && s[2][c.dom] && s[3][c.month] && s[4][c.dw]
}

func fits(field string, value int) bool {
	for _, part := range strings.Split(field, ",") {
		part, step, _ := strings.Cut(part, "/")
		low, high, ranged := strings.Cut(part, "-")
		from, _ := strconv.Atoi(low)
		to := from
		switch {
		case part == "*":
			from, to = 0, 99
		case ranged:
			to, _ = strconv.Atoi(high)
		}
		by := 1
		if step != "" {
			by, _ = strconv.Atoi(step)
		}
		for v := from; v <= to; v += by {
			if v == value {
				return true
			}
		}
	}
	return false
}

// zones change their local time at two, at midnight, by half an hour, at another time in the south, or not at all.
var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata"}

func lasts(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

var calendars = map[string]v1alpha1.Windows{
	"nights": {Open: []v1alpha1.Window{
		{Schedule: "30 2 * * *", Duration: lasts(90 * time.Minute)}, {Schedule: "0 0 * * 0", Duration: lasts(time.Hour)},
		{Schedule: "15 2 * * *", Duration: lasts(30 * time.Minute)}, {Schedule: "30 22 * * 6", Duration: lasts(280 * time.Minute)},
	}},
	"long": {
		Open:      []v1alpha1.Window{{Schedule: "15 23 28 * *", Duration: lasts(100 * time.Hour)}, {Schedule: "50 23 * * *", Duration: lasts(20 * time.Minute)}},
		Blackouts: []v1alpha1.Blackout{{From: "2026-03-29"}, {From: "2026-04-05"}, {From: "2026-09-06"}},
	},
	"week": {
		Open: []v1alpha1.Window{
			{Schedule: "*/20 1-3 * 3,4,9-11 *", Duration: lasts(7 * time.Minute)},
			{Schedule: "0 * * * 0,6", Duration: lasts(time.Hour)}, {Schedule: "0 0 * * 5", Duration: lasts(time.Hour)},
		},
		Blackouts: []v1alpha1.Blackout{{From: "2026-10-24", To: "2026-11-08"}, {From: "2027-03-27"}, {From: "2027-12-31", To: "2028-06-01"}},
	},
}

// TestWindows compares calendars with the oracle in two years: in the minutes in which windows open or close, those beside them, and every
// seventh; and the next opening for some.
func TestWindows(t *testing.T) {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	days := 2 * 365
	if testing.Short() {
		days = 120
	}
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		clock := newClock(zone, first, days*24*60)
		for what, w := range calendars {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				w.TimeZone = name
				c, err := NewCalendar(&w)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, c, newOracle(clock, &w, first))
			})
		}
	}
}

// TestZonesInside: programs that read windows bring the time zones along, because no image of ours has them.
func TestZonesInside(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Errorf("time/tzdata is not compiled in: %v", err)
	}
}

func compare(t *testing.T, c *Calendar, o *oracle) {
	t.Helper()
	wrong := 0
	for i, want := range o.open {
		isEdge := want != o.open[max(i-1, 0)] || want != o.open[min(i+1, len(o.open)-1)]
		if i%7 != 0 && !isEdge {
			continue
		}
		at := o.first.Add(time.Duration(i) * time.Minute)
		if c.IsOpen(at) != want || i%(7*9) == 0 && c.IsOpen(at.Add(59*time.Second)) != want {
			t.Errorf("%s: open is %v", at.In(c.zone), !want)
			wrong++
		}
		if i%(7*14) == 0 {
			wrong += compareNext(t, c, o, i)
		}
		if wrong > 10 {
			t.FailNow()
		}
	}
}

// compareNext compares when windows open and close after a minute, and returns how often they differ.
func compareNext(t *testing.T, c *Calendar, o *oracle, i int) (wrong int) {
	t.Helper()
	at := o.first.Add(time.Duration(i) * time.Minute)
	if o.opens[i] >= 0 {
		got, _ := c.FindNextOpening(at)
		if next := o.first.Add(time.Duration(o.opens[i]) * time.Minute); !got.Equal(next) {
			t.Errorf("%s: opens %s, want %s", at.In(c.zone), got, next.In(c.zone))
			wrong++
		}
	}
	if closed := slices.Index(o.open[i:min(len(o.open), i+3*24*60)], false); closed >= 0 {
		got, _ := c.findClosing(at, at.Add(maxMargin))
		if next := at.Add(time.Duration(closed) * time.Minute); !got.Equal(next) {
			t.Errorf("%s: closes %s, want %s", at.In(c.zone), got, next.In(c.zone))
			wrong++
		}
	}
	return wrong
}

// TestInvalidCalendars checks the errors of windows that the API server cannot check.
func TestInvalidCalendars(t *testing.T) {
	always := v1alpha1.Window{Schedule: "0 * * * *", Duration: lasts(time.Hour)}
	for _, c := range []struct {
		windows v1alpha1.Windows
		want    string
	}{
		{v1alpha1.Windows{TimeZone: "Europe/Atlantis", Open: []v1alpha1.Window{always}}, `timeZone "Europe/Atlantis" is not known: use an IANA name, such as Europe/Berlin`},
		{v1alpha1.Windows{TimeZone: "Local", Open: []v1alpha1.Window{always}}, `timeZone "Local" is not known: use an IANA name, such as Europe/Berlin`},
		{v1alpha1.Windows{Open: []v1alpha1.Window{{Schedule: "61 2 * * *", Duration: lasts(time.Hour)}}}, `schedule "61 2 * * *" cannot be used: end of range (61) above maximum (59): 61`},
		{v1alpha1.Windows{Open: []v1alpha1.Window{{Schedule: "0 2 30 2 *", Duration: lasts(time.Hour)}}}, "window 1 never opens: correct its schedule, or the blackouts that cover it"},
		{v1alpha1.Windows{Open: []v1alpha1.Window{always, {Schedule: "0 2 31 4,6 *", Duration: lasts(time.Hour)}}}, "window 2 never opens: correct its schedule, or the blackouts that cover it"},
		{v1alpha1.Windows{Open: []v1alpha1.Window{always}, Blackouts: []v1alpha1.Blackout{{From: "2020-01-01", To: "2099-12-31"}}}, "window 1 never opens: correct its schedule, or the blackouts that cover it"},
		{v1alpha1.Windows{Open: []v1alpha1.Window{always}, Blackouts: []v1alpha1.Blackout{{From: "2026-02-31"}}}, `a blackout has a day that does not exist: parsing time "2026-02-31": day out of range`},
	} {
		now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		calendar, err := NewCalendar(&c.windows)
		if err == nil {
			err = calendar.CheckOpens(&c.windows, now)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.windows, err, c.want)
		}
	}
	leap := v1alpha1.Windows{Open: []v1alpha1.Window{{Schedule: "0 2 29 2 *", Duration: lasts(time.Hour)}}}
	calendar, err := NewCalendar(&leap)
	if err != nil {
		t.Fatal(err)
	}
	if err := calendar.CheckOpens(&leap, time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Errorf("29 February is in a later year: %v", err)
	}
}
