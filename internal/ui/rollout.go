// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
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
	Next       *view.Next         `json:"-"`
	Track      []view.TrackStep   `json:"-"`
	Offers     []Offer            `json:"-"`
	Output     string             `json:"-"` // NAMESPACE/NAME of a NodeOp, whose output can be read
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

// needPart is a part of the bar of what nodes need.
type needPart struct {
	Answer, Class, From, Width string
	Nodes                      int
}

// newNeeds returns the parts of the bar of what nodes need, the least first.
func newNeeds(needs []view.NodeNeed) (out []needPart) {
	all, before := 0, 0
	for _, n := range needs {
		all += len(n.Nodes)
	}
	for _, n := range needs {
		class := map[string]string{"none": "complete", "blocked": "failed", "reboot": "rebooting", "all": "rebooting"}[n.Answer]
		out = append(out, needPart{Answer: n.Answer, Class: cmp.Or(class, "working"), From: percent(before, all), Width: percent(len(n.Nodes), all), Nodes: len(n.Nodes)})
		before += len(n.Nodes)
	}
	return out
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
	return out.atLeast(time.Minute)
}

// atLeast returns the plot with an axis of at least this length.
func (p plot) atLeast(d time.Duration) plot {
	if p.to.Before(p.from.Add(d)) {
		p.to = p.from.Add(d)
	}
	return p
}

// IsEmpty reports whether nothing began, and nothing begins.
func (p plot) IsEmpty() bool { return len(p.Batches) == 0 && len(p.Past)+len(p.Future) < 3 }

// Scale is the numbers beside the plot, from the top.
func (p plot) Scale() []int { return []int{p.Nodes, p.Nodes / 2, 0} }

// tick is a mark of the axis.
type tick struct {
	At     time.Time
	X      string
	IsDay  bool // it has a date instead of a time
	IsLate bool // its text has no room
}

// Text is the mark in UTC.
func (t tick) Text() string {
	if t.IsDay {
		return t.At.UTC().Format("2 Jan")
	}
	return t.At.UTC().Format("15:04")
}

// maxTicks is how many marks an axis has at most: so many fit on a telephone.
const maxTicks = 4

// Ticks are round times on the axis.
func (p plot) Ticks() []tick {
	const day = 24 * time.Hour
	steps := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 30 * day, 90 * day}
	step := steps[len(steps)-1]
	if at := slices.IndexFunc(steps, func(d time.Duration) bool { return p.to.Sub(p.from)/d <= maxTicks }); at >= 0 {
		step = steps[at]
	}
	var out []tick
	for at := p.from.Truncate(step).Add(step); at.Before(p.to) && len(out) <= maxTicks; at = at.Add(step) {
		out = append(out, tick{at, p.X(at), step >= day, p.x(at) > 780})
	}
	return out
}

// DescribeSpans says what a row shows.
func (p plot) DescribeSpans(row view.NodeRow) string {
	var parts []string
	for _, s := range row.Spans {
		parts = append(parts, fmt.Sprintf("%s from %s to %s", strings.ToLower(s.State.Title()), formatClock(s.From), formatClock(s.To)))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}

// X is where a time is, as a percentage of the width.
func (p plot) X(at time.Time) string { return fmt.Sprintf("%.2f%%", p.x(at)/10) }

// Width is how long a span is, as a percentage of the width: enough to be seen.
func (p plot) Width(s view.Span) string {
	return fmt.Sprintf("%.2f%%", max(0.3, (p.x(s.To)-p.x(s.From))/10))
}

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
		text += "; complete at " + formatClock(*p.End) + " if everything succeeds"
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
