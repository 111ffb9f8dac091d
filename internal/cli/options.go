// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// everyday are the flags of kubectl that every help shows; the others are told of by options, as kubectl does.
var everyday = []string{"context", "kubeconfig", "namespace"}

// addKubeFlags adds kubectl's flags to those of all commands.
func (a *factory) addKubeFlags(all *pflag.FlagSet) {
	kube := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.kubeFlags.AddFlags(kube)
	kube.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(everyday, f.Name) })
	all.AddFlagSet(kube)
}

func (a *factory) optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command takes",
		Long:  "List the flags that every command takes, among them all of kubectl's that choose the cluster and the user.",
		Args:  output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(a.Out, GlobalFlags(cmd.Root()))
			return err
		},
	}
}

// GlobalFlags describes the flags that every command takes.
func GlobalFlags(root *cobra.Command) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		visible := *f
		visible.Hidden = false
		shown.AddFlag(&visible)
	})
	return shown.FlagUsages()
}
