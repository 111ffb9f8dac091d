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
			"restart parts of it. Package authors create, validate, test and publish packages with them, without a cluster.\n\n" +
			"Exit code: 0 for success, 1 for an error, and 2 for differences with --detailed-exitcode.",
		Version:       l.Version,
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl skyhook"},
		RunE:        session.RunGroup,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			_, err := f.CheckFormat() // before anything is read or changed
			return err
		},
	}
	root.SetIn(l.Stdin)
	root.SetOut(l.Stdout)
	root.SetErr(l.Stderr)
	root.SetVersionTemplate("Skyhook plugin: {{.Version}}\n")
	f.AddGlobalFlags(root)
	addGroups(root, f)
	return root
}

// addGroups adds all commands, by what people do with them.
func addGroups(root *cobra.Command, f *session.Factory) {
	actions := []*cobra.Command{
		newNodeCommand(f), act.NewApproveCommand(f), act.NewUndoCommand(f), act.NewForgetCommand(f), act.NewRestartBatchesCommand(f), act.NewCleanupCommand(f),
		migrate.NewMigrateCommand(f),
	}
	for _, t := range act.Toggles {
		actions = append(actions, act.NewToggleCommand(f, t))
	}
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Look", []*cobra.Command{
			look.NewStatusCommand(f), look.NewWhyCommand(f), look.NewHistoryCommand(f), look.NewDriftCommand(f), newDeploymentPolicyCommand(f), newNodeOpCommand(f), page.NewUICommand(f),
		}},
		{"Preview", []*cobra.Command{preview.NewPlanCommand(f), preview.NewSimulateCommand(f), preview.NewValidateCommand(f), look.NewDiffCommand(f)}},
		{"Act", actions},
		{"Packages", []*cobra.Command{packages.NewPackageCommand(f)}},
		{"Support", []*cobra.Command{support.NewSupportBundleCommand(f), support.NewDumpCommand(f), session.NewOptionsCommand(f), support.NewVersionCommand(f)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	root.SetHelpCommandGroupID("Support")
	root.SetCompletionCommandGroupID("Support")
	root.AddCommand(formerly("reset SKYHOOK", act.NewForgetCommand(f)))
}

// formerly gives a command the name that it had before it was named by its effect. Help does not show it.
func formerly(use string, c *cobra.Command) *cobra.Command {
	c.Use, c.Hidden = use, true
	return c
}

func newDeploymentPolicyCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deployment-policy", Aliases: []string{"dp"},
		Short: "Show DeploymentPolicies and their windows",
		RunE:  session.RunGroup,
	}
	cmd.AddCommand(look.NewPolicyStatusCommand(f), formerly("reset SKYHOOK", act.NewRestartBatchesCommand(f)))
	return cmd
}

func newNodeOpCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{Use: "node-op", Aliases: []string{"nodeop"}, Short: "Print what NodeOps did", RunE: session.RunGroup}
	cmd.AddCommand(act.NewNodeOpLogsCommand(f))
	return cmd
}

func newNodeCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Describe, drain, reboot and ignore nodes, and run commands there",
		Long: "Describe, drain, reboot and ignore nodes, and run commands there.\n\n" +
			"NODE is a name, or a regular expression for the whole name when it contains one of .*+?^${}[]|()\\",
		RunE: session.RunGroup,
	}
	cmd.AddCommand(
		look.NewNodeDescribeCommand(f), act.NewNodeIgnoreCommand(f), act.NewNodeUnignoreCommand(f), act.NewNodeReapplyCommand(f),
		act.NewNodeRebootCommand(f), act.NewNodeDrainCommand(f), act.NewNodeRunCommand(f),
		look.NewNodeListCommand(f), look.NewNodeStatusCommand(f), formerly("reset NODE… --skyhook SKYHOOK", act.NewNodeReapplyCommand(f)),
	)
	return cmd
}
