// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Rollout is the data behind the page of a Skyhook or NodeOp.
type Rollout struct {
	Status     any `json:"status"`     // as status NAME -o json prints it
	Why        any `json:"why"`        // as why NAME -o json prints it
	Simulation any `json:"simulation"` // as simulate NAME --steps=false -o json prints it

	Name     string    `json:"-"` // as commands take it
	Progress *Progress `json:"-"` // of the simulation
	Packages []Package `json:"-"` // of the status
	Offers   []Offer   `json:"-"`
}

// Progress is how many nodes did what over time, by the records on nodes, and how that goes on in the simulation.
type Progress struct {
	Nodes   int        `json:"nodes"`
	Now     time.Time  `json:"now"`
	Past    []Point    `json:"past"`
	Future  []Point    `json:"future,omitempty"`
	End     *time.Time `json:"simulatedEnd,omitempty"`  // when everything is complete in the simulation
	Cut     bool       `json:"simulationCut,omitempty"` // the simulation was stopped before its end, because it took too long
	Closed  []Span     `json:"closed,omitempty"`
	Batches []Batch    `json:"batches,omitempty"`
}

// Point is how many nodes did what from one time on.
type Point struct {
	At       time.Time `json:"at"`
	Complete int       `json:"complete"`
	Working  int       `json:"working"`
	Failed   int       `json:"failed"`
}

// Span is a time in which no window is open.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Batch is nodes of a group that began together.
type Batch struct {
	At        time.Time `json:"at"`
	Group     string    `json:"group"`
	Nodes     int       `json:"nodes"`
	Simulated bool      `json:"simulated,omitempty"`
}

// Package is a package with the nodes on which it is how far.
type Package struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	After    []string `json:"after,omitempty"` // packages that it depends on
	Complete int      `json:"complete"`
	Working  int      `json:"working"`
	Failed   int      `json:"failed"`
	Waiting  int      `json:"waiting"`
}

func (s *Server) serveRollout(w http.ResponseWriter, r *http.Request) {
	page := s.newScreen("rollout", r.PathValue("name"))
	data, err := s.pages.Rollout(r.Context(), r.PathValue("kind")+"/"+r.PathValue("name"))
	if err != nil {
		s.serveError(w, r, err)
		return
	}
	page.JSON, page.Data = data, data
	write(w, r, http.StatusOK, page)
}

// plotHeight is the height of the plot in its own coordinates; the width is 1000.
const plotHeight = 200

// plot draws Progress.
type plot struct {
	*Progress
	from, to time.Time
}

func newPlot(p *Progress) plot {
	out := plot{Progress: p, from: p.Now, to: p.Now}
	if len(p.Past) > 0 {
		out.from = p.Past[0].At
	}
	if len(p.Future) > 0 {
		out.to = p.Future[len(p.Future)-1].At
	}
	if !out.to.After(out.from) {
		out.to = out.from.Add(time.Minute)
	}
	return out
}

// X is where a time is, as a percentage of the width.
func (p plot) X(at time.Time) string { return fmt.Sprintf("%.2f%%", p.x(at)/10) }

// Width is how long a span is, as a percentage of the width.
func (p plot) Width(s Span) string { return fmt.Sprintf("%.2f%%", (p.x(s.To)-p.x(s.From))/10) }

func (p plot) x(at time.Time) float64 {
	return math.Max(0, math.Min(1000, 1000*float64(at.Sub(p.from))/float64(p.to.Sub(p.from))))
}

func (p plot) y(nodes int) float64 {
	return plotHeight - plotHeight*float64(nodes)/float64(max(1, p.Nodes))
}

