// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package preview has the commands that show what would be: plan, simulate and validate.
package preview

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// ExitChanges is the exit code of a plan with changes, as for diff.
const ExitChanges = 2

// NewPlanCommand returns the command `plan`.
func NewPlanCommand(f *session.Factory) *cobra.Command {
	var from session.ViewOptions
	waves := -1
	cmd := &cobra.Command{
		Use:   "plan [SKYHOOK|nodeop/NAME…]",
		Short: "Show what would happen next, in the cluster or for files",
		Long: "Show what would happen next: which nodes change, in which waves, which stages run and why, which pods are evicted and\n" +
			"which disruption budgets refuse that now. The plan comes from the same code as in the operator. Nothing is changed.\n\n" +
			"With -f the plan is for files that are not applied yet. It assumes that everything succeeds.\n\n" +
			"Exit code 0: nothing would change; 2: something would change; 1: the plan failed, or with -f an object would not be accepted.",
		Example: "  kubectl skyhook plan\n" +
			"  kubectl skyhook plan -f skyhook.yaml -f policy.yaml\n" +
			"  kubectl skyhook plan demo --from stuck.yaml -o json",
		ValidArgsFunction: f.CompleteSkyhooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return runPlan(cmd.Context(), f, from, args, waves) },
	}
	from.AddFromFlag(cmd)
	from.AddFilesFlag(cmd)
	cmd.Flags().IntVar(&waves, "waves", waves, fmt.Sprintf("number of waves to print; 0 for all; default: all up to %d nodes, otherwise 10", view.MaxNodesSimulated))
	return cmd
}

func runPlan(ctx context.Context, f *session.Factory, from session.ViewOptions, args []string, waves int) error {
	if _, err := f.CheckFormat(); err != nil {
		return err
	}
	v, err := session.LoadView(ctx, f, from)
	if err != nil {
		return err
	}
	if err := v.CheckNames(args); err != nil {
		return err
	}
	if err := session.LoadNextPods(ctx, f, v); err != nil {
		return err
	}
	p := view.BuildPlan(v, args, view.LimitWaves(waves, 10, len(v.Snapshot.Nodes)))
	if err := f.Print(output.Answer{Value: p, Names: p.Names(), Text: func(wide bool) string { return FormatPlan(p, wide) }}); err != nil {
		return err
	}
	isRefused := func(r view.RolloutPlan) bool { return r.Problem != "" }
	if len(from.Files) > 0 && slices.ContainsFunc(p.Rollouts, isRefused) {
		return output.ProblemsFound()
	}
	if p.Changes {
		return &output.ExitError{Code: ExitChanges}
	}
	return nil
}
