// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewWhyCommand returns the command `why`.
func NewWhyCommand(f *session.Factory) *cobra.Command {
	var from session.ViewOptions
	cmd := &cobra.Command{
		Use:   "why NODE|SKYHOOK|nodeop/NAME",
		Short: "Explain why a node or a rollout waits, and what would help",
		Long: "Explain why a node or a rollout waits: the reason of each wait, since when, and what would end it. Causes are followed: a\n" +
			"node waits for an earlier Skyhook, which waits for a pod, and so on.\n\n" +
			"A name of both a node and a Skyhook is the node; use node/NAME or skyhook/NAME to choose.",
		Example: "  kubectl skyhook why worker-1\n" +
			"  kubectl skyhook why demo\n" +
			"  kubectl skyhook why nodeop/kernel-version",
		Args: output.Args("NODE|SKYHOOK|nodeop/NAME"), ValidArgsFunction: f.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error { return runWhy(cmd.Context(), f, from, args[0]) },
	}
	from.AddFromFlag(cmd)
	return cmd
}

func runWhy(ctx context.Context, f *session.Factory, from session.ViewOptions, arg string) error {
	v, err := session.LoadView(ctx, f, from)
	if err != nil {
		return err
	}
	node := strings.TrimPrefix(strings.TrimPrefix(arg, "node/"), "no/")
	r := v.FindRollout(arg)
	var all []view.Explanation
	switch {
	case v.Objects.Node(node) != nil:
		all = view.ExplainNode(v, node)
	case r != nil:
		all = view.ExplainRollout(v, r)
	default:
		return fmt.Errorf("there is no node and no rollout %q: %s", arg, v.ListNames())
	}
	var subjects []string
	for _, e := range all {
		subjects = append(subjects, e.Subject)
	}
	return f.Print(output.Answer{Value: all, Names: subjects, Text: func(bool) string { return FormatExplanations(all, 0) }})
}

// FormatExplanations formats reasons, each with its causes indented below.
func FormatExplanations(all []view.Explanation, depth int) string {
	var b strings.Builder
	prefix, arrow := strings.Repeat("    ", depth), ""
	if depth > 0 {
		arrow = "└ "
	}
	for i, e := range all {
		if depth == 0 && i > 0 {
			b.WriteString("\n")
		}
		title := e.Subject
		if e.Phase != "" {
			title += ": " + e.Phase
		}
		if e.Since != "" {
			title += ", for " + e.Since
		}
		if e.Profile != nil {
			title += ", profile " + e.Profile.String()
		}
		fmt.Fprintf(&b, "%s%s%s\n%s  %s: %s\n", prefix, arrow, title, prefix, e.Reason, e.Text)
		if e.Help != "" {
			fmt.Fprintf(&b, "%s  → %s\n", prefix, e.Help)
		}
		if e.Drain != nil {
			b.WriteString(formatDrain(e.Drain, prefix+"  "))
		}
		b.WriteString(FormatExplanations(e.Causes, depth+1))
	}
	return b.String()
}
