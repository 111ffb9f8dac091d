// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

func (a *app) packageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "See and steer packages on nodes, and make packages",
		Long: "See and steer packages on nodes: status, logs, rerun.\n\n" +
			"Make packages, without a cluster and without Docker: init, validate, test, build, push, pull, inspect.",
		RunE: helpOnly,
	}
	cmd.AddCommand(
		a.packageStatusCommand(), a.packageLogsCommand(), a.packageRerunCommand(),
		a.packageInitCommand(), a.packageValidateCommand(), a.packageTestCommand(), a.packageRoomCommand(), a.packageBuildCommand(), a.packagePushCommand(), a.packagePullCommand(), a.packageInspectCommand(),
	)
	return cmd
}

// packageOf is a package of a Skyhook's spec.
func packageOf(s *v1alpha1.Skyhook, name string) (v1alpha1.Package, error) {
	p, ok := s.Spec.Packages[name]
	if !ok {
		return p, fmt.Errorf("there is no package %q in Skyhook %s; it has %s", name, s.Name,
			or(some(slices.Sorted(maps.Keys(s.Spec.Packages)), 20), "none"))
	}
	return p, nil
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
