// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packagecli has the commands for authors of packages: they create, validate, test, build and publish packages,
// without a cluster and without Docker.
package packagecli

import (
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// app is what all commands share.
type app struct {
	*output.Printer
	version string // of the plugin
}

// Commands returns the commands for authors of packages, which stand below "kubectl skyhook package".
func Commands(p *output.Printer, version string) []*cobra.Command {
	a := &app{Printer: p, version: version}
	return []*cobra.Command{
		a.packageInitCommand(), a.packageValidateCommand(), a.packageTestCommand(), a.packageRoomCommand(),
		a.packageBuildCommand(), a.packagePushCommand(), a.packagePullCommand(), a.packageInspectCommand(),
	}
}
