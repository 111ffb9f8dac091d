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

// NewNodeResetCommand returns the command `node reset`.
func NewNodeResetCommand(f *session.Factory) *cobra.Command {
	var name string
	var sure session.Confirmation
	cmd := &cobra.Command{
		Use:   "reset NODE… --skyhook SKYHOOK",
		Short: "Restart a Skyhook on nodes",
		Long: "Restart a Skyhook on nodes: every package starts again with its first stage. A cordon of the Skyhook stays until the\n" +
			"node is complete. A node that is down in its reboot starts again when it is back, and counts against the budget until\n" +
			"then. See also reset --node, which removes everything that the Skyhook wrote to the node.",
		Example: "  kubectl skyhook node reset worker-1 --skyhook demo",
		Args:    output.Args("NODE…"), ValidArgsFunction: f.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodeReset(cmd.Context(), f, args, name, &sure)
		},
	}
	f.AddSkyhookFlag(cmd, &name, true)
	sure.AddFlags(cmd.Flags())
	return cmd
}

func runNodeReset(ctx context.Context, f *session.Factory, args []string, name string, sure *session.Confirmation) error {
	c, nodes, err := session.ConnectAndSelect(ctx, f, args)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node.Node) bool {
		_, hasState := n.Annotations[v1alpha1.PrefixNodeState+name]
		return !hasState
	})
	names := session.NodeNames(nodes)
	if len(nodes) == 0 {
		fmt.Fprintf(f.ErrOut, "None of these nodes has state for Skyhook %q\n", name)
	} else if err := f.Confirm(sure, fmt.Sprintf("Restart Skyhook %q on %s: %s?", name, output.Count(len(nodes), "node"), output.List(names, 10))); err != nil {
		return err
	}
	noteReboots(f, nodes, name)
	err = session.EditNodes(ctx, f, c, nodes, func(n *node.Node) (node.Edit, error) { return n.Restart(name), nil })
	if err != nil {
		return fmt.Errorf("resetting nodes: %w", err)
	}
	return f.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "nodes": names, "dryRun": f.DryRun},
		Names: output.WithKind("node", names...),
		Text: func(bool) string {
			text := ""
			for _, node := range names {
				text += fmt.Sprintf("Node %q reset for Skyhook %q%s\n", node, name, f.DryRunSuffix())
			}
			return text
		},
	})
}

// noteReboots says on which nodes a reset has to wait because they are down in a reboot of the Skyhook.
func noteReboots(f *session.Factory, nodes []*node.Node, skyhook string) {
	for _, n := range nodes {
		if n.IsDownInReboot(skyhook) {
			fmt.Fprintf(f.ErrOut, "Node %q is down in its reboot: Skyhook %q starts again there when it is back, and until then it counts against the budget\n", n.Name, skyhook)
		}
	}
}
