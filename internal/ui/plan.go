// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Plan is the data behind the page of what comes next: what simulate --steps=false -o json prints.
type Plan struct {
	Simulation *view.Simulation `json:"simulation"`
	Edited     *view.Simulation `json:"edited,omitempty"` // with the manifest
	Problem    string           `json:"problem,omitempty"`
}

// maxManifest limits what may be dropped on the page.
const maxManifest = 4 << 20

// servePlan shows the plan of the cluster, and for a POST also with the manifest in its body. Nothing is changed.
func (s *Server) servePlan(w http.ResponseWriter, r *http.Request) {
	page := s.newScreen("plan", "Plan")
	var manifest []byte
	if r.Method == http.MethodPost {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxManifest))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, fmt.Sprintf("the manifest has more than %d MiB", maxManifest>>20), http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "reading the manifest: "+err.Error(), http.StatusBadRequest)
			return
		}
		manifest = raw
	}
	data, err := s.pages.Plan(r.Context(), manifest)
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	page.JSON, page.Data = data, data
	write(w, r, http.StatusOK, page)
}

// gantt draws what comes; both plans have one axis, so that they can be compared.
type gantt struct {
	plot
	Title       string
	Simulation  *view.Simulation
	Rows        []view.PlanRow
	More        int      // rows that are not drawn
	Differences []string // from the other chart
}

// maxPlanRows is how many rows one chart draws.
const maxPlanRows = 60

// newCharts returns the plan now, and the one with the manifest.
func newCharts(p *Plan) []gantt {
	charts := []gantt{{Title: "In the cluster", Simulation: p.Simulation}}
	if p.Edited != nil {
		charts = append(charts, gantt{Title: "With the manifest", Simulation: p.Edited, Differences: p.Simulation.CompareTo(p.Edited)})
		if len(charts[1].Differences) == 0 {
			charts[1].Differences = []string{"The manifest changes nothing of the plan."}
		}
	}
	axis := plot{Progress: &view.Progress{}, from: p.Simulation.Now, to: p.Simulation.Now}
	for i := range charts {
		rows := charts[i].Simulation.ListRows()
		for _, row := range rows {
			for _, w := range row.Waves {
				if end := w.To.Add(w.Soak); end.After(axis.to) {
					axis.to = end
				}
			}
		}
		charts[i].Rows = rows[:min(maxPlanRows, len(rows))]
		charts[i].More = len(rows) - len(charts[i].Rows)
	}
	for i := range charts {
		charts[i].plot = axis.atLeast(time.Minute)
	}
	return charts
}

// WidthOf is how long a wave takes.
func (g gantt) WidthOf(w view.PlanWave) string { return g.Width(view.Span{From: w.From, To: w.To}) }

// HasRoom reports whether the number of nodes can be read in a block.
func (g gantt) HasRoom(w view.PlanWave) bool { return g.x(w.To)-g.x(w.From) > 30 }

// SoakOf is the time after a wave in which its nodes must stay ready; nil if there is none.
func (g gantt) SoakOf(w view.PlanWave) *view.Span {
	if w.Soak == 0 || w.Open {
		return nil
	}
	return &view.Span{From: w.To, To: w.To.Add(w.Soak)}
}

// Describe says what a row shows.
func (g gantt) Describe(row view.PlanRow) string {
	return fmt.Sprintf("%s, from %s to %s", row.Describe(), formatClock(row.Waves[0].From), formatClock(row.Waves[len(row.Waves)-1].To))
}
