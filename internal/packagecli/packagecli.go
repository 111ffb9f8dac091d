// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packagecli has the commands for authors of packages: they create, validate, test, build and publish packages,
// without a cluster and without Docker.
package packagecli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// packageCommands is what the commands for packages share.
type packageCommands struct {
	*output.Printer
	version string // of the plugin
}

// Commands returns the commands for authors of packages, which stand below "kubectl skyhook package".
func Commands(p *output.Printer, version string) []*cobra.Command {
	a := &packageCommands{Printer: p, version: version}
	return []*cobra.Command{
		a.initCommand(), a.validateCommand(), a.testCommand(), a.sandboxCommand(),
		a.buildCommand(), a.pushCommand(), a.pullCommand(), a.inspectCommand(),
	}
}

// addJSONFlag adds --json, which is older than -o json.
func (a *packageCommands) addJSONFlag(flags *pflag.FlagSet) {
	flags.BoolFunc("json", "same as -o json", func(string) error {
		a.Format = output.JSON
		return nil
	})
}
