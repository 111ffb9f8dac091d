// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/act"
	"github.com/skyhook-k8s/skyhook/internal/cli/look"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
)

func newDeploymentPolicyCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deployment-policy", Aliases: []string{"dp"},
		Short: "Show DeploymentPolicies, and control their batches",
		RunE:  session.RunGroup,
	}
	cmd.AddCommand(look.NewPolicyStatusCommand(f), act.NewDeploymentPolicyResetCommand(f))
	return cmd
}

func newNodeCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Show and control Skyhooks on nodes",
		Long: "Show and control Skyhooks on nodes.\n\n" +
			"NODE is a name, or a regular expression for the whole name when it contains one of .*+?^${}[]|()\\",
		RunE: session.RunGroup,
	}
	cmd.AddCommand(look.NewNodeListCommand(f), look.NewNodeStatusCommand(f), look.NewNodeDescribeCommand(f), act.NewNodeIgnoreCommand(f), act.NewNodeUnignoreCommand(f), act.NewNodeResetCommand(f),
		act.NewNodeRebootCommand(f), act.NewNodeDrainCommand(f), act.NewNodeRunCommand(f))
	return cmd
}
