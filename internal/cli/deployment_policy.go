// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

func newDeploymentPolicyCommand(f *factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deployment-policy", Aliases: []string{"dp"},
		Short: "Show DeploymentPolicies, and control their batches",
		RunE:  runGroup,
	}
	cmd.AddCommand(newPolicyStatusCommand(f), newDeploymentPolicyResetCommand(f))
	return cmd
}

func newDeploymentPolicyResetCommand(f *factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset SKYHOOK",
		Short: "Restart the batches of a Skyhook",
		Long: "Restart the batches of a Skyhook with the first one: a rollout that stopped because of failures continues. Nodes keep\n" +
			"their state. The argument is the name of a Skyhook; when its policy has scope Policy, the batches of all objects that\n" +
			"name this policy restart. The command does not ask; --confirm is accepted and ignored.",
		Example: "  kubectl skyhook deployment-policy reset demo\n  kubectl skyhook dp reset demo --dry-run",
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runBatchReset(cmd.Context(), f, args[0]) },
	}
	addIgnoredConfirmation(cmd.Flags())
	return cmd
}

func runBatchReset(ctx context.Context, f *factory, name string) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	s, err := f.getSkyhook(ctx, c, name)
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
		Text:  func(bool) string { return fmt.Sprintf("Batch state of Skyhook %q reset%s\n", name, f.dryRunSuffix()) },
	})
}
