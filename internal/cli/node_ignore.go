// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

func (a *factory) nodeIgnoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ignore NODE…",
		Short: "Keep all Skyhooks away from nodes",
		Long:  "Keep all Skyhooks away from nodes, by the label " + v1alpha1.LabelIgnore + "=true.",
		Example: "  kubectl skyhook node ignore worker-1\n" +
			"  kubectl skyhook node ignore 'gpu-.*' --dry-run",
		Args: output.Args("NODE…"), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			yes := "true"
			return a.ignore(cmd.Context(), args, &yes, "ignored")
		},
	}
}

func (a *factory) nodeUnignoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "unignore NODE…",
		Short:   "Let Skyhooks work on nodes again",
		Long:    "Let Skyhooks work on nodes again: the label " + v1alpha1.LabelIgnore + " goes.",
		Example: "  kubectl skyhook node unignore worker-1",
		Args:    output.Args("NODE…"), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error { return a.ignore(cmd.Context(), args, nil, "unignored") },
	}
}

func (a *factory) ignore(ctx context.Context, args []string, value *string, done string) error {
	c, all, err := a.asked(ctx, args)
	if err != nil {
		return err
	}
	change := slices.DeleteFunc(slices.Clone(all), func(n *skyhook.Node) bool {
		now, set := n.Labels[v1alpha1.LabelIgnore]
		return value == nil && !set || value != nil && now == *value
	})
	err = a.edit(ctx, c, change, func(*skyhook.Node) (skyhook.Edit, error) {
		return skyhook.Edit{Labels: map[string]*string{v1alpha1.LabelIgnore: value}}, nil
	})
	if err != nil {
		return fmt.Errorf("labelling nodes: %w", err)
	}
	return a.Print(output.Answer{
		Value: map[string]any{"nodes": names(all), "action": done, "dryRun": a.DryRun},
		Names: output.WithKind("node", names(all)...),
		Text: func(bool) string {
			text := ""
			for _, n := range all {
				text += fmt.Sprintf("Node %q %s", n.Name, done)
				if !slices.Contains(change, n) {
					text += " (unchanged)"
				} else if a.DryRun {
					text += " (dry run)"
				}
				text += "\n"
			}
			return text
		},
	})
}
