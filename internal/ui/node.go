// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Node is the data behind the page of a node.
type Node struct {
	*view.Node
	Offers []Offer `json:"-"`
}

func (s *Server) serveNode(w http.ResponseWriter, r *http.Request) {
	page := s.newScreen("node", r.PathValue("name"))
	data, err := s.pages.Node(r.Context(), r.PathValue("name"))
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	page.JSON, page.Data = data, data
	write(w, r, http.StatusOK, page)
}

// newWorkAxis returns the axis of the bars of stages.
func newWorkAxis(w view.Work, now time.Time) plot {
	p := plot{Progress: &view.Progress{}, from: now, to: now}
	note := func(t *time.Time) {
		if t != nil && t.Before(p.from) {
			p.from = *t
		}
	}
	note(w.AdmittedAt)
	for i := range w.Stages {
		note(w.Stages[i].Started)
		note(w.Stages[i].Ended)
	}
	if w.FinishedAt != nil && w.State == view.StateComplete {
		p.to = *w.FinishedAt
	}
	if !p.to.After(p.from) {
		p.to = p.from.Add(time.Second)
	}
	return p
}

// EventsIn returns the events during the axis, the first one first.
func (p plot) EventsIn(events []view.NodeEvent) []view.NodeEvent {
	var out []view.NodeEvent
	for _, e := range slices.Backward(events) {
		if !e.At.Before(p.from) && !e.At.After(p.to) {
			out = append(out, e)
		}
	}
	return out
}

// eventWords says which events a time line has.
func eventWords(events []view.NodeEvent) string {
	words := fmt.Sprintf("%d events", len(events))
	if len(events) == 1 {
		words = "1 event"
	}
	for i, e := range events {
		if i == maxSpokenEvents {
			return words + ", …"
		}
		words += fmt.Sprintf("%s %s at %s", map[bool]string{true: ":", false: ","}[i == 0], e.Reason, formatClock(e.At))
	}
	return words
}

// maxSpokenEvents is how many events a screen reader says of a time line; all are in the table.
const maxSpokenEvents = 8

// SpanOf returns when a stage ran; it still runs when it has no end.
func (p plot) SpanOf(s view.Stage, now time.Time) view.Span {
	span := view.Span{From: now, To: now}
	switch {
	case s.Started != nil:
		span.From = *s.Started
	case s.Ended != nil:
		span.From = *s.Ended
	}
	if s.Ended != nil && !s.Ended.Before(span.From) {
		span.To = *s.Ended
	}
	return span
}
