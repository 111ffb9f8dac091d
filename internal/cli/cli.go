// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is kubectl skyhook: it shows what Skyhooks do, steers them, and makes, checks and tries packages.
//
// It decides nothing about nodes. What it writes to them it gets from the front end that also reads it, and it writes
// with the resource version it read, so that it never undoes what the operator did meanwhile. It lists, and never asks
// for one node after the other.
package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// Line is one command line and what is around it.
type Line struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Version        string // of the plugin
}

// factory is what all commands share.
type factory struct {
	*output.Printer
	version   string
	kubeFlags *genericclioptions.ConfigFlags
}

// Run carries out a command line and returns the exit code.
func Run(ctx context.Context, l Line) int {
	log.SetLogger(logr.Discard()) // the client would complain that nobody listens

	root := Command(l)
	root.SetArgs(l.Args)
	err := root.ExecuteContext(ctx)
	code, unprinted := output.ExitCode(err)
	if unprinted {
		fmt.Fprintf(l.Stderr, "error: %v\n", err)
	}
	return code
}

// Command is the whole tree of commands.
func Command(l Line) *cobra.Command {
	a := &factory{
		Printer:   &output.Printer{In: l.Stdin, Out: l.Stdout, ErrOut: l.Stderr},
		version:   l.Version,
		kubeFlags: genericclioptions.NewConfigFlags(true),
	}
	a.kubeFlags.CacheDir = nil // nothing is discovered, so nothing is kept
	*a.kubeFlags.Namespace = defaultNamespace
	a.kubeFlags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.QPS, c.Burst = -1, 0 // a few lists, and writes that we pace ourselves
		c.UserAgent = "kubectl-skyhook/" + l.Version + " skyhook-plugin"
		return c
	}
	root := &cobra.Command{
		Use:   "kubectl-skyhook",
		Short: "Steer Skyhooks, and make packages for them",
		Long: "Steer Skyhooks, and make packages for them.\n\n" +
			"A Skyhook takes packages to the nodes of a cluster. These commands show how far it is on each node, pause it,\n" +
			"start parts of it again, and let package authors make, check, try and publish packages without a cluster.",
		Version:       l.Version,
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl skyhook"},
		RunE:        helpOnly,
	}
	root.SetIn(l.Stdin)
	root.SetOut(l.Stdout)
	root.SetErr(l.Stderr)
	root.SetVersionTemplate("Skyhook plugin: {{.Version}}\n")
	flags := root.PersistentFlags()
	a.addKubeFlags(flags)
	flags.StringVarP(&a.Format, "output", "o", output.Table, "how to print: table, wide, json, yaml or name")
	flags.BoolVar(&a.DryRun, "dry-run", false, "say what would be done, and do nothing")
	flags.BoolVarP(&a.Verbose, "verbose", "v", false, "tell on standard error what is read and written")
	root.AddCommand(
		a.pauseCommand(), a.resumeCommand(), a.disableCommand(), a.enableCommand(),
		a.resetCommand(), a.deploymentPolicyCommand(), a.nodeCommand(), a.packageCommand(),
		a.statusCommand(), a.whyCommand(), a.planCommand(), a.simulateCommand(), a.validateFilesCommand(), a.cleanupCommand(), a.supportBundleCommand(), a.dumpCommand(),
		a.optionsCommand(), a.versionCommand(),
	)
	return root
}

// helpOnly is the RunE of commands that only hold others: a word that is none of them is an error.
func helpOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}
