// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewNodeStatusCommand returns the command `node status`.
func NewNodeStatusCommand(f *session.Factory) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "status [NODE…]",
		Short: "Show the state of Skyhooks on nodes",
		Long:  "Show the state of Skyhooks on all nodes or on the named ones. -o wide prints one line for each package.",
		Example: "  kubectl skyhook node status\n" +
			"  kubectl skyhook node status worker-1 'gpu-.*' --skyhook demo -o wide",
		ValidArgsFunction: f.CompleteNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return runNodeStatus(cmd.Context(), f, args, name) },
	}
	f.AddSkyhookFlag(cmd, &name, false)
	return cmd
}

// runNodeStatus prints the state of one Skyhook, or of all when only is empty.
func runNodeStatus(ctx context.Context, f *session.Factory, args []string, only string) error {
	_, nodes, err := session.ConnectAndSelect(ctx, f, args)
	if err != nil {
		return err
	}
	summaries, names := []view.NodeSummary{}, []string{}
	for _, n := range nodes {
		before := len(summaries)
		for _, name := range n.Skyhooks() {
			if only == "" || name == only {
				summaries = append(summaries, view.SummarizeNode(n, name, nil))
			}
		}
		if len(summaries) > before {
			names = append(names, n.Name)
		}
	}
	return f.Print(output.Answer{Value: summaries, Names: output.WithKind("node", names...), Text: func(wide bool) string {
		if len(summaries) == 0 {
			return "No Skyhook has left anything on these nodes\n"
		}
		text := ""
		for _, s := range summaries {
			if s.Problem != "" {
				text += "warning: " + s.Problem + "\n"
			}
		}
		if wide {
			return text + formatPackages(f, summaries)
		}
		var rows [][]string
		for _, s := range summaries {
			rows = append(rows, []string{s.NodeName, s.SkyhookName, s.Status, s.FormatProgress()})
		}
		return text + output.FormatTable([]string{"NODE", "SKYHOOK", "STATUS", "PACKAGES"}, rows, f.Painter())
	}})
}

// formatPackages formats a table with one line for each package on each node.
func formatPackages(f *session.Factory, summaries []view.NodeSummary) string {
	var rows [][]string
	for _, s := range summaries {
		for _, p := range s.Packages {
			rows = append(rows, []string{
				s.NodeName, s.SkyhookName, p.Name, p.Version, string(p.Stage), string(p.State), strconv.Itoa(int(p.Restarts)), p.Image,
			})
		}
	}
	return output.FormatTable([]string{"NODE", "SKYHOOK", "PACKAGE", "VERSION", "STAGE", "STATE", "RESTARTS", "IMAGE"}, rows, f.Painter())
}
