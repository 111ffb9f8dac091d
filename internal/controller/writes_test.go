// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
)

// Two packages without interrupts cost at most 20 write requests per node. Writes to the Skyhook itself, such as its
// status once a second, grow with time and not with nodes.
func TestWritesPerNode(t *testing.T) {
	const nodes = 20
	w := newFixture(t, nodes)
	w.Apply(demo)
	w.startOperator()
	w.WaitComplete("demo")
	w.waitNoPods()
	w.stop()
	total := 0
	for resource, n := range w.countWrites() {
		t.Logf("%-30s %d", resource, n)
		if !strings.HasPrefix(resource, "skyhooks") {
			total += n
		}
	}
	if per := float64(total) / nodes; per > 20 {
		t.Errorf("%.1f writes per node, want at most 20", per)
	}
}

// countWrites counts the write requests of the operator, by verb and resource.
func (w *fixture) countWrites() map[string]int {
	w.Helper()
	families, err := w.registry.Gather()
	w.Must(err)
	out := map[string]int{}
	for _, f := range families {
		if f.GetName() != "skyhook_api_writes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += fmt.Sprintf("%s ", l.GetValue())
			}
			out[key] = int(m.GetCounter().GetValue())
		}
	}
	return out
}
