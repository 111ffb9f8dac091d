// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Bounds of a rollout of two packages without interrupts. A figure that misses its bound is bold. CPU time of a rollout has none: machines
// differ too much, so it is compared with that of another commit on one machine.
const (
	maxRSS            = 150 << 20 // with 1,000 nodes
	maxRSSLarge       = 320 << 20 // with more nodes
	maxWrites         = 17.0      // for a node
	maxObject         = 256 << 10
	maxReaction       = 250 * time.Millisecond // to the next request for the node
	maxRestShare      = 0.007                  // of a core
	maxDriftShare     = 0.012                  // of a core, with checks every six hours; what the operator does at rest included
	maxWritesPerCheck = 4.0                    // of a node for drift
)

// metricReaction is the time from the end of a pod to the next request for its node.
const metricReaction = "skyhook_request_reaction_seconds"

// printHead prints the head of a Markdown table.
func printHead(out io.Writer) {
	fmt.Fprintln(out, "| Nodes | Phase | Time | CPU | CPU per node | Peak RSS | Writes per node | Reads per node | Largest object | Deciding: p50, p99 | Reaction: p50, p99 |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
}

// printRow prints the row of a measurement.
func (r *run) printRow(out io.Writer, m measurement) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(r.row(m), " | "))
}

// row returns the cells of a measurement.
func (r *run) row(m measurement) []string {
	nodes := float64(r.nodes)
	cpu := m.after.cpu - m.before.cpu
	perNode := time.Duration(float64(cpu) / nodes)
	cpuCell, perNodeCell := fmt.Sprintf("%.1f s", cpu.Seconds()), fmt.Sprintf("%.1f ms", 1000*perNode.Seconds())
	limitRSS := int64(maxRSS)
	if r.nodes > 1000 {
		limitRSS = maxRSSLarge
	}
	maxShare := map[string]float64{phaseRest: maxRestShare, phaseDrift: maxDriftShare}[m.phase.name]
	if maxShare > 0 {
		share := float64(cpu) / float64(m.after.at.Sub(m.before.at))
		cpuCell, perNodeCell = mark(fmt.Sprintf("%.2f %% of a core", 100*share), share > maxShare), "–"
	}
	isRollout := m.phase.isRollout
	writes := sum(growthBySeries(m.before, m.after, "skyhook_api_writes_total")) / nodes
	writesCell := mark(fmt.Sprintf("%.1f", writes), isRollout && writes > maxWrites)
	if m.phase.name == phaseDrift {
		perCheck := writes * nodes / float64(max(1, m.checks))
		writesCell = mark(fmt.Sprintf("%.1f per check", perCheck), perCheck > maxWritesPerCheck)
	}
	p99, _ := quantile(m.before, m.after, metricReaction, "", 0.99)
	return []string{
		groupDigits(r.nodes), m.phase.name, m.took.Round(time.Second).String(), cpuCell, perNodeCell,
		mark(fmt.Sprintf("%d MiB", m.after.peak>>20), m.after.peak > limitRSS),
		writesCell, fmt.Sprintf("%.2f", m.countReads()/nodes),
		mark(fmt.Sprintf("%s, %.1f KiB", m.largest.kind, float64(m.largest.bytes)/1024), m.largest.bytes > maxObject),
		quantiles(m, "skyhook_loop_seconds", "decide", false), quantiles(m, metricReaction, "", r.budget > 0 && p99 > maxReaction),
	}
}

// mark makes a cell bold that misses its bound.
func mark(cell string, isMissed bool) string {
	if isMissed {
		return "**" + cell + "**"
	}
	return cell
}

// groupDigits writes a number with commas.
func groupDigits(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", groupDigits(n/1000), n%1000)
}

// countReads counts the read requests of the operator, watches included.
func (m measurement) countReads() float64 {
	out := 0.0
	for series, n := range growthBySeries(m.before, m.after, "rest_client_requests_total") {
		if strings.HasPrefix(series, "GET ") {
			out += n
		}
	}
	return out
}

