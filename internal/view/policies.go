// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

// ListPolicies describes all DeploymentPolicies, by name.
func (v *Cluster) ListPolicies() *ui.Policies {
	out := &ui.Policies{Now: v.Snapshot.Now.UTC(), Policies: []ui.Policy{}}
	for _, p := range v.Objects.Policies {
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
	return out
}

// usersOf returns the rollouts that a policy applies to.
func (v *Cluster) usersOf(name string) []string {
	users := []string{}
	for _, hook := range v.Objects.Skyhooks {
		if v.Objects.Compiled(hook).PolicyName() == name {
			users = append(users, hook.Name)
		}
	}
	for _, op := range v.Objects.NodeOps {
		if op.Spec.DeploymentPolicy == name {
			users = append(users, ShortName(rollout.Ref{Kind: "NodeOp", Namespace: op.Namespace, Name: op.Name}))
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
	for _, span := range calendar.OpenSpans(from, horizon) {
		p.Open = append(p.Open, ui.Span{From: span.From.In(zone), To: span.To.In(zone)})
	}
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

// calendarDays is how far the calendar of windows reaches.
const calendarDays = 14
