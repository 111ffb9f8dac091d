// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/ui"
)

func newPolicyStatusCommand(f *factory) *cobra.Command {
	var from viewOptions
	cmd := &cobra.Command{
		Use:   "status [POLICY…]",
		Short: "Show what uses DeploymentPolicies, and when their windows are open",
		Long: "Show what uses DeploymentPolicies, whether a window is open now, when that changes, and when windows are open in the next two\n" +
			"weeks. Without names it shows all.",
		Example: "  kubectl skyhook deployment-policy status\n" +
			"  kubectl skyhook dp status nights -o json",
		RunE: func(cmd *cobra.Command, args []string) error { return runPolicyStatus(cmd.Context(), f, from, args) },
	}
	from.addFromFlag(cmd)
	return cmd
}

func runPolicyStatus(ctx context.Context, f *factory, from viewOptions, names []string) error {
	if _, err := f.CheckFormat(); err != nil {
		return err
	}
	v, err := loadView(ctx, f, from)
	if err != nil {
		return err
	}
	all := v.listPolicies()
	for _, name := range names {
		if !slices.ContainsFunc(all.Policies, func(p ui.Policy) bool { return p.Name == name }) {
			return fmt.Errorf("there is no DeploymentPolicy %s", name)
		}
	}
	if len(names) > 0 {
		all.Policies = slices.DeleteFunc(all.Policies, func(p ui.Policy) bool { return !slices.Contains(names, p.Name) })
	}
	var found []string
	for _, p := range all.Policies {
		found = append(found, p.Name)
	}
	return f.Print(output.Answer{Value: all, Names: output.WithKind("deploymentpolicy", found...), Text: func(bool) string { return formatPolicies(all) }})
}

func formatPolicies(all *ui.Policies) string {
	if len(all.Policies) == 0 {
		return "There is no DeploymentPolicy.\n"
	}
	var b strings.Builder
	for i, p := range all.Policies {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "DeploymentPolicy %s: scope %s", p.Name, p.Scope)
		if p.Paused {
			b.WriteString(", paused")
		}
		fmt.Fprintf(&b, "\n  used by  %s\n", cmp.Or(strings.Join(p.Users, ", "), "nothing"))
		b.WriteString(formatWindows(&p))
	}
	return b.String()
}

// formatWindows formats the windows of a policy, one line for each day.
func formatWindows(p *ui.Policy) string {
	switch {
	case p.Problem != "":
		return fmt.Sprintf("  windows  they cannot be used: %s\n", p.Problem)
	case !p.Windows:
		return "  windows  none: work may start at any time\n"
	}
	now, change := "closed", "opens"
	if p.IsOpen {
		now, change = "open", "closes"
	}
	text := fmt.Sprintf("  windows  %s now, and throughout the next two weeks", now)
	if !p.Next.IsZero() {
		text = fmt.Sprintf("  windows  %s now; it %s at %s", now, change, p.Next.Format("2006-01-02 15:04 MST"))
	}
	text += "; times are in " + p.TimeZone + "\n"
	var rows [][]string
	for _, d := range p.Days {
		rows = append(rows, []string{d.Date.Format("Mon 2 Jan"), d.Summary()})
	}
	return text + "\n" + indent(output.FormatTable([]string{"DAY", "OPEN"}, rows, nil))
}

// calendarDays is how far the calendar of windows reaches.
const calendarDays = 14

// listPolicies describes all DeploymentPolicies, by name.
func (v *view) listPolicies() *ui.Policies {
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
	return out
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
