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
	f := newFactory(l)
	root := &cobra.Command{
		Use:   "kubectl-skyhook",
		Short: "Control Skyhooks, and create packages for them",
		Long: "Control Skyhooks, and create packages for them.\n\n" +
			"A Skyhook installs packages on the nodes of a cluster. These commands show its progress on each node, pause it and\n" +
			"restart parts of it. Package authors create, validate, test and publish packages with them, without a cluster.",
		Version:       l.Version,
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl skyhook"},
		RunE:        runGroup,
	}
	root.SetIn(l.Stdin)
	root.SetOut(l.Stdout)
	root.SetErr(l.Stderr)
	root.SetVersionTemplate("Skyhook plugin: {{.Version}}\n")
	f.addGlobalFlags(root.PersistentFlags())
	for _, t := range toggles {
		root.AddCommand(newToggleCommand(f, t))
	}
	root.AddCommand(
		newResetCommand(f), newApproveCommand(f), newDeploymentPolicyCommand(f), newNodeCommand(f), newPackageCommand(f),
		newStatusCommand(f), newWhyCommand(f), newPlanCommand(f), newSimulateCommand(f), newDriftCommand(f), newHistoryCommand(f), newDiffCommand(f), newUndoCommand(f), newValidateCommand(f),
		newCleanupCommand(f), newMigrateCommand(f), newSupportBundleCommand(f), newDumpCommand(f), newUICommand(f), newOptionsCommand(f), newVersionCommand(f),
	)
	return root
}

// runGroup is the RunE of commands that only hold others: it prints the help, and refuses an unknown command.
func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}
