// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/packagecli/scaffold"
)

func (a *packageCommands) initCommand() *cobra.Command {
	var p scaffold.Package
	var dir string
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Create the folder of a new package",
		Long: "Create the folder of a new package, with steps and checks for every stage, a README and a test. It can be validated,\n" +
			"tested and built as it is.",
		Example: "  kubectl skyhook package init motd\n" +
			"  kubectl skyhook package init motd --dir packages/motd --package-version 1.0.0 --preflight",
		Args: output.Args("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			p.Name = args[0]
			return a.initPackage(p, cmp.Or(dir, args[0]))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `folder` to create (default NAME)")
	cmd.Flags().StringVar(&p.Version, "package-version", "0.1.0", "the `version` of the package")
	cmd.Flags().BoolVar(&p.Preflight, "preflight", false, "add a step that looks at a node before its turn, and says what the package needs there")
	return cmd
}

func (a *packageCommands) initPackage(p scaffold.Package, dir string) error {
	if err := p.Validate(); err != nil {
		return err
	}
	var made []string
	if !a.DryRun {
		var err error
		if made, err = p.WriteFolder(dir); err != nil {
			return err
		}
	}
	return a.Print(output.Answer{
		Value: map[string]any{"package": p.Name, "version": p.Version, "dir": dir, "files": made, "dryRun": a.DryRun},
		Names: output.WithKind("package", p.Name),
		Text: func(bool) string {
			if a.DryRun {
				return fmt.Sprintf("Package %s %s would be created in %s (dry run)\n", p.Name, p.Version, dir)
			}
			text := ""
			for _, f := range made {
				text += filepath.Join(dir, f) + "\n"
			}
			return text + fmt.Sprintf("\nPackage %s %s is in %s. Next:\n\n"+
				"  kubectl skyhook package validate %s\n  kubectl skyhook package test %s --host-like debian\n", p.Name, p.Version, dir, dir, dir)
		},
	})
}
