// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// drainGauges are the gauges about the drains of one kind of rollout.
type drainGauges struct{ nodes, pods, left, oldest *prometheus.Desc }

var skyhookDrains = newDrainGauges("skyhook_", "a Skyhook", "skyhook_name")

func newDrainGauges(prefix, of string, labels ...string) drainGauges {
	return drainGauges{
		nodes:  newGauge(prefix+"draining_nodes", "Nodes that "+of+" drains and that have pods in the way.", labels...),
		pods:   newGauge(prefix+"drain_pods", "Pods that had to leave these nodes when their drains began.", labels...),
		left:   newGauge(prefix+"drain_pods_left", "Pods that have not left these nodes yet, by reason.", append(slices.Clone(labels), "reason")...),
		oldest: newGauge(prefix+"oldest_drain_seconds", "How long the oldest of these drains takes; 0 for none.", labels...),
	}
}

// drainSample sums up the drains of one rollout.
type drainSample struct {
	nodes, pods int
	left        map[rollout.Reason]int
	oldest      time.Time // zero for none
}

func newDrainSample(report rollout.Report) drainSample {
	s := drainSample{left: map[rollout.Reason]int{}}
	for _, d := range report.Draining {
		s.nodes++
		s.pods += d.All
		for _, c := range d.Waiting {
			s.left[c.Reason] += c.Pods
		}
		if s.oldest.IsZero() || d.Since.Before(s.oldest) {
			s.oldest = d.Since
		}
	}
	return s
}

// writeDrains writes how far the drains of a rollout are. The list of reasons is fixed, so the number of series is bounded.
func (w gaugeWriter) writeDrains(g drainGauges, s drainSample, now time.Time, labels ...string) {
	w.write(g.nodes, s.nodes, labels...)
	w.write(g.pods, s.pods, labels...)
	for _, r := range slices.Sorted(maps.Keys(s.left)) {
		w.write(g.left, s.left[r], append(slices.Clone(labels), string(r))...)
	}
	age := time.Duration(0)
	if !s.oldest.IsZero() {
		age = max(0, now.Sub(s.oldest))
	}
	w.write(g.oldest, int(age.Seconds()), labels...)
}
