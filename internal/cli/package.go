// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/packagecli"
)

func newPackageCommand(f *factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Show and control packages on nodes, and create packages",
		Long: "Show and control packages on nodes: status, logs, rerun.\n\n" +
			"Create packages, without a cluster and without Docker: init, validate, test, build, push, pull, inspect.",
		RunE: runGroup,
	}
	cmd.AddCommand(newPackageStatusCommand(f), newPackageLogsCommand(f), newPackageRerunCommand(f))
	cmd.AddCommand(packagecli.Commands(f.Printer, f.version)...)
	return cmd
}
