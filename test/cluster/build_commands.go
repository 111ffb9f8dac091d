// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func assetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the directory with etcd, kube-apiserver and kubectl; build them first if they are missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := build.Open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			dir, err := cache.Kubernetes(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
}

func buildCommand() *cobra.Command {
	var s testcluster.Spec
	var nodes string
	var kwok bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build what a cluster consists of, and bring nothing up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.Nodes, err = nodeNames(nodes); err != nil {
				return err
			}
			if kwok {
				s.Simulated = 1
			}
			return testcluster.Build(cmd.Context(), s, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&nodes, "nodes", "1", "0 leaves out what only real nodes need")
	cmd.Flags().BoolVar(&kwok, "kwok", false, "build kwok too, which simulated nodes need")
	return cmd
}
