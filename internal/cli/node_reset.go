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

func (a *factory) nodeResetCommand() *cobra.Command {
	var name string
	var sure confirmation
	cmd := &cobra.Command{
		Use:   "reset NODE… --skyhook SKYHOOK",
		Short: "Let a Skyhook start over on nodes",
		Long: "Let a Skyhook start over on nodes: every package begins with its first stage. A cordon of the Skyhook stays until\n" +
			"the node is done. See also reset --node, which removes everything the Skyhook wrote to the node.",
		Example: "  kubectl skyhook node reset worker-1 --skyhook demo",
		Args:    output.Args("NODE…"), ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error { return a.resetNodes(cmd.Context(), args, name, &sure) },
	}
	a.skyhookFlag(cmd, &name, true)
	sure.flags(cmd.Flags())
	return cmd
}

func (a *factory) resetNodes(ctx context.Context, args []string, name string, sure *confirmation) error {
	c, all, err := a.asked(ctx, args)
	if err != nil {
		return err
	}
	change := slices.DeleteFunc(slices.Clone(all), func(n *skyhook.Node) bool {
		_, set := n.Annotations[v1alpha1.PrefixNodeState+name]
		return !set
	})
	if len(change) == 0 {
		fmt.Fprintf(a.ErrOut, "None of these nodes has state for Skyhook %q\n", name)
	} else if err := a.confirm(sure, fmt.Sprintf("Let Skyhook %q start over on %s: %s?", name, output.Count(len(change), "node"), output.List(names(change), 10))); err != nil {
		return err
	}
	err = a.edit(ctx, c, change, func(n *skyhook.Node) (skyhook.Edit, error) { return n.Restart(name), nil })
	if err != nil {
		return fmt.Errorf("resetting nodes: %w", err)
	}
	return a.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "nodes": names(change), "dryRun": a.DryRun},
		Names: output.WithKind("node", names(change)...),
		Text: func(bool) string {
			text := ""
			for _, n := range change {
				text += fmt.Sprintf("Node %q reset for Skyhook %q", n.Name, name)
				if a.DryRun {
					text += " (dry run)"
				}
				text += "\n"
			}
			return text
		},
	})
}
