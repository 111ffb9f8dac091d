// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// result is what was seen of one Skyhook.
type result struct {
	kind, layout, images string
	visits               []visit
}

// perNode is the mean time from the admission of a node until it is given back.
func (r result) perNode() time.Duration { return r.mean(visit.duration) }

// held is the mean time that a node is cordoned.
func (r result) held() time.Duration { return r.mean(visit.held) }

func (r result) mean(of func(visit) time.Duration) time.Duration {
	var sum time.Duration
	for _, v := range r.visits {
		sum += of(v)
	}
	return sum / time.Duration(max(1, len(r.visits)))
}

// formatTable is one Markdown table.
func formatTable(results []result) string {
	var b strings.Builder
	b.WriteString("| On each node | Pods | Images | Per node | Cordoned |\n|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s%s | %s%s |\n", titleOf(r.kind), r.layout, r.images,
			formatTime(r.perNode()), formatShare(results, r, result.perNode), formatTime(r.held()), formatShare(results, r, result.held))
	}
	return b.String()
}

func titleOf(kind string) string {
	for _, k := range kinds {
		if k.name == kind {
			return k.title
		}
	}
	return kind
}

func formatTime(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// formatShare says how long it takes in Compact, of what it takes in Compatible.
func formatShare(results []result, r result, of func(result) time.Duration) string {
	share, known := findShare(results, r, of)
	if !known {
		return ""
	}
	return fmt.Sprintf(" (%.0f %%)", 100*share)
}

func findShare(results []result, r result, of func(result) time.Duration) (share float64, known bool) {
	if r.layout != compact {
		return 0, false
	}
	for _, other := range results {
		if other.layout == compatible && other.kind == r.kind && other.images == r.images && of(other) > 0 {
			return float64(of(r)) / float64(of(other)), true
		}
	}
	return 0, false
}

// checkBounds returns an error for each bound that is exceeded: a chain without a reboot takes in Compact at most a quarter of the time, and
// a node whose service is restarted is cordoned at most half of it.
func checkBounds(results []result) error {
	var errs []error
	for _, r := range results {
		of, most := result.perNode, 0.25
		switch r.kind {
		case "chain":
		case "service":
			of, most = result.held, 0.5
		default:
			continue
		}
		if share, known := findShare(results, r, of); known && share > most {
			errs = append(errs, fmt.Errorf("%s, %s images: %s takes %.0f %% of %s, and at most %.0f %% are promised", titleOf(r.kind), r.images, compact, 100*share, compatible, 100*most))
		}
	}
	return errors.Join(errs...)
}
