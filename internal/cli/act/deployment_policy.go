// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// NewDeploymentPolicyResetCommand returns the command `deployment-policy reset`.
func NewDeploymentPolicyResetCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset SKYHOOK",
		Short: "Restart the batches of a Skyhook",
		Long: "Restart the batches of a Skyhook with the first one: a rollout that stopped because of failures continues. Nodes keep\n" +
			"their state. The argument is the name of a Skyhook; when its policy has scope Policy, the batches of all objects that\n" +
			"name this policy restart. The command does not ask; --confirm is accepted and ignored.",
		Example: "  kubectl skyhook deployment-policy reset demo\n  kubectl skyhook dp reset demo --dry-run",
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runBatchReset(cmd.Context(), f, args[0]) },
	}
	session.AddIgnoredConfirmation(cmd.Flags())
	return cmd
}

func runBatchReset(ctx context.Context, f *session.Factory, name string) error {
	c, err := f.Connect()
	if err != nil {
		return err
	}
	s, err := f.GetSkyhook(ctx, c, name)
	if err != nil {
		return err
	}
	b, err := findBatchState(ctx, f, c, s)
	if err != nil {
		return err
	}
	fmt.Fprint(f.ErrOut, b.formatText())
	if !f.DryRun {
		if err := b.reset(ctx, f, c); err != nil {
			return err
		}
	}
	return f.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "compartments": len(b.compartments()), "dryRun": f.DryRun},
		Names: output.WithKind("skyhook", name),
		Text:  func(bool) string { return fmt.Sprintf("Batch state of Skyhook %q reset%s\n", name, f.DryRunSuffix()) },
	})
}
