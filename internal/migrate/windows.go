// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// timeWindow is a window as kured has it: days, and a time of day from start to end, both included.
type timeWindow struct {
	days             []string
	start, end, zone string
}

var weekdays = []v1alpha1.Weekday{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}

// toWindows returns the window of a DeploymentPolicy; nil when it is always open.
func (w timeWindow) toWindows() (*v1alpha1.Windows, error) {
	days, err := parseDays(w.days)
	if err != nil {
		return nil, err
	}
	start, err := parseTimeOfDay(w.start, 0)
	if err != nil {
		return nil, err
	}
	end, err := parseTimeOfDay(w.end, 24*time.Hour-time.Second)
	if err != nil {
		return nil, err
	}
	if w.zone != "" && w.zone != "Local" {
		if _, err := time.LoadLocation(w.zone); err != nil {
			return nil, fmt.Errorf("the time zone %q does not exist", w.zone)
		}
	}
	open := v1alpha1.Window{Hours: formatHours(start, end)}
	if len(days) < len(weekdays) {
		open.Weekdays = days
	}
	if open.Hours == "" && open.Weekdays == nil {
		return nil, nil
	}
	zone := w.zone
	if zone == "" || zone == "Local" {
		zone = "UTC"
	}
	return &v1alpha1.Windows{TimeZone: zone, Open: []v1alpha1.Window{open}}, nil
}

// formatHours returns a span of time to the minute, the end rounded up; "" for the whole day.
func formatHours(start, end time.Duration) string {
	start = start.Truncate(time.Minute)
	end = (end + time.Minute - time.Nanosecond).Truncate(time.Minute)
	if start == 0 && end >= 24*time.Hour || start == end {
		return ""
	}
	return clock(start) + "-" + clock(end)
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute)
}

// parseDays reads names of days, and numbers from 0 for Sunday; none means every day.
func parseDays(days []string) ([]v1alpha1.Weekday, error) {
	if len(days) == 0 {
		return weekdays, nil
	}
	var out []v1alpha1.Weekday
	for _, day := range days {
		d, err := parseDay(day)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.Weekday) int { return slices.Index(weekdays, a) - slices.Index(weekdays, b) })
	return out, nil
}

func parseDay(day string) (v1alpha1.Weekday, error) {
	text := strings.ToLower(strings.TrimSpace(day))
	for i, d := range weekdays {
		name := strings.ToLower(string(d))
		if text == fmt.Sprint(i) || len(text) >= 2 && strings.HasPrefix(name, text) {
			return d, nil
		}
	}
	return "", fmt.Errorf("%q is not a day of the week", day)
}

// parseTimeOfDay reads a time of day in the forms that kured reads.
func parseTimeOfDay(text string, absent time.Duration) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return absent, nil
	}
	for _, layout := range []string{"15:04", "15:04:05", "03:04pm", "15", "03pm", "3pm", "3:04pm"} {
		if t, err := time.Parse(layout, strings.ToLower(text)); err == nil {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second, nil
		}
	}
	return 0, fmt.Errorf("%q is not a time of day", text)
}
