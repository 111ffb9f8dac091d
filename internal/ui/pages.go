// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/view"
)

func (s *Server) addRoutes() {
	s.mux.HandleFunc("GET /{$}", s.serveFleet)
	s.mux.HandleFunc("GET /rollouts/{kind}/{name...}", s.serveRollout)
	s.mux.HandleFunc("GET /nodes/{name}", s.serveNode)
	s.mux.HandleFunc("GET /plan", s.servePlan)
	s.mux.HandleFunc("POST /plan", s.servePlan)
	s.mux.HandleFunc("GET /policies", s.servePolicies)
	s.mux.HandleFunc("GET /find", s.serveFind)
	s.mux.HandleFunc("GET /revisions/{name}/{number}", s.serveRevision)
	s.mux.HandleFunc("GET /outputs/{name...}", s.serveOutput)
	s.mux.HandleFunc("POST /changes", s.serveChange)
	s.mux.HandleFunc("GET /events", s.serveEvents)
	s.mux.HandleFunc("GET /assets/{file}", serveAsset)
}

// serveAsset serves the script and the style sheet.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	types := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	kind, ok := types[path.Ext(name)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	http.ServeFileFS(w, r, assets, "assets/"+name)
}

func (s *Server) serveFleet(w http.ResponseWriter, r *http.Request) {
	filter := newFleetFilter(r.URL.Query())
	if err := filter.Check(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	page := s.newScreen("fleet", "Fleet")
	fleet, err := s.pages.Fleet(r.Context(), filter.Rollout)
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	v := newFleetView(fleet, filter)
	page.JSON, page.Data = v.Fleet, v
	write(w, r, http.StatusOK, page)
}

// screen is what a page is rendered from.
type screen struct {
	Context
	Base  string // path of the first page, without a slash at the end
	Page  string // name of its template
	Title string
	JSON  any // what a client gets that accepts JSON
	Data  any // what the template shows
}

// wantsJSON reports whether a client prefers JSON to a page.
func wantsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// newScreen begins a page. It comes before the data is read: a page may be newer than the version that it names, never older.
func (s *Server) newScreen(page, title string) screen {
	return screen{Context: s.pages.Context(), Base: s.base(), Page: page, Title: title}
}

// write answers with a page, or with the data behind it.
func write(w http.ResponseWriter, r *http.Request, status int, page screen) {
	w.Header().Set("Vary", "Accept")
	var out bytes.Buffer
	var err error
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(page.JSON)
	} else {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err = templates[page.Page].ExecuteTemplate(&out, "layout.html", page)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("showing %s: %v", page.Page, err), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(status)
	_, _ = out.WriteTo(w)
}

// problem is the data behind the page of an error.
type problem struct {
	Error string `json:"error"`
}

func (s *Server) serveError(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	if errors.Is(err, view.ErrNotFound) {
		status = http.StatusNotFound
	}
	page := s.newScreen("error", "Error")
	page.JSON, page.Data = problem{err.Error()}, problem{err.Error()}
	write(w, r, status, page)
}

// templates are the pages by name, each with the layout.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	functions := template.FuncMap{
		"states": func() any { return view.States }, "stateOf": view.StateOf, "driftState": func() view.State { return view.StateDrifted },
		"rolloutPath": rolloutPath, "clock": formatClock, "at": formatTime, "unix": formatUnix, "percent": percent, "nodes": countNodes,
		"plotOf": newPlot, "axisOfNode": newNodeAxis, "axisOfDay": newDayAxis, "chartsOf": newCharts, "graphOf": newGraph, "eventWords": eventWords, "needsOf": newNeeds,
		"sum": func(a, b int) int { return a + b },
		"groupings": func(labels []string) []string {
			return append([]string{byCompartment, byRollout, byZone, byNothing}, labels...)
		},
	}
	files, err := fs.Glob(assets, "assets/*.html")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	out := map[string]*template.Template{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name != "layout" {
			t := template.New("layout.html").Funcs(functions)
			out[name] = template.Must(t.ParseFS(assets, "assets/layout.html", file))
		}
	}
	return out
}

// rolloutPath returns the path of the page of a rollout below the first page: rollouts/skyhook/demo.
func rolloutPath(name fmt.Stringer) string {
	kind, rest, _ := strings.Cut(name.String(), "/")
	return "rollouts/" + strings.ToLower(kind) + "/" + rest
}

func formatClock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// formatTime returns a time that the script shows in the time zone of the reader, with how far it is.
func formatTime(t any) template.HTML {
	var at time.Time
	switch t := t.(type) {
	case time.Time:
		at = t
	case *time.Time:
		at = *t
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, at.UTC().Format(time.RFC3339), formatClock(at))) //nolint:gosec // of digits
}

// formatUnix returns a time for the script, which shows how long ago it was.
func formatUnix(t *time.Time) string {
	if t == nil {
		return ""
	}
	return fmt.Sprint(t.Unix())
}

func countNodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// percent returns a share as a percentage for a coordinate.
func percent(part, whole int) string {
	if whole == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(whole))
}
