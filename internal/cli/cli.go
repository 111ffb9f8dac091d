// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is kubectl skyhook: the commands about a running cluster, and the root command that also holds those of
// packagecli.
//
// Commands decide nothing about nodes: front ends compute what is written to a node. Writes carry the resource version that
// was read, so that they never undo a change of the operator. Reads are lists, never one request for each node.
package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/internal/cli/act"
	"github.com/skyhook-k8s/skyhook/internal/cli/look"
	"github.com/skyhook-k8s/skyhook/internal/cli/migrate"
	"github.com/skyhook-k8s/skyhook/internal/cli/packages"
	"github.com/skyhook-k8s/skyhook/internal/cli/page"
	"github.com/skyhook-k8s/skyhook/internal/cli/preview"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/cli/support"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// Line is a command line with its streams.
type Line struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Version        string // of the plugin
}

// Run executes a command line and returns the exit code.
func Run(ctx context.Context, l Line) int {
	l.Stdout, l.Stderr = output.Clean(l.Stdout), output.Clean(l.Stderr)
	log.SetLogger(logr.Discard()) // otherwise the client warns that there is no logger

	root := Command(l)
	root.SetArgs(l.Args)
	err := root.ExecuteContext(ctx)
	code, unprinted := output.ExitCode(err)
	if unprinted {
		fmt.Fprintf(l.Stderr, "error: %v\n", err)
	}
	return code
}

// Command returns the root command with all commands below it.
func Command(l Line) *cobra.Command {
	f := session.NewFactory(l.Stdin, l.Stdout, l.Stderr, l.Version)
	root := &cobra.Command{
		Use:   "kubectl-skyhook",
		Short: "Control Skyhooks, and create packages for them",
		Long: "Control Skyhooks, and create packages for them.\n\n" +
			"A Skyhook installs packages on the nodes of a cluster. These commands show its progress on each node, pause it and\n" +
			"restart parts of it. Package authors create, validate, test and publish packages with them, without a cluster.",
		Version:       l.Version,
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl skyhook"},
		RunE:        session.RunGroup,
	}
	root.SetIn(l.Stdin)
	root.SetOut(l.Stdout)
	root.SetErr(l.Stderr)
	root.SetVersionTemplate("Skyhook plugin: {{.Version}}\n")
	f.AddGlobalFlags(root.PersistentFlags())
	for _, t := range act.Toggles {
		root.AddCommand(act.NewToggleCommand(f, t))
	}
	root.AddCommand(
		act.NewResetCommand(f), act.NewApproveCommand(f), newDeploymentPolicyCommand(f), newNodeCommand(f), packages.NewPackageCommand(f),
		look.NewStatusCommand(f), look.NewWhyCommand(f), preview.NewPlanCommand(f), preview.NewSimulateCommand(f), look.NewDriftCommand(f), look.NewHistoryCommand(f), look.NewDiffCommand(f), act.NewUndoCommand(f), preview.NewValidateCommand(f),
		act.NewCleanupCommand(f), migrate.NewMigrateCommand(f), support.NewSupportBundleCommand(f), support.NewDumpCommand(f), page.NewUICommand(f), session.NewOptionsCommand(f), support.NewVersionCommand(f),
	)
	return root
}
