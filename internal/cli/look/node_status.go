// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewNodeStatusCommand returns the command `node status`.
func NewNodeStatusCommand(f *session.Factory) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "status [NODE…]", Hidden: true,
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

// NewNodeListCommand returns the command `node list`.
func NewNodeListCommand(f *session.Factory) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "list --skyhook SKYHOOK", Hidden: true,
		Short: "List the nodes of a Skyhook",
		Long:  "List the nodes of a Skyhook: those that it selects, and those that still have its state.",
		Example: "  kubectl skyhook node list --skyhook demo\n" +
			"  kubectl skyhook node list --skyhook demo -o wide",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runNodeList(cmd.Context(), f, name) },
	}
	f.AddSkyhookFlag(cmd, &name, true)
	return cmd
}

func runNodeList(ctx context.Context, f *session.Factory, name string) error {
	c, err := f.NewClient()
	if err != nil {
		return err
	}
	s, missing := f.GetSkyhook(ctx, c, name)
	if missing != nil && !apierrors.IsNotFound(missing) {
		return missing
	}
	nodes, err := session.ListNodeMetadata(ctx, f, c)
	if err != nil {
		return err
	}
	selector := labels.Nothing()
	if s != nil {
		if selector, err = metav1.LabelSelectorAsSelector(s.Spec.NodeSelectors.Kubernetes()); err != nil {
			return fmt.Errorf("reading nodeSelectors of Skyhook %s: %w", name, err)
		}
	}
	var summaries []view.NodeSummary
	for _, n := range nodes {
		if selector.Matches(labels.Set(n.Labels)) || slices.Contains(n.Skyhooks(), name) {
			summaries = append(summaries, view.SummarizeNode(n, name, s))
		}
	}
	if s == nil && len(summaries) == 0 {
		return missing
	}
	return printNodeList(f, name, s, summaries)
}

func printNodeList(f *session.Factory, name string, s *v1alpha1.Skyhook, summaries []view.NodeSummary) error {
	type row struct {
		NodeName         string `json:"nodeName"`
		Status           string `json:"status"`
		PackagesComplete int    `json:"packagesComplete"`
		PackagesTotal    int    `json:"packagesTotal"`
		Restarts         int32  `json:"restarts"`
	}
	rows, names := []row{}, []string{}
	for i := range summaries {
		n := &summaries[i]
		rows = append(rows, row{n.NodeName, n.Status, n.PackagesComplete, n.PackagesTotal, n.CountRestarts()})
		names = append(names, n.NodeName)
	}
	return f.Print(output.Answer{
		Value: struct {
			SkyhookName string `json:"skyhookName"`
			Nodes       []row  `json:"nodes"`
		}{name, rows},
		Names: output.WithKind("node", names...),
		Text: func(wide bool) string {
			gone := ""
			if s == nil {
				gone = " (no longer exists)"
			}
			header, cells := []string{"NODE", "STATUS", "PACKAGES"}, [][]string{}
			if wide {
				header = append(header, "RESTARTS")
			}
			for _, r := range rows {
				line := []string{r.NodeName, r.Status, fmt.Sprintf("%d/%d", r.PackagesComplete, r.PackagesTotal)}
				if wide {
					line = append(line, strconv.Itoa(int(r.Restarts)))
				}
				cells = append(cells, line)
			}
			return fmt.Sprintf("Skyhook: %s%s\nNodes: %d (%s)\n\n", name, gone, len(rows), view.CountStatuses(summaries)) +
				output.FormatTable(header, cells, f.Painter())
		},
	})
}
