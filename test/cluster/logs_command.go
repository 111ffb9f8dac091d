// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func logsCommand(name *string) *cobra.Command {
	var lines int
	cmd := &cobra.Command{
		Use:   "logs [SOURCE…]",
		Short: "Print logs: of the control plane's programs, the registry, consoles and journals of nodes; all if none is named",
		Example: `  cluster logs kube-apiserver
  cluster logs node1 --lines 500`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			return c.Logs(cmd.Context(), cmd.OutOrStdout(), lines, args...)
		},
	}
	cmd.Flags().IntVar(&lines, "lines", 100, "how many of the last lines of each, 0 for all")
	return cmd
}
