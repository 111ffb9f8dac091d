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
	// Fetches read the logs of stages from the host, by FetchKey. A page that is read-only shows their commands.
	Fetches   map[string]Offer `json:"-"`
	MayChange bool             `json:"-"`
}

// FetchKey names a stage of a rollout.
func FetchKey(rollout, label string) string { return rollout + " " + label }

// FetchOf returns what reads the log of a stage from the host, alone; nothing if the host has none.
func (n *Node) FetchOf(rollout, label string) []Offer {
	if o, ok := n.Fetches[FetchKey(rollout, label)]; ok {
		return []Offer{o}
	}
	return nil
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

// ByNeed are the rollouts on the node, what runs or failed first.
func (n *Node) ByNeed() []view.Work {
	return slices.SortedStableFunc(slices.Values(n.Work), func(a, b view.Work) int {
		switch {
		case a.State.IsMoreUrgent(b.State):
			return -1
		case b.State.IsMoreUrgent(a.State):
			return 1
		}
		return 0
	})
}

// newNodeAxis returns the axis of all stages of a node: from the first one of what is not over, or else of everything.
func newNodeAxis(n *Node, now time.Time) plot {
	p := plot{Progress: &view.Progress{Now: now}, from: now, to: now}
	isAnyOpen := slices.ContainsFunc(n.Work, func(w view.Work) bool { return !w.IsOver() })
	for _, w := range n.Work {
		for i := range w.Stages {
			for _, t := range []*time.Time{w.AdmittedAt, w.Stages[i].Started, w.Stages[i].Ended} {
				if t != nil && t.Before(p.from) && !(isAnyOpen && w.IsOver()) {
					p.from = *t
				}
			}
		}
	}
	return p.atLeast(time.Minute)
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
