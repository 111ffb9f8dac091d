// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewNodeListCommand returns the command `node list`.
func NewNodeListCommand(f *session.Factory) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "list --skyhook SKYHOOK",
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
	c, err := f.Connect()
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
				line := []string{r.NodeName, emphasizeFailure(r.Status), fmt.Sprintf("%d/%d", r.PackagesComplete, r.PackagesTotal)}
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

// emphasizeFailure prints the status of a failing node in capitals.
func emphasizeFailure(status string) string {
	if status == string(v1alpha1.StatusErroring) {
		return strings.ToUpper(status)
	}
	return status
}
