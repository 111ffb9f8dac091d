// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/packagecli"
)

func (a *factory) packageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "See and steer packages on nodes, and make packages",
		Long: "See and steer packages on nodes: status, logs, rerun.\n\n" +
			"Make packages, without a cluster and without Docker: init, validate, test, build, push, pull, inspect.",
		RunE: helpOnly,
	}
	cmd.AddCommand(
		a.packageStatusCommand(), a.packageLogsCommand(), a.packageRerunCommand(),
	)
	cmd.AddCommand(packagecli.Commands(a.Printer, a.version)...)
	return cmd
}

// packageOf is a package of a Skyhook's spec.
func packageOf(s *v1alpha1.Skyhook, name string) (v1alpha1.Package, error) {
	p, ok := s.Spec.Packages[name]
	if !ok {
		return p, fmt.Errorf("there is no package %q in Skyhook %s; it has %s", name, s.Name,
			cmp.Or(output.List(slices.Sorted(maps.Keys(s.Spec.Packages)), 20), "none"))
	}
	return p, nil
}
