// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Node is the data behind the page of a node. node describe NODE -o json prints it.
type Node struct {
	Name     string      `json:"name"`
	State    State       `json:"state"`
	Ready    bool        `json:"ready"`
	Cordoned bool        `json:"cordoned"`
	Why      any         `json:"why"`    // as why NODE -o json prints it
	Status   any         `json:"status"` // as node status NODE -o json prints it
	Work     []Work      `json:"work"`   // of each rollout that selects the node
	Drift    any         `json:"drift"`  // as drift NODE -o json prints it; nil if nobody checks
	Holds    []Hold      `json:"holds"`
	Pods     []Pod       `json:"pods"`
	Events   []NodeEvent `json:"events"`
	Offers   []Offer     `json:"-"`
}

// Work is what a rollout does on a node.
type Work struct {
	Rollout    string     `json:"rollout"`
	Path       string     `json:"-"`
	State      State      `json:"state"`
	AdmittedAt *time.Time `json:"admittedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Stages     []Stage    `json:"stages"`
}

// Stage is one stage of a package, or one step of a NodeOp.
type Stage struct {
	Package  string     `json:"package"`
	Label    string     `json:"label"`
	State    string     `json:"state"`
	Started  *time.Time `json:"started,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"` // of the last attempt
	Duration string     `json:"duration,omitempty"`
	Attempts int        `json:"failedAttempts,omitempty"`
	Text     string     `json:"text,omitempty"` // the last words
	Log      string     `json:"log,omitempty"`
}

// Hold is a cordon with an owner.
type Hold struct {
	Owner       string     `json:"owner"`
	Since       *time.Time `json:"since,omitempty"`
	WasCordoned bool       `json:"wasCordoned,omitempty"` // by somebody else, before
}

// Pod is a pod that has to leave the node.
type Pod struct {
	Name    string `json:"name"`
	Rollout string `json:"rollout"`
	Why     string `json:"why"`
}

// NodeEvent is an event of the node.
type NodeEvent struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Text    string    `json:"text"`
	Count   int32     `json:"count,omitempty"`
	Rollout string    `json:"rollout,omitempty"`
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
func newWorkAxis(w Work, now time.Time) plot {
	p := plot{Progress: &Progress{}, from: now, to: now}
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
	if w.FinishedAt != nil && w.State == StateComplete {
		p.to = *w.FinishedAt
	}
	if !p.to.After(p.from) {
		p.to = p.from.Add(time.Second)
	}
	return p
}

// EventsIn returns the events during the axis, the first one first.
func (p plot) EventsIn(events []NodeEvent) []NodeEvent {
	var out []NodeEvent
	for _, e := range slices.Backward(events) {
		if !e.At.Before(p.from) && !e.At.After(p.to) {
			out = append(out, e)
		}
	}
	return out
}

// eventWords says which events a time line has.
func eventWords(events []NodeEvent) string {
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
func (p plot) SpanOf(s Stage, now time.Time) Span {
	span := Span{now, now}
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
