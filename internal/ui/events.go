// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// keepAlive is how often something is sent to a page though nothing changed, so that both sides notice a lost connection.
const keepAlive = 15 * time.Second

// liveState is what the stream of events says: a page with an older version loads itself again.
type liveState struct {
	Version int64  `json:"version"`
	Problem string `json:"problem,omitempty"`
}

// serveEvents streams the version of the data, at once and whenever it changes. A page that was disconnected so catches up.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	_, _ = fmt.Fprint(w, "retry: 1000\n\n")
	for {
		now := s.pages.Context()
		raw, err := json.Marshal(liveState{now.Version, now.Problem})
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: state\ndata: %s\n\n", raw); err != nil {
			return
		}
		if err := stream.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-now.Changed: // never for data that does not change
		case <-time.After(keepAlive):
		}
	}
}
