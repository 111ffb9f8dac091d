// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// resetOptions are the flags of forget, and what it found.
type resetOptions struct {
	*session.Factory
	sure        session.Confirmation
	keepBatches bool
	nodeArgs    []string // names or expressions; none for all nodes
	name        string
	skyhook     *v1alpha1.Skyhook // nil when it does not exist
	nodes       []*node.Node      // with state of the Skyhook
	batches     *batchState       // nil when no batches are reset
}

// NewForgetCommand returns the command `forget`.
func NewForgetCommand(f *session.Factory) *cobra.Command {
	o := &resetOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "forget SKYHOOK",
		Short: "Have nodes forget a Skyhook, so that it starts again there",
		Long: "Have nodes forget a Skyhook. This removes its annotations and its label on nodes, its cordons and its batch state. The operator then\n" +
			"starts again, within the budget. Installed packages stay.\n\n" +
			"A deleted Skyhook leaves the record of packages that stay on hosts, and a Skyhook of the same name takes it over,\n" +
			"unless nodes forget it.\n\n" +
			"It also works when the Skyhook does not exist, and on nodes with unreadable annotations. Without anything to remove it\n" +
			"changes nothing and succeeds. With --node only these nodes forget it, and the batch state stays.",
		Example: "  kubectl skyhook forget demo\n" +
			"  kubectl skyhook forget demo --node worker-1 --node 'gpu-.*' --confirm\n" +
			"  kubectl skyhook forget demo --dry-run",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(cmd.Context())
		},
	}
	o.sure.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.keepBatches, "skip-batch-reset", false, "keep the batch state")
	f.AddNodeFlag(cmd, &o.nodeArgs, "only this `node`, by name or regular expression; may be repeated")
	return cmd
}

func (o *resetOptions) run(ctx context.Context) error {
	c, err := o.NewClient()
	if err != nil {
		return err
	}
	if err := o.load(ctx, c); err != nil {
		return err
	}
	if o.skyhook == nil && len(o.nodes) == 0 {
		return o.printResult()
	}
	if o.DryRun || !o.sure.Given {
		fmt.Fprint(o.ErrOut, o.formatPreview())
	}
	if len(o.nodes) == 0 && o.batches == nil {
		return o.printResult()
	}
	if err := o.Confirm(&o.sure, fmt.Sprintf("Reset Skyhook %q?", o.name)); err != nil {
		return err
	}
	noteReboots(o.Factory, o.nodes, o.name)
	err = session.EditNodes(ctx, o.Factory, c, o.nodes, func(n *node.Node) (node.Edit, error) { return n.Reset(o.name, n.Holds(nil)), nil })
	if err != nil {
		return fmt.Errorf("resetting nodes: %w", err)
	}
	if o.batches != nil {
		if err := o.batches.reset(ctx, c); err != nil {
			return err
		}
	}
	return o.printResult()
}

// load reads the Skyhook, the selected nodes that have its state, and the batch state.
func (o *resetOptions) load(ctx context.Context, c client.Client) error {
	var err error
	if o.skyhook, err = o.GetSkyhook(ctx, c, o.name); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	all, err := session.ListNodes(ctx, o.Factory, c)
	if err != nil {
		return err
	}
	if all, err = session.SelectNodes(all, o.nodeArgs); err != nil {
		return err
	}
	o.nodes = slices.DeleteFunc(slices.Clone(all), func(n *node.Node) bool {
		_, labelled := n.Labels[v1alpha1.PrefixStatus+o.name]
		return !labelled && !slices.Contains(n.Skyhooks(), o.name)
	})
	if o.skyhook == nil || o.keepBatches || len(o.nodeArgs) > 0 {
		return nil
	}
	o.batches, err = findBatchState(ctx, o.Factory, c, o.skyhook)
	return err
}

// formatPreview describes what the reset changes.
func (o *resetOptions) formatPreview() string {
	text := ""
	if o.skyhook == nil {
		text = fmt.Sprintf("Skyhook %q does not exist; what it left on nodes is removed\n", o.name)
	}
	if len(o.nodes) == 0 {
		text += fmt.Sprintf("No nodes have state for Skyhook %q\n", o.name)
	} else {
		var rows [][]string
		for _, n := range o.nodes {
			cordon := "-"
			switch edit := n.Reset(o.name, n.Holds(nil)); {
			case edit.Unschedulable != nil:
				cordon = "removed"
			case n.Unschedulable:
				cordon = "stays"
			}
			rows = append(rows, []string{n.Name, view.SummarizeNode(n, o.name, o.skyhook).Status, cordon})
		}
		text += fmt.Sprintf("%s to reset:\n", output.Count(len(o.nodes), "node")) +
			o.FormatNodeTable([]string{"NODE", "STATUS", "CORDON"}, rows, o.Painter())
	}
	if o.batches != nil {
		text += "Batches to reset:\n" + o.batches.formatText()
	}
	return text
}

func (o *resetOptions) printResult() error {
	names := session.NodeNames(o.nodes)
	what, where := "", "no node"
	if o.batches != nil {
		what = " and its batch state"
	}
	if len(o.nodeArgs) > 0 {
		where = "none of these nodes"
	}
	line := fmt.Sprintf("Skyhook %q%s reset on %s", o.name, what, output.Count(len(names), "node"))
	if o.skyhook == nil && len(names) == 0 {
		line = fmt.Sprintf("Skyhook %q does not exist, and %s has state of it: nothing to reset", o.name, where)
	}
	value := map[string]any{"skyhookName": o.name, "nodes": names, "batchStateReset": o.batches != nil}
	return o.PrintChange(value, output.WithKind("node", names...), line)
}

// NewNodeReapplyCommand returns the command `node reapply`.
func NewNodeReapplyCommand(f *session.Factory) *cobra.Command {
	var name string
	var sure session.Confirmation
	cmd := &cobra.Command{
		Use:   "reapply NODE… --skyhook SKYHOOK",
		Short: "Apply all packages of a Skyhook again on nodes",
		Long: "Apply all packages of a Skyhook again on nodes: every package starts again with its first stage. A cordon of the Skyhook stays until the\n" +
			"node is complete. A node that is down in its reboot starts again when it is back, and counts against the budget until\n" +
			"then. See also forget --node, which removes everything that the Skyhook wrote to the node.",
		Example: "  kubectl skyhook node reapply worker-1 --skyhook demo",
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
	lines := make([]string, len(names))
	for i, node := range names {
		lines[i] = fmt.Sprintf("Node %q reset for Skyhook %q", node, name)
	}
	return f.PrintChange(map[string]any{"skyhookName": name, "nodes": names}, output.WithKind("node", names...), lines...)
}

// noteReboots says on which nodes a reset has to wait because they are down in a reboot of the Skyhook.
func noteReboots(f *session.Factory, nodes []*node.Node, skyhook string) {
	for _, n := range nodes {
		if n.IsDownInReboot(skyhook) {
			fmt.Fprintf(f.ErrOut, "Node %q is down in its reboot: Skyhook %q starts again there when it is back, and until then it counts against the budget\n", n.Name, skyhook)
		}
	}
}
