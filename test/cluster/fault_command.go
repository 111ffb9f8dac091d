// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func faultCommand(name *string) *cobra.Command {
	group := &cobra.Command{Use: "fault", Short: "Make the API server slow, or fail (after up --apiserver-proxy)"}
	group.AddCommand(faultAddCommand(name), faultListCommand(name), faultKillCommand(name), faultCutCommand(name), &cobra.Command{
		Use: "clear", Short: "Put an end to all faults", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			return c.SetFaults(cmd.Context())
		},
	})
	return group
}

func faultAddCommand(name *string) *cobra.Command {
	var f faults.Fault
	var delay, skew time.Duration
	add := &cobra.Command{
		Use: "add", Short: "Put one more fault before the API server", Args: cobra.NoArgs,
		Example: `  cluster fault add --delay 2s --method PATCH --path /api/v1/nodes/
  cluster fault add --status 500 --chance 0.3 --user system:serviceaccount:skyhook:
  cluster fault add --hangup after --times 1 --method POST --path /pods`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			f.Delay, f.Skew = faults.Duration(delay), faults.Duration(skew)
			return c.AddFault(cmd.Context(), f)
		},
	}
	flags := add.Flags()
	flags.StringVar(&f.User, "user", "", "only requests of users whose name matches this regular expression")
	flags.StringVar(&f.Method, "method", "", "only requests with an HTTP method that matches this regular expression")
	flags.StringVar(&f.Path, "path", "", "only requests whose path and query match this regular expression")
	flags.Float64Var(&f.Chance, "chance", 0, "how likely it happens, between 0 and 1 (default always)")
	flags.IntVar(&f.Skip, "skip", 0, "let so many pass first")
	flags.IntVar(&f.Times, "times", 0, "end after so many (default never)")
	flags.DurationVar(&delay, "delay", 0, "wait this long first")
	flags.IntVar(&f.Status, "status", 0, "answer with this HTTP status instead of asking the API server")
	flags.DurationVar(&skew, "skew", 0, "add this to each time that the request writes, as if the client's clock were wrong")
	flags.StringVar(&f.Hangup, "hangup", "", "before: hang up instead of asking the API server; after: hang up when it has done what was asked")
	return add
}

func faultKillCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "kill PROGRAM", Short: "Kill a program of the control plane, which starts again a second later", Args: cobra.ExactArgs(1),
		Example: "  cluster fault kill etcd",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			return c.KillProgram(cmd.Context(), args[0])
		},
	}
}

func faultCutCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "cut-watches USER", Short: "End the watches of users whose name matches this regular expression", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			n, err := c.CutWatches(cmd.Context(), args[0])
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%d watches ended\n", n)
			}
			return err
		},
	}
}

func faultListCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the faults in force, and how often each has happened", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			counts, err := c.Faults(cmd.Context())
			for _, count := range counts {
				text, err := json.Marshal(count)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), string(text))
			}
			return err
		},
	}
}
