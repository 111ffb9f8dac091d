// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewPolicyStatusCommand returns the command `deployment-policy status`.
func NewPolicyStatusCommand(f *session.Factory) *cobra.Command {
	var from session.ViewOptions
	cmd := &cobra.Command{
		Use:   "status [POLICY…]",
		Short: "Show what uses DeploymentPolicies, and when their windows are open",
		Long: "Show what uses DeploymentPolicies, whether a window is open now, when that changes, and when windows are open in the next two\n" +
			"weeks. Without names it shows all.",
		Example: "  kubectl skyhook deployment-policy status\n" +
			"  kubectl skyhook dp status nights -o json",
		RunE: func(cmd *cobra.Command, args []string) error { return runPolicyStatus(cmd.Context(), f, from, args) },
	}
	from.AddFromFlag(cmd)
	return cmd
}

func runPolicyStatus(ctx context.Context, f *session.Factory, from session.ViewOptions, names []string) error {
	v, err := session.LoadView(ctx, f, from)
	if err != nil {
		return err
	}
	all := v.ListPolicies()
	for _, name := range names {
		if !slices.ContainsFunc(all.Policies, func(p view.Policy) bool { return p.Name == name }) {
			return fmt.Errorf("there is no DeploymentPolicy %s", name)
		}
	}
	if len(names) > 0 {
		all.Policies = slices.DeleteFunc(all.Policies, func(p view.Policy) bool { return !slices.Contains(names, p.Name) })
	}
	var found []string
	for _, p := range all.Policies {
		found = append(found, p.Name)
	}
	return f.Print(output.Answer{Value: all, Names: output.WithKind("deploymentpolicy", found...), Text: func(bool) string { return formatPolicies(all) }})
}

func formatPolicies(all *view.Policies) string {
	if len(all.Policies) == 0 {
		return "There is no DeploymentPolicy.\n"
	}
	var b strings.Builder
	for i, p := range all.Policies {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "DeploymentPolicy %s: %s (%s), scope %s", p.Name, p.Verdict, p.Reason, p.Scope)
		if p.Paused {
			b.WriteString(", paused")
		}
		fmt.Fprintf(&b, "\n  used by  %s\n", cmp.Or(strings.Join(p.Users, ", "), "nothing"))
		b.WriteString(formatWindows(&p))
	}
	return b.String()
}

// formatWindows formats the windows of a policy, one line for each day.
func formatWindows(p *view.Policy) string {
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
	return text + "\n" + session.Indent(output.FormatTable([]string{"DAY", "OPEN"}, rows, nil))
}
