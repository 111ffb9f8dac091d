// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packages has the commands about packages on nodes: their status, their logs, and running them again.
package packages

import (
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/packagecli"
)

// NewPackageCommand returns the command `package`.
func NewPackageCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Show and control packages on nodes, and create packages",
		Long: "Show and control packages on nodes: status, logs, rerun.\n\n" +
			"Create packages, without a cluster and without Docker: init, validate, test, build, push, pull, inspect.",
		RunE: session.RunGroup,
	}
	cmd.AddCommand(newPackageStatusCommand(f), newPackageLogsCommand(f), newPackageRerunCommand(f))
	cmd.AddCommand(packagecli.Commands(f.Printer, f.Version)...)
	return cmd
}
