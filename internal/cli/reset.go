// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// resetting is one reset.
type resetting struct {
	sure        confirmation
	skipBatches bool
	nodes       []string // names or expressions; none for all
}

func (a *factory) resetCommand() *cobra.Command {
	var r resetting
	cmd := &cobra.Command{
		Use:   "reset SKYHOOK",
		Short: "Forget what a Skyhook did, on all nodes or on some",
		Long: "Forget what a Skyhook did: its annotations and its label go from the nodes, its cordons are given up, and its batches\n" +
			"begin again. The operator then starts over, within its budget. What packages installed is not removed.\n\n" +
			"It works without the Skyhook, and on nodes whose annotations cannot be read. With --node only these nodes are\n" +
			"reset, and the batches stay as they are.",
		Example: "  kubectl skyhook reset demo\n" +
			"  kubectl skyhook reset demo --node worker-1 --node 'gpu-.*' --confirm\n" +
			"  kubectl skyhook reset demo --dry-run",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: a.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return a.reset(cmd.Context(), &r, args[0]) },
	}
	r.sure.flags(cmd.Flags())
	cmd.Flags().BoolVar(&r.skipBatches, "skip-batch-reset", false, "leave the batches of its DeploymentPolicy as they are")
	a.nodeFlag(cmd, &r.nodes, "reset this `node` only, by name or regular expression; may be repeated")
	return cmd
}

func (a *factory) reset(ctx context.Context, r *resetting, name string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	s, missing := a.getSkyhook(ctx, c, name)
	if missing != nil && !apierrors.IsNotFound(missing) {
		return missing
	}
	touched, err := a.touched(ctx, c, name, r.nodes)
	if err != nil {
		return err
	}
	if s == nil && len(touched) == 0 {
		return missing
	}
	b, err := a.resetsBatches(ctx, c, r, s)
	if err != nil {
		return err
	}
	if a.DryRun || !r.sure.given {
		fmt.Fprint(a.ErrOut, a.resetText(name, s, touched, b))
	}
	if len(touched) == 0 && b == nil {
		return a.resetDone(name, touched, false)
	}
	if err := a.confirm(&r.sure, fmt.Sprintf("Reset Skyhook %q?", name)); err != nil {
		return err
	}
	if err := a.edit(ctx, c, touched, func(n *skyhook.Node) (skyhook.Edit, error) { return n.Reset(name, holds(n)), nil }); err != nil {
		return fmt.Errorf("resetting nodes: %w", err)
	}
	if b != nil && !a.DryRun {
		if err := a.forget(ctx, c, b); err != nil {
			return err
		}
	}
	return a.resetDone(name, touched, b != nil)
}

// touched are the nodes, among those named, on which the Skyhook left anything.
func (a *factory) touched(ctx context.Context, c client.Client, name string, args []string) ([]*skyhook.Node, error) {
	all, err := a.listNodes(ctx, c)
	if err != nil {
		return nil, err
	}
	if all, err = named(all, args); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(n *skyhook.Node) bool {
		_, labelled := n.Labels[v1alpha1.PrefixStatus+name]
		return !labelled && !slices.Contains(n.Skyhooks(), name)
	}), nil
}

// resetsBatches finds the batches to reset; nil when there are none to touch.
func (a *factory) resetsBatches(ctx context.Context, c client.Client, r *resetting, s *v1alpha1.Skyhook) (*batches, error) {
	if s == nil || r.skipBatches || len(r.nodes) > 0 {
		return nil, nil
	}
	return a.batches(ctx, c, s)
}

// resetText says what a reset will do.
func (a *factory) resetText(name string, s *v1alpha1.Skyhook, touched []*skyhook.Node, b *batches) string {
	text := ""
	if s == nil {
		text = fmt.Sprintf("Skyhook %q does not exist; what it left on nodes is removed\n", name)
	}
	if len(touched) == 0 {
		text += fmt.Sprintf("No nodes have state for Skyhook %q\n", name)
	} else {
		var rows [][]string
		for _, n := range touched {
			cordon := "-"
			switch e := n.Reset(name, holds(n)); {
			case e.Unschedulable != nil:
				cordon = "given back"
			case n.Unschedulable:
				cordon = "stays"
			}
			rows = append(rows, []string{n.Name, summary(n, name, s).Status, cordon})
		}
		text += fmt.Sprintf("%s to reset:\n", output.Count(len(touched), "node")) + a.nodeTable([]string{"NODE", "STATUS", "CORDON"}, rows, a.Painter())
	}
	if b != nil {
		text += b.shared() + "Batches to reset:\n" + b.text()
	}
	return text
}

func (a *factory) resetDone(name string, touched []*skyhook.Node, batches bool) error {
	return a.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "nodes": names(touched), "batchStateReset": batches, "dryRun": a.DryRun},
		Names: output.WithKind("node", names(touched)...),
		Text: func(bool) string {
			what, would := "", ""
			if batches {
				what = " and its batch state"
			}
			if a.DryRun {
				would = " (dry run)"
			}
			return fmt.Sprintf("Skyhook %q%s reset on %s%s\n", name, what, output.Count(len(touched), "node"), would)
		},
	})
}
