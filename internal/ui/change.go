// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Change is a change of the cluster that a page offers. It stands for a command line.
type Change struct {
	Verb    string `json:"verb"`
	Skyhook string `json:"skyhook,omitempty"`
	Package string `json:"package,omitempty"`
	Node    string `json:"node,omitempty"`
	Stage   string `json:"stage,omitempty"`
	// that a person approves, of the object that Skyhook names
	Compartment string `json:"compartment,omitempty"`
}

// Offer is a change with its words.
type Offer struct {
	Change
	Title   string // of the button
	Command string // the command line
}

// JSON is what the page sends back.
func (o Offer) JSON() (string, error) {
	raw, err := json.Marshal(o.Change)
	return string(raw), err
}

// changed is the answer to a change.
type changed struct {
	Output string `json:"output"`
}

// maxChange limits the request of a change.
const maxChange = 4 << 10

// serveChange makes a change that the page asked for. ServeHTTP has checked that it is a page of ours.
func (s *Server) serveChange(w http.ResponseWriter, r *http.Request) {
	if s.pages.Change == nil {
		http.Error(w, "pages are read-only: start kubectl skyhook ui with --allow-changes", http.StatusForbidden)
		return
	}
	var c Change
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChange))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		http.Error(w, "reading the change: "+err.Error(), http.StatusBadRequest)
		return
	}
	output, err := s.pages.Change(r.Context(), c)
	if err != nil {
		status := http.StatusConflict
		if errors.Is(err, view.ErrNotFound) {
			status = http.StatusNotFound
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(changed{output})
}
