// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/dump"
	"github.com/skyhook-k8s/skyhook/internal/cli/manifest"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// plan returns the data of the page of what comes next: for the cluster, and for a manifest that is not applied.
func (s *uiSource) plan(ctx context.Context, text []byte) (*ui.Plan, error) {
	s.mu.Lock()
	v, f := s.view, s.forecast("")
	s.mu.Unlock()
	out := &ui.Plan{Simulation: newSimulation(v, f, nil), Now: v.snapshot.Now.UTC(), Before: listBars(v, f), Manifest: string(text)}
	if len(text) == 0 {
		return out, nil
	}
	edited, err := s.mergeText(ctx, text)
	if err != nil { // of the manifest: the page says so
		out.Problem = err.Error()
		return out, nil
	}
	f = edited.simulateForPages(nil)
	out.Edited, out.After = newSimulation(edited, f, nil), listBars(edited, f)
	return out, nil
}

// mergeText returns the view with a manifest, as -f does.
func (s *uiSource) mergeText(ctx context.Context, text []byte) (*view, error) {
	validator, err := manifest.Load()
	if err != nil {
		return nil, err
	}
	objects, err := validator.Read("the manifest", io.NopCloser(bytes.NewReader(text)))
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("the manifest has no object")
	}
	var c *dump.Cluster
	if s.watched == nil {
		c, err = openCluster(ctx, s.factory, s.from.from)
	} else {
		c, err = startReadingCluster(ctx, s.factory, s.watched)
	}
	if err != nil {
		return nil, err
	}
	if err := mergeManifests(ctx, s.factory, c, func() ([]*manifest.Object, error) { return objects, nil }); err != nil {
		return nil, err
	}
	return newView(ctx, s.factory, c)
}

// listBars returns the waves of all rollouts, by time.
func listBars(v *view, f *forecast) []ui.Bar {
	out := []ui.Bar{}
	ends := f.findEnds()
	now := v.snapshot.Now.UTC()
	for _, r := range v.selectRollouts(nil) {
		for _, w := range f.waves[r.Ref] {
			bar := ui.Bar{Rollout: shortName(r.Ref), Group: groupName(r, w.group), Wave: w.Number, From: now.Add(w.after), To: now.Add(w.after), Nodes: w.Nodes}
			for _, node := range w.Nodes {
				end, hasEnded := ends[targetKey{r.Ref, node}]
				bar.Open = bar.Open || !hasEnded
				if at := now.Add(end); at.After(bar.To) {
					bar.To = at
				}
			}
			if bar.Open {
				bar.To = now.Add(f.timeline.End.Sub(f.start))
			}
			out = append(out, bar)
		}
	}
	slices.SortStableFunc(out, func(a, b ui.Bar) int { return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Rollout, b.Rollout)) })
	return out
}

// calendarDays is how far the calendar of windows reaches.
const calendarDays = 14

// policies returns the data of the page of policies.
func (s *uiSource) policies(context.Context) (*ui.Policies, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	out := &ui.Policies{Now: v.snapshot.Now.UTC(), Policies: []ui.Policy{}}
	for _, p := range v.objects.Policies {
		item := ui.Policy{
			Name: p.Name, Scope: cmp.Or(string(p.Spec.Scope), string(v1alpha1.ScopeSkyhook)), Paused: p.Spec.Paused, Users: v.usersOf(p.Name),
			Windows: p.Spec.Windows != nil,
		}
		if item.Windows {
			addCalendar(&item, p.Spec.Windows, out.Now)
		}
		out.Policies = append(out.Policies, item)
	}
	slices.SortFunc(out.Policies, func(a, b ui.Policy) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// usersOf returns the rollouts that a policy applies to.
func (v *view) usersOf(name string) []string {
	users := []string{}
	for _, hook := range v.objects.Skyhooks {
		if v.objects.Compiled(hook).PolicyName() == name {
			users = append(users, hook.Name)
		}
	}
	for _, op := range v.objects.NodeOps {
		if op.Spec.DeploymentPolicy == name {
			users = append(users, shortName(rollout.Ref{Kind: "NodeOp", Namespace: op.Namespace, Name: op.Name}))
		}
	}
	return users
}

// addCalendar adds when the windows of a policy are open.
func addCalendar(p *ui.Policy, windows *v1alpha1.Windows, now time.Time) {
	p.TimeZone = cmp.Or(windows.TimeZone, "UTC")
	calendar, err := policy.NewCalendar(windows)
	if err != nil {
		p.Problem = err.Error()
		return
	}
	zone, err := time.LoadLocation(p.TimeZone)
	if err != nil {
		p.Problem = err.Error()
		return
	}
	year, month, day := now.In(zone).Date()
	from := time.Date(year, month, day, 0, 0, 0, 0, zone)
	horizon := from.AddDate(0, 0, calendarDays)
	p.Open = findSpans(from, horizon, calendar.IsOpen)
	p.Days = ui.CalendarDays(from, calendarDays, p.Open)
	p.IsOpen = calendar.IsOpen(now)
	for _, span := range p.Open {
		switch {
		case p.IsOpen && !now.Before(span.From) && now.Before(span.To) && span.To.Before(horizon): // what is after the horizon is unknown
			p.Next = span.To.UTC()
		case !p.IsOpen && p.Next.IsZero() && span.From.After(now):
			p.Next = span.From.UTC()
		}
	}
}
