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

	"github.com/skyhook-k8s/skyhook/internal/view"
)

// Rollout is the data behind the page of a Skyhook or NodeOp: what status, why and simulate print with NAME -o json.
type Rollout struct {
	Status     view.RolloutStatus `json:"status"`
	Why        []view.Explanation `json:"why"`
	Simulation *view.Simulation   `json:"simulation"` // without its steps
	Offers     []Offer            `json:"-"`
}

// Name is as commands take it.
func (r *Rollout) Name() string { return view.ShortName(r.Status.Name) }

// Progress is of the simulation.
func (r *Rollout) Progress() *view.Progress { return r.Simulation.Rollouts[0].Progress }

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
	*view.Progress
	from, to time.Time
}

func newPlot(p *view.Progress) plot {
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
func (p plot) Width(s view.Span) string { return fmt.Sprintf("%.2f%%", (p.x(s.To)-p.x(s.From))/10) }

func (p plot) x(at time.Time) float64 {
	return math.Max(0, math.Min(1000, 1000*float64(at.Sub(p.from))/float64(p.to.Sub(p.from))))
}

func (p plot) y(nodes int) float64 {
	return plotHeight - plotHeight*float64(nodes)/float64(max(1, p.Nodes))
}

// Area is the path of one number over time, above those that come before it: complete, working, failed.
func (p plot) Area(points []view.Point, which string) string {
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
		low, high := boundsOf(at, which)
		x, toX := p.x(at.At), p.x(until)
		top = append(top, fmt.Sprintf("%.1f %.1fL%.1f %.1f", x, p.y(high), toX, p.y(high)))
		bottom = append(bottom, fmt.Sprintf("%.1f %.1fL%.1f %.1f", toX, p.y(low), x, p.y(low)))
	}
	slices.Reverse(bottom)
	return "M" + strings.Join(append(top, bottom...), "L") + "Z"
}

// boundsOf returns between which numbers of nodes an area is.
func boundsOf(p view.Point, which string) (low, high int) {
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

func lastPoint(points []view.Point, otherwise view.Point) view.Point {
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
	view.Package
	X, Y int
}

// The size of a graph.
const (
	boxWidth, boxHeight = 210, 78
	boxGapX, boxGapY    = 50, 14
)

func newGraph(packages []view.Package) graph {
	g, rows, at := graph{}, map[int]int{}, map[string]box{}
	for _, p := range packages {
		c := p.Column
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
