// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// NewNodeIgnoreCommand returns the command `node ignore`.
func NewNodeIgnoreCommand(f *session.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "ignore NODE…",
		Short: "Exclude nodes from all Skyhooks",
		Long:  "Exclude nodes from all Skyhooks and NodeOps with the label " + v1alpha1.LabelIgnore + "=true.",
		Example: "  kubectl skyhook node ignore worker-1\n" +
			"  kubectl skyhook node ignore 'gpu-.*' --dry-run",
		Args: output.Args("NODE…"), ValidArgsFunction: f.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return RunIgnore(cmd.Context(), f, args, new("true"), "ignored")
		},
	}
}

// NewNodeUnignoreCommand returns the command `node unignore`.
func NewNodeUnignoreCommand(f *session.Factory) *cobra.Command {
	return &cobra.Command{
		Use:     "unignore NODE…",
		Short:   "Include nodes in Skyhooks again",
		Long:    "Include nodes in Skyhooks again: remove the label " + v1alpha1.LabelIgnore + ".",
		Example: "  kubectl skyhook node unignore worker-1",
		Args:    output.Args("NODE…"), ValidArgsFunction: f.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return RunIgnore(cmd.Context(), f, args, nil, "unignored")
		},
	}
}

// RunIgnore sets or removes the ignore label on nodes, and prints what was done.
func RunIgnore(ctx context.Context, f *session.Factory, args []string, label *string, done string) error {
	c, nodes, err := session.ConnectAndSelect(ctx, f, args)
	if err != nil {
		return err
	}
	changed := slices.DeleteFunc(slices.Clone(nodes), func(n *node.Node) bool {
		current, labelled := n.Labels[v1alpha1.LabelIgnore]
		if label == nil {
			return !labelled
		}
		return current == *label
	})
	err = session.EditNodes(ctx, f, c, changed, func(*node.Node) (node.Edit, error) {
		return node.Edit{Labels: map[string]*string{v1alpha1.LabelIgnore: label}}, nil
	})
	if err != nil {
		return fmt.Errorf("labelling nodes: %w", err)
	}
	names := session.NodeNames(nodes)
	lines := make([]string, len(nodes))
	for i, n := range nodes {
		lines[i] = fmt.Sprintf("Node %q %s", n.Name, done)
		if !slices.Contains(changed, n) {
			lines[i] += " (unchanged)"
		}
	}
	return f.PrintChange(map[string]any{"nodes": names, "action": done}, output.WithKind("node", names...), lines...)
}
