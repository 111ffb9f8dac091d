// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

func (a *factory) deploymentPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "deployment-policy", Aliases: []string{"dp"},
		Short: "Steer what a DeploymentPolicy learned",
		RunE:  helpOnly,
	}
	cmd.AddCommand(a.deploymentPolicyResetCommand())
	return cmd
}

func (a *factory) deploymentPolicyResetCommand() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use:   "reset SKYHOOK",
		Short: "Let the batches of a Skyhook begin again",
		Long: "Let the batches of a Skyhook begin again, as before the first one: a rollout that stopped because of failures goes\n" +
			"on. Nodes keep what they have. It takes the name of a Skyhook; when its policy has scope Policy, the batches of all\n" +
			"who name that policy begin again.",
		Example: "  kubectl skyhook deployment-policy reset demo\n  kubectl skyhook dp reset demo --confirm",
		Args:    output.Args("SKYHOOK"), ValidArgsFunction: a.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return a.resetBatches(cmd.Context(), &sure, args[0]) },
	}
	sure.flags(cmd.Flags())
	return cmd
}

func (a *factory) resetBatches(ctx context.Context, sure *confirmation, name string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	s, err := a.getSkyhook(ctx, c, name)
	if err != nil {
		return err
	}
	b, err := a.batches(ctx, c, s)
	if err != nil {
		return err
	}
	if a.DryRun || !sure.given {
		fmt.Fprint(a.ErrOut, b.shared()+b.text())
	}
	if err := a.confirm(sure, fmt.Sprintf("Let the batches of Skyhook %q begin again?", name)); err != nil {
		return err
	}
	would := ""
	if a.DryRun {
		would = " (dry run)"
	} else if err := a.forget(ctx, c, b); err != nil {
		return err
	}
	return a.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "compartments": len(b.compartments()), "dryRun": a.DryRun},
		Names: output.WithKind("skyhook", name),
		Text:  func(bool) string { return fmt.Sprintf("Batch state of Skyhook %q reset%s\n", name, would) },
	})
}
