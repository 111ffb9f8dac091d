// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"
)

// FormatDuration formats a duration with at most two units, such as 1h5m.
func FormatDuration(d time.Duration) string {
	d = d.Round(time.Second)
	day := 24 * time.Hour
	switch {
	case d < 0:
		return "-" + FormatDuration(-d)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return formatUnits(d/time.Minute, "m", d%time.Minute/time.Second, "s")
	case d < day:
		return formatUnits(d/time.Hour, "h", d%time.Hour/time.Minute, "m")
	}
	return formatUnits(d/day, "d", d%day/time.Hour, "h")
}

func formatUnits(large time.Duration, largeUnit string, small time.Duration, smallUnit string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", large, largeUnit)
	}
	return fmt.Sprintf("%d%s%d%s", large, largeUnit, small, smallUnit)
}

// FormatEstimate rounds an estimate to its precision: ten minutes beyond an hour, otherwise a minute.
func FormatEstimate(d time.Duration) string {
	if d > time.Hour {
		return FormatDuration(d.Round(10 * time.Minute))
	}
	return FormatDuration(max(d.Round(time.Minute), time.Minute))
}
