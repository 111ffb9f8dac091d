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

// table is the result: names, values, and their bounds, if there are any.
type table struct{ rows [][3]string }

func (t *table) addRow(name, value, bound string) {
	t.rows = append(t.rows, [3]string{name, value, bound})
}

// addRollout adds the cost of a rollout.
func (t *table) addRollout(r *run, f *simulation, took time.Duration, before, after *sample) {
	t.addRow("nodes, Skyhooks, packages, NodeOps", fmt.Sprintf("%d, %d, %d, %d", r.nodes, r.skyhooks, r.packages, r.nodeOps), "")
	t.addRow("budget", fmt.Sprintf("%d", r.budget), "0 is none")
	t.addRow("time to complete", took.Round(100*time.Millisecond).String(), "")
	t.addRow("pods and Jobs that ended, most at once", fmt.Sprintf("%d, %d", f.ended.Load(), f.mostActive.Load()), "")
	writes := growthBySeries(before, after, "skyhook_api_writes_total")
	total := 0.0
	for _, n := range writes {
		total += n
	}
	t.addRow("writes per node", fmt.Sprintf("%.1f", total/float64(r.nodes)), boundOf(r, "20"))
	for _, name := range slices.Sorted(maps.Keys(writes)) {
		t.addRow("  "+name, fmt.Sprintf("%.2f", writes[name]/float64(r.nodes)), "")
	}
	t.addRow("CPU seconds", fmt.Sprintf("%.1f", (after.cpu-before.cpu).Seconds()), boundOf(r, "15"))
	t.addRow("RSS now, peak, the program itself", fmt.Sprintf("%d MiB, %d MiB, %d MiB", after.rss>>20, after.peak>>20, after.file>>20), boundOf(r, "120 MiB"))
	parts := growthBySeries(before, after, "skyhook_loop_seconds")
	busy := 0.0
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		busy += parts[name]
		t.addRow("  loop: "+name, fmt.Sprintf("%.1f s", parts[name]), "")
	}
	wall := after.at.Sub(before.at).Seconds()
	t.addRow("share of time: decide", fmt.Sprintf("%.1f %%", 100*parts["decide"]/wall), "")
	t.addRow("share of time: wait for the API server", fmt.Sprintf("%.0f %%", 100*(busy-parts["decide"])/wall), "")
	t.addRow("share of time: idle", fmt.Sprintf("%.0f %%", 100*(1-busy/wall)), "")
	t.addRow("passes", fmt.Sprintf("%d", countObservations(before, after, "skyhook_loop_seconds", "decide")), "")
	t.addRow("duration of decide, p99", quantileBucket(before, after, "skyhook_loop_seconds", "decide", 0.99), "")
	t.addRow("pod's end to next create, p50", quantileBucket(before, after, "skyhook_reaction_seconds", "", 0.5), "")
	t.addRow("pod's end to next create, p99", quantileBucket(before, after, "skyhook_reaction_seconds", "", 0.99), "250ms with up to 50 in flight")
}

// boundOf returns a bound that holds for 1,000 nodes and two packages.
func boundOf(r *run, b string) string {
	if r.nodes == 1000 && r.packages == 2 && r.skyhooks == 1 && r.nodeOps == 0 {
		return "at most " + b
	}
	return ""
}

// addRest adds the cost at rest.
func (t *table) addRest(r *run, before, after *sample) {
	wall := after.at.Sub(before.at)
	t.addRow("at rest for", wall.Round(time.Second).String(), fmt.Sprintf("heartbeats every %s", r.heartbeat))
	t.addRow("at rest: share of a core", fmt.Sprintf("%.2f %%", 100*float64(after.cpu-before.cpu)/float64(wall)), "at most 0.5 %")
	total := 0.0
	for name, n := range growthBySeries(before, after, "skyhook_api_writes_total") {
		if !strings.Contains(name, "leases") {
			total += n
		}
	}
	t.addRow("at rest: writes but the lease", fmt.Sprintf("%.0f", total), "0")
	t.addRow("at rest: passes", fmt.Sprintf("%d", countObservations(before, after, "skyhook_loop_seconds", "decide")), "")
	t.addRow("at rest: RSS", fmt.Sprintf("%d MiB", after.rss>>20), "")
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r[0], r[1], r[2])
	}
	_ = w.Flush() // stdout
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

// quantileBucket returns the bucket that contains a quantile of the new observations.
func quantileBucket(before, after *sample, name, series string, share float64) string {
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
	total := int64(countObservations(before, after, name, series))
	if total == 0 {
		return "never"
	}
	last := 0.0
	for _, upper := range slices.Sorted(maps.Keys(buckets)) {
		if math.IsInf(upper, 1) {
			break
		}
		last = upper
		if float64(buckets[upper]) >= share*float64(total) {
			return fmt.Sprintf("at most %s, of %d", roundSeconds(upper), total)
		}
	}
	return fmt.Sprintf("more than %s, of %d", roundSeconds(last), total)
}
