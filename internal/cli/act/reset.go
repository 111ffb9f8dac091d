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

// resetOptions are the flags of reset, and what it found.
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

// NewResetCommand returns the command `reset`.
func NewResetCommand(f *session.Factory) *cobra.Command {
	o := &resetOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "reset SKYHOOK",
		Short: "Remove the state of a Skyhook from all or some nodes",
		Long: "Remove the state of a Skyhook: its annotations and its label on nodes, its cordons and its batch state. The operator then\n" +
			"starts again, within the budget. Installed packages stay.\n\n" +
			"A deleted Skyhook leaves the record of packages that stay on hosts, and a Skyhook of the same name takes it over: reset\n" +
			"makes nodes forget it.\n\n" +
			"It also works when the Skyhook does not exist, and on nodes with unreadable annotations. Without anything to remove it\n" +
			"changes nothing and succeeds. With --node only these nodes are reset, and the batch state stays.",
		Example: "  kubectl skyhook reset demo\n" +
			"  kubectl skyhook reset demo --node worker-1 --node 'gpu-.*' --confirm\n" +
			"  kubectl skyhook reset demo --dry-run",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(cmd.Context())
		},
	}
	o.sure.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.keepBatches, "skip-batch-reset", false, "keep the batch state")
	f.AddNodeFlag(cmd, &o.nodeArgs, "reset only this `node`, by name or regular expression; may be repeated")
	return cmd
}

func (o *resetOptions) run(ctx context.Context) error {
	c, err := o.Connect()
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
	if o.batches != nil && !o.DryRun {
		if err := o.batches.reset(ctx, o.Factory, c); err != nil {
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
	return o.Print(output.Answer{
		Value: map[string]any{"skyhookName": o.name, "nodes": names, "batchStateReset": o.batches != nil, "dryRun": o.DryRun},
		Names: output.WithKind("node", names...),
		Text: func(bool) string {
			if o.skyhook == nil && len(names) == 0 {
				return o.formatNothing()
			}
			what := ""
			if o.batches != nil {
				what = " and its batch state"
			}
			return fmt.Sprintf("Skyhook %q%s reset on %s%s\n", o.name, what, output.Count(len(names), "node"), o.DryRunSuffix())
		},
	})
}

// formatNothing returns the text for nothing to reset.
func (o *resetOptions) formatNothing() string {
	where := "no node"
	if len(o.nodeArgs) > 0 {
		where = "none of these nodes"
	}
	return fmt.Sprintf("Skyhook %q does not exist, and %s has state of it: nothing to reset\n", o.name, where)
}
