// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

// found is the data behind the page of a search.
type found struct {
	Query string     `json:"query"`
	Hits  []view.Hit `json:"hits"`
}

// serveFind searches the names of everything.
func (s *Server) serveFind(w http.ResponseWriter, r *http.Request) {
	page := s.newScreen("find", "Found")
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	hits, err := s.pages.Find(r.Context(), query)
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	page.JSON = found{query, hits}
	page.Data = page.JSON
	write(w, r, http.StatusOK, page)
}

// serveRevision answers with the packages of a revision as text.
func (s *Server) serveRevision(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err != nil {
		http.Error(w, "a revision has a number, not "+strconv.Quote(r.PathValue("number")), http.StatusBadRequest)
		return
	}
	text, err := s.pages.Revision(r.Context(), r.PathValue("name"), number)
	s.serveText(w, r, text, err)
}

// serveOutput answers with the output of a NodeOp as text.
func (s *Server) serveOutput(w http.ResponseWriter, r *http.Request) {
	text, err := s.pages.Output(r.Context(), r.PathValue("name"))
	s.serveText(w, r, text, err)
}

func (s *Server) serveText(w http.ResponseWriter, r *http.Request, text string, err error) {
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
}
