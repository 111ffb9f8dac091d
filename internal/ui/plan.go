// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Plan is the data behind the page of what comes next.
type Plan struct {
	Simulation any    `json:"simulation"`       // as simulate --steps=false -o json prints it
	Edited     any    `json:"edited,omitempty"` // as simulate --steps=false -f MANIFEST -o json prints it
	Problem    string `json:"problem,omitempty"`

	Manifest string    `json:"-"`
	Now      time.Time `json:"-"`
	Before   []Bar     `json:"-"` // the waves of Simulation
	After    []Bar     `json:"-"` // those of Edited
}

// Bar is a wave of a rollout: nodes of one group that begin together.
type Bar struct {
	Rollout, Group string
	Wave           int
	Nodes          []string
	WaveTimes
}

// WaveTimes is when a wave begins and ends in a simulation.
type WaveTimes struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`             // of the simulation, if the wave does not end in it
	Open bool      `json:"open,omitempty"` // it does not end in the simulation
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
	Rows  []Bar
	More  int // waves that are not drawn
}

// maxBars is how many waves one chart draws.
const maxBars = 60

// newCharts returns the plan now, and the one with the manifest.
func newCharts(p *Plan) []gantt {
	axis := plot{Progress: &Progress{}, from: p.Now, to: p.Now.Add(time.Minute)}
	for _, bars := range [][]Bar{p.Before, p.After} {
		for i := range bars {
			if bars[i].To.After(axis.to) {
				axis.to = bars[i].To
			}
		}
	}
	newChart := func(title string, bars []Bar) gantt {
		shown := bars[:min(maxBars, len(bars))]
		return gantt{axis, title, shown, len(bars) - len(shown)}
	}
	if p.Manifest == "" || p.Problem != "" {
		return []gantt{newChart("In the cluster", p.Before)}
	}
	return []gantt{newChart("In the cluster", p.Before), newChart("With the manifest", p.After)}
}

// SpanOfBar is when a wave runs.
func (g gantt) SpanOfBar(b Bar) Span { return Span{b.From, b.To} }

// After is how long after the beginning a time is.
func (g gantt) After(t time.Time) string { return t.Sub(g.from).Round(time.Second).String() }