// printDetails prints what the row of a measurement sums up.
func (r *run) printDetails(out io.Writer, m measurement) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  pods and Jobs at the same time\t%d\n", m.mostActive)
	fmt.Fprintf(w, "  RSS now, and of it the program itself\t%d MiB, %d MiB\n", m.after.rss>>20, m.after.file>>20)
	if m.phase.name == phaseDrift {
		fmt.Fprintf(w, "  checks\t%d\n", m.checks)
	}
	fmt.Fprintf(w, "  passes\t%d\n", countObservations(m.before, m.after, "skyhook_loop_seconds", "decide"))
	fmt.Fprintf(w, "  reaction to the creation of the next pod: p50, p99\t%s\n", quantiles(m, "skyhook_reaction_seconds", "", false))
	wall := m.after.at.Sub(m.before.at).Seconds()
	parts := growthBySeries(m.before, m.after, "skyhook_loop_seconds")
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		fmt.Fprintf(w, "  share of time: %s\t%.1f %%\n", name, 100*parts[name]/wall)
	}
	writes := growthBySeries(m.before, m.after, "skyhook_api_writes_total")
	for _, name := range slices.Sorted(maps.Keys(writes)) {
		fmt.Fprintf(w, "  writes per node: %s\t%.2f\n", name, writes[name]/float64(r.nodes))
	}
	_ = w.Flush() // stderr
}

// sum returns the sum of all series.
func sum(series map[string]float64) float64 {
	out := 0.0
	for _, v := range series {
		out += v
	}
	return out
}

// joinLabels joins the label values of a metric.
func joinLabels(m *dto.Metric) string {
	var out []string
	for _, l := range m.GetLabel() {
		out = append(out, l.GetValue())
	}
	slices.Reverse(out)
	return strings.Join(out, " ")
}

// growthBySeries returns the growth of each series of a counter, or of the sum of a histogram.
func growthBySeries(before, after *sample, name string) map[string]float64 {
	out := map[string]float64{}
	for sign, s := range map[float64]*sample{-1: before, 1: after} {
		for _, m := range s.families[name].GetMetric() {
			out[joinLabels(m)] += sign * (m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum())
		}
	}
	maps.DeleteFunc(out, func(_ string, v float64) bool { return v == 0 })
	return out
}

func roundSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// countObservations returns the number of new observations in a series of a histogram.
func countObservations(before, after *sample, name, series string) uint64 {
	var out uint64
	for _, m := range after.families[name].GetMetric() {
		if joinLabels(m) == series {
			out += m.GetHistogram().GetSampleCount()
		}
	}
	for _, m := range before.families[name].GetMetric() {
		if joinLabels(m) == series {
			out -= m.GetHistogram().GetSampleCount()
		}
	}
	return out
}

// quantiles writes the median and the 99th percentile of the new observations.
func quantiles(m measurement, name, series string, isMissed bool) string {
	if countObservations(m.before, m.after, name, series) == 0 {
		return "–"
	}
	write := func(share float64) string {
		bound, isAbove := quantile(m.before, m.after, name, series, share)
		if isAbove {
			return "> " + bound.String()
		}
		return "≤ " + bound.String()
	}
	return write(0.5) + ", " + mark(write(0.99), isMissed)
}

// quantile returns the upper bound of the bucket that contains a quantile of the new observations. It is above the last bound if
// no bucket contains it.
func quantile(before, after *sample, name, series string, share float64) (bound time.Duration, isAbove bool) {
	buckets := map[float64]int64{}
	for sign, s := range map[int64]*sample{-1: before, 1: after} {
		for _, m := range s.families[name].GetMetric() {
			if joinLabels(m) != series {
				continue
			}
			for _, b := range m.GetHistogram().GetBucket() {
				buckets[b.GetUpperBound()] += sign * int64(b.GetCumulativeCount())
			}
		}
	}
	total := float64(countObservations(before, after, name, series))
	last := 0.0
	for _, upper := range slices.Sorted(maps.Keys(buckets)) {
		if math.IsInf(upper, 1) {
			break
		}
		last = upper
		if float64(buckets[upper]) >= share*total {
			return roundSeconds(upper), false
		}
	}
	return roundSeconds(last), true
}
