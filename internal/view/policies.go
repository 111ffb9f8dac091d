// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Policies is all DeploymentPolicies, by name.
type Policies struct {
	Now      time.Time `json:"now"`
	Policies []Policy  `json:"policies"`
}

// Policy is a DeploymentPolicy with its windows in the next two weeks.
type Policy struct {
	v1alpha1.Outcome
	Name   string   `json:"name"`
	Scope  string   `json:"scope"`
	Paused bool     `json:"paused,omitempty"`
	Users  []string `json:"users"` // rollouts

	UsedBy       []rollout.Ref       `json:"-"`
	Compartments []PolicyCompartment `json:"compartments"` // that of other nodes last
	Windows      bool                `json:"windows"`
	TimeZone     string              `json:"timeZone,omitempty"`
	Problem      string              `json:"problem,omitempty"` // why its windows cannot be used
	IsOpen       bool                `json:"open"`
	Next         time.Time           `json:"nextChange,omitzero"` // when it opens or closes; zero if that is not in the two weeks
	Open         []Span              `json:"openSpans,omitempty"`
	Days         []Day               `json:"-"`
}

// PolicyCompartment is what a policy says about some nodes, in words.
type PolicyCompartment struct {
	Name  string   `json:"name"`
	Rules []string `json:"rules"`
}

// describeCompartments says what a policy says about its compartments.
func describeCompartments(spec *v1alpha1.DeploymentPolicySpec) []PolicyCompartment {
	var out []PolicyCompartment
	add := func(name string, budget v1alpha1.Budget, strategy *v1alpha1.Strategy, wave v1alpha1.Wave, soak *metav1.Duration) {
		rules := []string{describeBudget(budget)}
		if strategy != nil {
			rules = append(rules, describeStrategy(strategy)...)
		}
		var after []string
		for _, before := range wave.After {
			after = append(after, rollout.GroupRef{Compartment: before}.Name())
		}
		if len(after) > 0 {
			rules = append(rules, "begins after "+output.List(after, 8))
		}
		if wave.Approval != "" {
			rules = append(rules, "begins when a person approves it")
		}
		if soak = cmp.Or(soak, spec.Soak); soak != nil && soak.Duration > 0 {
			rules = append(rules, "a node counts when it has been ready for "+FormatDuration(soak.Duration))
		}
		out = append(out, PolicyCompartment{rollout.GroupRef{Compartment: name}.Name(), rules})
	}
	for i := range spec.Compartments {
		c := &spec.Compartments[i]
		add(c.Name, c.Budget, c.Strategy, c.Wave, c.Soak)
	}
	add(v1alpha1.DefaultCompartment, spec.Default.Budget, &spec.Default.Strategy, spec.Default.Wave, nil)
	return out
}

func describeBudget(b v1alpha1.Budget) string {
	switch {
	case b.Percent != nil:
		return fmt.Sprintf("budget: %d %% of the nodes", *b.Percent)
	case b.Count != nil:
		return "budget: " + output.Count(int(*b.Count), "node")
	}
	return "no budget"
}

func describeStrategy(s *v1alpha1.Strategy) []string {
	growth, common := "every batch is as large", v1alpha1.BatchStrategy{}
	switch {
	case s.Fixed != nil:
		common = s.Fixed.BatchStrategy
	case s.Linear != nil:
		common, growth = s.Linear.BatchStrategy, fmt.Sprintf("each batch is larger by %d", ptr.Deref(s.Linear.Delta, 1))
	case s.Exponential != nil:
		common, growth = s.Exponential.BatchStrategy, fmt.Sprintf("each batch is %d times as large", ptr.Deref(s.Exponential.GrowthFactor, 2))
	}
	rules := []string{
		fmt.Sprintf("the first batch is %s, and %s", output.Count(int(ptr.Deref(common.InitialBatch, 1)), "node"), growth),
		fmt.Sprintf("a batch passes with %d %%", ptr.Deref(common.BatchThreshold, 100)),
	}
	if n := common.FailureThreshold; n != nil {
		rules = append(rules, fmt.Sprintf("it stops after %s that failed", output.Count(int(*n), "batch")))
	}
	return rules
}

// Day is a day of the calendar, in the time zone of the policy.
type Day struct {
	Date  time.Time // its begin
	End   time.Time
	Open  []Span
	Marks []time.Time // every six hours
}

// Summary says when a window is open on a day.
func (d Day) Summary() string {
	text := ""
	for i, span := range d.Open {
		if i > 0 {
			text += ", "
		}
		to := span.To.In(d.Date.Location()).Format("15:04")
		if span.To.Equal(d.End) {
			to = "24:00"
		}
		text += span.From.In(d.Date.Location()).Format("15:04") + "–" + to
	}
	if text == "" {
		return "closed"
	}
	return text
}

// splitDays splits spans into days of a time zone.
func splitDays(from time.Time, days int, open []Span) []Day {
	out := make([]Day, days)
	year, month, day := from.Date()
	for i := range out {
		d := Day{
			Date: time.Date(year, month, day+i, 0, 0, 0, 0, from.Location()), End: time.Date(year, month, day+i+1, 0, 0, 0, 0, from.Location()),
		}
		for hour := 6; hour < 24; hour += 6 {
			d.Marks = append(d.Marks, time.Date(year, month, day+i, hour, 0, 0, 0, from.Location()))
		}
		for _, span := range open {
			part := span
			if part.From.Before(d.Date) {
				part.From = d.Date
			}
			if part.To.After(d.End) {
				part.To = d.End
			}
			if part.To.After(part.From) {
				d.Open = append(d.Open, part)
			}
		}
		out[i] = d
	}
	return out
}

// ListPolicies describes all DeploymentPolicies, by name.
func (v *Cluster) ListPolicies() *Policies {
	out := &Policies{Now: v.Snapshot.Now.UTC(), Policies: []Policy{}}
	users := v.Objects.PolicyUsers(v.Plan)
	for _, p := range v.Objects.Policies {
		item := Policy{
			Outcome: policy.BuildStatus(p, users[p.Name], v.Plan.Groups, out.Now).Outcome,
			Name:    p.Name, Scope: cmp.Or(string(p.Spec.Scope), string(v1alpha1.ScopeSkyhook)), Paused: p.Spec.Paused,
			Windows: p.Spec.Windows != nil, UsedBy: v.usersOf(p.Name), Users: []string{}, Compartments: describeCompartments(&p.Spec),
		}
		for _, ref := range item.UsedBy {
			item.Users = append(item.Users, ShortName(ref))
		}
		if item.Windows {
			addCalendar(&item, p.Spec.Windows, out.Now)
		}
		out.Policies = append(out.Policies, item)
	}
	slices.SortFunc(out.Policies, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// usersOf returns the rollouts that a policy applies to.
func (v *Cluster) usersOf(name string) []rollout.Ref {
	var users []rollout.Ref
	for _, hook := range v.Objects.Skyhooks {
		if v.Compiled.Skyhook(hook).PolicyName() == name {
			users = append(users, plan.Ref(hook.Name))
		}
	}
	for _, op := range v.Objects.NodeOps {
		if op.Spec.DeploymentPolicy == name {
			users = append(users, nodeop.Ref(op))
		}
	}
	return users
}

// addCalendar adds when the windows of a policy are open.
func addCalendar(p *Policy, windows *v1alpha1.Windows, now time.Time) {
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
		p.Open = append(p.Open, Span{From: span.From.In(zone), To: span.To.In(zone)})
	}
	p.Days = splitDays(from, calendarDays, p.Open)
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
