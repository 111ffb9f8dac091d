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

// gantt draws waves; both plans have one axis, so that they can be compared.
type gantt struct {
	plot
	Title string
	Rows  []view.Bar
	More  int // waves that are not drawn
}

// maxBars is how many waves one chart draws.
const maxBars = 60

// newCharts returns the plan now, and the one with the manifest.
func newCharts(p *Plan) []gantt {
	now := p.Simulation.Now
	axis := plot{Progress: &view.Progress{}, from: now, to: now.Add(time.Minute)}
	var charts []gantt
	addChart := func(title string, simulation *view.Simulation) {
		bars := simulation.ListBars()
		for i := range bars {
			if bars[i].To.After(axis.to) {
				axis.to = bars[i].To
			}
		}
		shown := bars[:min(maxBars, len(bars))]
		charts = append(charts, gantt{Title: title, Rows: shown, More: len(bars) - len(shown)})
	}
	addChart("In the cluster", p.Simulation)
	if p.Edited != nil {
		addChart("With the manifest", p.Edited)
	}
	for i := range charts {
		charts[i].plot = axis
	}
	return charts
}

// SpanOfBar is when a wave runs.
func (g gantt) SpanOfBar(b view.Bar) view.Span { return view.Span{From: b.From, To: b.To} }

// After is how long after the beginning a time is.
func (g gantt) After(t time.Time) string { return t.Sub(g.from).Round(time.Second).String() }