// Area is the path of one number over time, above those that come before it: complete, working, failed.
func (p plot) Area(points []Point, which string) string {
	if len(points) == 0 {
		return ""
	}
	end := p.to
	if points[len(points)-1].At.Before(p.Now) || len(p.Future) == 0 {
		end = p.Now
	}
	var top, bottom []string
	for i, at := range points {
		until := end
		if i+1 < len(points) {
			until = points[i+1].At
		}
		low, high := at.bounds(which)
		x, toX := p.x(at.At), p.x(until)
		top = append(top, fmt.Sprintf("%.1f %.1fL%.1f %.1f", x, p.y(high), toX, p.y(high)))
		bottom = append(bottom, fmt.Sprintf("%.1f %.1fL%.1f %.1f", toX, p.y(low), x, p.y(low)))
	}
	slices.Reverse(bottom)
	return "M" + strings.Join(append(top, bottom...), "L") + "Z"
}

// bounds returns between which numbers of nodes an area is.
func (p Point) bounds(which string) (low, high int) {
	switch which {
	case "complete":
		return 0, p.Complete
	case "working":
		return p.Complete, p.Complete + p.Working
	}
	return p.Complete + p.Working, p.Complete + p.Working + p.Failed
}

// Summary says what the plot shows.
func (p plot) Summary() string {
	if len(p.Past) == 0 {
		return "nothing has begun"
	}
	now := p.Past[len(p.Past)-1]
	text := fmt.Sprintf("since %s: %d of %d nodes complete, %d working, %d failed", formatClock(p.from), now.Complete, p.Nodes, now.Working, now.Failed)
	if p.End != nil {
		text += "; complete at " + formatClock(*p.End) + " if everything succeeds and each stage takes two minutes, which is what the simulation assumes"
	}
	if p.Cut {
		text += "; the simulation was stopped at " + formatClock(lastPoint(p.Future, now).At) + ", because it takes long: kubectl skyhook simulate shows all of it"
	}
	return text
}

func lastPoint(points []Point, otherwise Point) Point {
	if len(points) == 0 {
		return otherwise
	}
	return points[len(points)-1]
}

// From and To are the ends of the axis.
func (p plot) From() time.Time { return p.from }

// To is the end of the axis.
func (p plot) To() time.Time { return p.to }

// A graph draws packages in columns: each to the right of those that it depends on.
type graph struct {
	Boxes         []box
	Edges         []string // paths
	Width, Height int
}

type box struct {
	Package
	X, Y int
}

// The size of a graph.
const (
	boxWidth, boxHeight = 210, 78
	boxGapX, boxGapY    = 50, 14
)

func newGraph(packages []Package) graph {
	byName, column := map[string]*Package{}, map[string]int{}
	for i := range packages {
		byName[packages[i].Name] = &packages[i]
	}
	var depth func(name string, seen int) int
	depth = func(name string, seen int) int {
		d := 0
		for _, after := range byName[name].After {
			if byName[after] != nil && seen < len(packages) { // a cycle is refused, but may be in a dump
				d = max(d, depth(after, seen+1)+1)
			}
		}
		return d
	}
	g, rows, at := graph{}, map[int]int{}, map[string]box{}
	for _, p := range packages {
		column[p.Name] = depth(p.Name, 0)
		c := column[p.Name]
		b := box{p, c * (boxWidth + boxGapX), rows[c] * (boxHeight + boxGapY)}
		rows[c]++
		at[p.Name], g.Boxes = b, append(g.Boxes, b)
		g.Width, g.Height = max(g.Width, b.X+boxWidth), max(g.Height, b.Y+boxHeight)
	}
	for _, b := range g.Boxes {
		for _, after := range b.After {
			from, ok := at[after]
			if !ok {
				continue
			}
			x, y, toY := from.X+boxWidth, from.Y+boxHeight/2, b.Y+boxHeight/2
			g.Edges = append(g.Edges, fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, y, x+boxGapX/2, y, b.X-boxGapX/2, toY, b.X, toY))
		}
	}
	return g
}

// Total is the number of nodes of a package.
func (p Package) Total() int { return p.Complete + p.Working + p.Failed + p.Waiting }
