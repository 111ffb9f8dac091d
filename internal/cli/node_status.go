// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

func (a *factory) nodeStatusCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "status [NODE…]",
		Short: "Show what Skyhooks have done on nodes",
		Long:  "Show what Skyhooks have done on nodes: on all of them, or on those named. -o wide shows one line for each package.",
		Example: "  kubectl skyhook node status\n" +
			"  kubectl skyhook node status worker-1 'gpu-.*' --skyhook demo -o wide",
		ValidArgsFunction: a.completeNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.nodeStatus(cmd.Context(), args, name) },
	}
	a.skyhookFlag(cmd, &name, false)
	return cmd
}

func (a *factory) nodeStatus(ctx context.Context, args []string, only string) error {
	_, all, err := a.asked(ctx, args)
	if err != nil {
		return err
	}
	found, nodes := []nodeSummary{}, []string{}
	for _, n := range all {
		of := ofSkyhook(n, only)
		for _, name := range of {
			found = append(found, summary(n, name, nil))
		}
		if len(of) > 0 {
			nodes = append(nodes, n.Name)
		}
	}
	return a.Print(output.Answer{Value: found, Names: output.WithKind("node", nodes...), Text: func(wide bool) string {
		if len(found) == 0 {
			return "No Skyhook has left anything on these nodes\n"
		}
		text := ""
		for _, s := range found {
			if s.Problem != "" {
				text += "warning: " + s.Problem + "\n"
			}
		}
		if wide {
			return text + a.packageRows(found)
		}
		var rows [][]string
		for _, s := range found {
			rows = append(rows, []string{s.NodeName, s.SkyhookName, s.Status, s.share()})
		}
		return text + output.FormatTable([]string{"NODE", "SKYHOOK", "STATUS", "PACKAGES"}, rows, a.Painter())
	}})
}

// packageRows is one line for each package on each node.
func (a *factory) packageRows(found []nodeSummary) string {
	var rows [][]string
	for _, s := range found {
		for _, p := range s.Packages {
			rows = append(rows, []string{
				s.NodeName, s.SkyhookName, p.Name, p.Version, string(p.Stage), string(p.State), strconv.Itoa(int(p.Restarts)), p.Image,
			})
		}
	}
	return output.FormatTable([]string{"NODE", "SKYHOOK", "PACKAGE", "VERSION", "STAGE", "STATE", "RESTARTS", "IMAGE"}, rows, a.Painter())
}
