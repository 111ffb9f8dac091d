// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"net/http"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

func (s *Server) servePolicies(w http.ResponseWriter, r *http.Request) {
	page := s.newScreen("policies", "Policies")
	data, err := s.pages.Policies(r.Context())
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	page.JSON, page.Data = data, data
	write(w, r, http.StatusOK, page)
}

// newDayAxis returns the axis of a day.
func newDayAxis(d view.Day) plot { return plot{Progress: &view.Progress{}, from: d.Date, to: d.End} }
