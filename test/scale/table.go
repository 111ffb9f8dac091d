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

// table is what was measured: a name, a value, and the bound it should keep, if there is one.
type table struct{ rows [][3]string }

func (t *table) row(name, value, bound string) {
	t.rows = append(t.rows, [3]string{name, value, bound})
}

// rollout adds what a rollout cost.
func (t *table) rollout(r *run, f *fleet, took time.Duration, before, after *sample) {
	t.row("nodes, Skyhooks, packages, NodeOps", fmt.Sprintf("%d, %d, %d, %d", r.nodes, r.skyhooks, r.packages, r.nodeOps), "")
	t.row("budget", fmt.Sprintf("%d", r.budget), "0 is none")
	t.row("time to complete", took.Round(100*time.Millisecond).String(), "")
	t.row("pods and Jobs that ended, most at once", fmt.Sprintf("%d, %d", f.ended.Load(), f.most.Load()), "")
	writes := difference(before, after, "skyhook_api_writes_total")
	total := 0.0
	for _, n := range writes {
		total += n
	}
	t.row("writes per node", fmt.Sprintf("%.1f", total/float64(r.nodes)), bound(r, "20"))
	for _, name := range slices.Sorted(maps.Keys(writes)) {
		t.row("  "+name, fmt.Sprintf("%.2f", writes[name]/float64(r.nodes)), "")
	}
	t.row("CPU seconds", fmt.Sprintf("%.1f", (after.cpu-before.cpu).Seconds()), bound(r, "15"))
	t.row("RSS now, peak, the program itself", fmt.Sprintf("%d MiB, %d MiB, %d MiB", after.rss>>20, after.peak>>20, after.file>>20), bound(r, "120 MiB"))
	parts := difference(before, after, "skyhook_loop_seconds")
	busy := 0.0
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		busy += parts[name]
		t.row("  loop: "+name, fmt.Sprintf("%.1f s", parts[name]), "")
	}
	wall := after.at.Sub(before.at).Seconds()
	t.row("share of the time that thinks", fmt.Sprintf("%.1f %%", 100*parts["decide"]/wall), "")
	t.row("share of the time that waits for the API server", fmt.Sprintf("%.0f %%", 100*(busy-parts["decide"])/wall), "")
	t.row("share of the time that is idle", fmt.Sprintf("%.0f %%", 100*(1-busy/wall)), "")
	t.row("passes", fmt.Sprintf("%d", count(before, after, "skyhook_loop_seconds", "decide")), "")
	t.row("slowest pass to think, p99", quantile(before, after, "skyhook_loop_seconds", "decide", 0.99), "")
	t.row("pod's end to next create, p50", quantile(before, after, "skyhook_reaction_seconds", "", 0.5), "")
	t.row("pod's end to next create, p99", quantile(before, after, "skyhook_reaction_seconds", "", 0.99), "250ms with up to 50 in flight")
}

// bound is a bound that was set for 1,000 nodes and two packages.
func bound(r *run, b string) string {
	if r.nodes == 1000 && r.packages == 2 && r.skyhooks == 1 && r.nodeOps == 0 {
		return "at most " + b
	}
	return ""
}

// rest adds what doing nothing cost.
func (t *table) rest(r *run, before, after *sample) {
	wall := after.at.Sub(before.at)
	t.row("at rest for", wall.Round(time.Second).String(), fmt.Sprintf("heartbeats every %s", r.heartbeat))
	t.row("at rest: share of a core", fmt.Sprintf("%.2f %%", 100*float64(after.cpu-before.cpu)/float64(wall)), "at most 0.5 %")
	total := 0.0
	for name, n := range difference(before, after, "skyhook_api_writes_total") {
		if !strings.Contains(name, "leases") {
			total += n
		}
	}
	t.row("at rest: writes but the lease", fmt.Sprintf("%.0f", total), "0")
	t.row("at rest: passes", fmt.Sprintf("%d", count(before, after, "skyhook_loop_seconds", "decide")), "")
	t.row("at rest: RSS", fmt.Sprintf("%d MiB", after.rss>>20), "")
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r[0], r[1], r[2])
	}
	_ = w.Flush() // a table for people
}

// labels joins the label values of a metric.
func labels(m *dto.Metric) string {
	var out []string
	for _, l := range m.GetLabel() {
		out = append(out, l.GetValue())
	}
	slices.Reverse(out)
	return strings.Join(out, " ")
}

// difference is how much each series of a counter, or the sum of a histogram, grew.
func difference(before, after *sample, name string) map[string]float64 {
	out := map[string]float64{}
	for sign, s := range map[float64]*sample{-1: before, 1: after} {
		for _, m := range s.families[name].GetMetric() {
			out[labels(m)] += sign * (m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum())
		}
	}
	maps.DeleteFunc(out, func(_ string, v float64) bool { return v == 0 })
	return out
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// count is how many observations a series of a histogram got.
func count(before, after *sample, name, series string) uint64 {
	var out uint64
	for _, m := range after.families[name].GetMetric() {
		if labels(m) == series {
			out += m.GetHistogram().GetSampleCount()
		}
	}
	for _, m := range before.families[name].GetMetric() {
		if labels(m) == series {
			out -= m.GetHistogram().GetSampleCount()
		}
	}
	return out
}

// quantile names the bucket in which a share of all observations lies.
func quantile(before, after *sample, name, series string, share float64) string {
	buckets := map[float64]int64{}
	for sign, s := range map[int64]*sample{-1: before, 1: after} {
		for _, m := range s.families[name].GetMetric() {
			if labels(m) != series {
				continue
			}
			for _, b := range m.GetHistogram().GetBucket() {
				buckets[b.GetUpperBound()] += sign * int64(b.GetCumulativeCount())
			}
		}
	}
	total := int64(count(before, after, name, series))
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
			return fmt.Sprintf("at most %s, of %d", seconds(upper), total)
		}
	}
	return fmt.Sprintf("more than %s, of %d", seconds(last), total)
}
