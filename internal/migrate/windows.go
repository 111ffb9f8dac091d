// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// timeWindow is a window as kured has it: the days on which a node may be rebooted, and the times of those days from start to end, to
// the second. If start is after end, both ends of each of these days are in it.
type timeWindow struct {
	days             []string
	start, end, zone string
}

const (
	hourMinutes = 60
	dayMinutes  = 24 * hourMinutes
)

// toWindows returns the same times as windows of a DeploymentPolicy; nil when it is always open. Windows that begin at each hour have the
// same local times on days on which clocks change, and none of them crosses midnight into another day.
func (w timeWindow) toWindows() (*v1alpha1.Windows, error) {
	days, err := parseDays(w.days)
	if err != nil {
		return nil, err
	}
	from, to, err := w.minutes()
	if err != nil {
		return nil, err
	}
	if w.zone == "Local" {
		return nil, fmt.Errorf("the time zone of the node is not known")
	}
	if _, err := time.LoadLocation(w.zone); err != nil {
		return nil, fmt.Errorf("the time zone %q does not exist", w.zone)
	}
	spans := [][2]int{{from, to}}
	if from >= to {
		spans = [][2]int{{0, to}, {from, dayMinutes}}
	}
	if from == 0 && to == dayMinutes && len(days) == len(weekdays) {
		return nil, nil
	}
	out := &v1alpha1.Windows{TimeZone: cmp.Or(w.zone, "UTC")}
	for _, part := range splitHours(spans) {
		out.Open = append(out.Open, v1alpha1.Window{
			Schedule: fmt.Sprintf("%d %s * * %s", part.minute, formatCron(part.hours, dayMinutes/hourMinutes), formatCron(days, len(weekdays))),
			Duration: metav1.Duration{Duration: time.Duration(part.length) * time.Minute},
		})
	}
	return out, nil
}

// minutes returns the minutes of the day at which the window begins and ends. kured counts the second of the end as part of the window:
// 23:59:59 is the end of the day.
func (w timeWindow) minutes() (from, to int, err error) {
	start, err := parseTimeOfDay(w.start, 0)
	if err != nil {
		return 0, 0, err
	}
	end, err := parseTimeOfDay(w.end, 24*time.Hour-time.Second)
	if err != nil {
		return 0, 0, err
	}
	isSecond := start == end
	if last := end + time.Second; last%time.Minute == 0 {
		end = last
	}
	if isSecond || start%time.Minute != 0 || end%time.Minute != 0 {
		return 0, 0, fmt.Errorf("the window from %s to %s is not made of whole minutes", w.start, w.end)
	}
	return int(start / time.Minute), int(end / time.Minute), nil
}

// hourPart is a part of several hours: it begins at the same minute of each of them.
type hourPart struct {
	minute, length int
	hours          []int
}

// splitHours splits spans of a day, in minutes, into parts of at most an hour.
func splitHours(spans [][2]int) (out []hourPart) {
	for _, span := range spans {
		for from := span[0]; from < span[1]; from += hourMinutes {
			minute, length := from%hourMinutes, min(hourMinutes, span[1]-from)
			at := slices.IndexFunc(out, func(p hourPart) bool { return p.minute == minute && p.length == length })
			if at < 0 {
				at, out = len(out), append(out, hourPart{minute: minute, length: length})
			}
			out[at].hours = append(out[at].hours, from/hourMinutes)
		}
	}
	return out
}

// formatCron returns ascending numbers as a field of a cron expression: 0-4,22. All of them are *.
func formatCron(numbers []int, all int) string {
	if len(numbers) == all {
		return "*"
	}
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if last > i {
			part += "-" + strconv.Itoa(numbers[last])
		}
		parts, i = append(parts, part), last+1
	}
	return strings.Join(parts, ",")
}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

// parseDays reads names of days, and numbers from 0 for Sunday; none means every day.
func parseDays(days []string) ([]int, error) {
	out := make([]int, 0, len(weekdays))
	if len(days) == 0 {
		days = weekdays
	}
	for _, day := range days {
		d, err := parseDay(day)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parseDay(day string) (int, error) {
	text := strings.ToLower(strings.TrimSpace(day))
	for i, name := range weekdays {
		if text == strconv.Itoa(i) || len(text) >= 2 && strings.HasPrefix(name, text) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%q is not a day of the week", day)
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
