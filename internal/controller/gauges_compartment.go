// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "github.com/prometheus/client_golang/prometheus"

// compartmentGauges are the gauges about the compartments of one kind of rollout.
type compartmentGauges struct {
	matched, ceiling, inProgress, completed, progress, batch, failures, stop *prometheus.Desc
}

var skyhookCompartments = newCompartmentGauges("skyhook_rollout_", "skyhook_name", "policy_name", "compartment_name", "strategy")

func newCompartmentGauges(prefix string, labels ...string) compartmentGauges {
	return compartmentGauges{
		matched:    newGauge(prefix+"matched_nodes", "Nodes in a compartment.", labels...),
		ceiling:    newGauge(prefix+"ceiling", "Nodes of a compartment that may be worked on at the same time.", labels...),
		inProgress: newGauge(prefix+"in_progress", "Nodes of a compartment that are worked on.", labels...),
		completed:  newGauge(prefix+"completed", "Nodes of a compartment that are complete.", labels...),
		progress:   newGauge(prefix+"progress_percent", "Complete nodes of a compartment in percent.", labels...),
		batch:      newGauge(prefix+"current_batch", "Number of the batch, from 1.", labels...),
		failures:   newGauge(prefix+"consecutive_failures", "Failed batches in a row.", labels...),
		stop:       newGauge(prefix+"should_stop", "1 when failures stopped the compartment.", labels...),
	}
}

// compartmentSample is the status of a compartment. Before the first batch, batch is 1.
type compartmentSample struct {
	matched, ceiling, inProgress, completed, percent, batch, failures int
	isStopped                                                         bool
}

func (w gaugeWriter) writeCompartment(g compartmentGauges, s compartmentSample, labels ...string) {
	w.write(g.matched, s.matched, labels...)
	w.write(g.ceiling, s.ceiling, labels...)
	w.write(g.inProgress, s.inProgress, labels...)
	w.write(g.completed, s.completed, labels...)
	w.write(g.progress, s.percent, labels...)
	w.write(g.batch, s.batch, labels...)
	w.write(g.failures, s.failures, labels...)
	w.write(g.stop, boolToInt(s.isStopped), labels...)
}
