// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Command cluster brings up a real Kubernetes on this machine, without Docker: systemd hosts that can be rebooted,
// crashed and looked into, and simulated nodes by the thousand.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func main() {
	testcluster.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := program().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func program() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes on this machine, without Docker",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	name := root.PersistentFlags().String("name", testcluster.DefaultName, "which cluster is meant; two with different names do not touch each other")
	root.AddCommand(upCommand(name), downCommand(name), listCommand(), kubeconfigCommand(name), kubectlCommand(name), nodeCommand(name),
		imageCommand(name), faultCommand(name), logsCommand(name), buildCommand(), assetsCommand())
	return root
}
