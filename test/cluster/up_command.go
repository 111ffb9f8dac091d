// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func upCommand(name *string) *cobra.Command {
	var s testcluster.Spec
	var nodes string
	var labels []string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a cluster up and wait until its nodes are ready",
		Example: `  cluster up --nodes 2
  cluster up --nodes gpu-1,gpu-2 --control-plane-node --labels agentpool=gpu --labels gpu-1:zone=a
  cluster up --nodes 0 --simulated 1000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.Nodes, err = nodeNames(nodes); err != nil {
				return err
			}
			if s.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			s.Name = *name
			c, err := testcluster.Up(cmd.Context(), s, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig)
			return err
		},
	}
	specFlags(cmd, &s, &nodes)
	f := cmd.Flags()
	f.StringArrayVar(&labels, "labels", nil, "labels of all nodes, KEY=VALUE[,KEY=VALUE…], or of one, NODE:KEY=VALUE[,…]; may be repeated")
	f.StringArrayVar(&s.SmallDisks, "small-disk", nil, "directory of real nodes that gets a file system of 64 MiB of its own, so that it can be filled; may be repeated")
	f.DurationVar(&s.SimulatedDelay, "simulated-delay", 0, "how long one init container of a pod on a simulated node takes; a pod's annotation skyhook.test/delay wins")
	f.BoolVar(&s.SimulatedTaint, "simulated-taint", false, "taint simulated nodes with skyhook.test/simulated=true:NoSchedule")
	f.DurationVar(&s.GracePeriod, "node-monitor-grace-period", 0, "silence after which a node is not ready (default 12s, 40s with simulated nodes, 20m with more than 500)")
	f.IntVar(&s.APIPort, "api-port", 0, "port of the API server on 127.0.0.1 (default any that is free)")
	f.IntVar(&s.RegistryPort, "registry-port", 0, "port of the registry on 127.0.0.1 (default any that is free)")
	f.BoolVar(&s.APIServerProxy, "apiserver-proxy", false, "put a proxy before the API server that can be told to be slow or to fail, see `cluster fault`")
	return cmd
}

// specFlags are the flags that decide what has to be built.
func specFlags(cmd *cobra.Command, s *testcluster.Spec, nodes *string) {
	f := cmd.Flags()
	f.StringVar(nodes, "nodes", "1", "how many real nodes, or their names, separated by commas")
	f.StringSliceVar(&s.Trixie, "trixie", nil, "names of real nodes that have Debian 13 in place of Debian 12, separated by commas")
	f.StringVar(&s.ControlPlane, "control-plane-node", "", "run the control plane on a node of its own, with this name")
	f.Lookup("control-plane-node").NoOptDefVal = "control-plane"
	f.IntVar(&s.Simulated, "simulated", 0, "how many simulated nodes")
}

// nodeNames reads a number of nodes or a list of names.
func nodeNames(text string) ([]string, error) {
	if text == "" {
		return nil, fmt.Errorf("--nodes is empty: give a number, such as 2, or names, such as gpu-1,gpu-2")
	}
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 {
			return nil, fmt.Errorf("--nodes %d: the number must not be negative", n)
		}
		if n > network.MaxNodes {
			return nil, fmt.Errorf("--nodes %d: at most %d real ones are possible; ask for simulated ones", n, network.MaxNodes)
		}
		names := make([]string, 0, n)
		for i := range n {
			names = append(names, fmt.Sprintf("node%d", i+1))
		}
		return names, nil
	}
	return strings.Split(text, ","), nil
}

// parseLabels reads KEY=VALUE,… for all nodes and NODE:KEY=VALUE,… for one.
func parseLabels(all []string) ([]testcluster.Label, error) {
	var labels []testcluster.Label
	for _, text := range all {
		node, pairs, own := strings.Cut(text, ":")
		if !own {
			node, pairs = "", text
		}
		for _, pair := range strings.Split(pairs, ",") {
			key, value, found := strings.Cut(pair, "=")
			if !found || key == "" || own && node == "" {
				return nil, fmt.Errorf("--labels %q: write KEY=VALUE,… for all nodes or NODE:KEY=VALUE,… for one", text)
			}
			labels = append(labels, testcluster.Label{Node: node, Key: key, Value: value})
		}
	}
	return labels, nil
}

func downCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Take a cluster down; nothing of it is left",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return testcluster.Down(cmd.Context(), *name) },
	}
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the clusters that are up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := testcluster.Names()
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return err
		},
	}
}
