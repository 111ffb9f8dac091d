// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

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
	"github.com/skyhook-k8s/skyhook/internal/output"
)

func (a *factory) nodeListCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "list --skyhook SKYHOOK",
		Short: "List the nodes of a Skyhook",
		Long:  "List the nodes of a Skyhook: those it selects, and those it left something on.",
		Example: "  kubectl skyhook node list --skyhook demo\n" +
			"  kubectl skyhook node list --skyhook demo -o wide",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runNodeList(cmd.Context(), name) },
	}
	a.skyhookFlag(cmd, &name, true)
	return cmd
}

func (a *factory) runNodeList(ctx context.Context, name string) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	s, missing := a.getSkyhook(ctx, c, name)
	if missing != nil && !apierrors.IsNotFound(missing) {
		return missing
	}
	all, err := a.listNodeMetadata(ctx, c)
	if err != nil {
		return err
	}
	selector := labels.Nothing()
	if s != nil {
		if selector, err = metav1.LabelSelectorAsSelector(s.Spec.NodeSelectors.Kubernetes()); err != nil {
			return fmt.Errorf("reading nodeSelectors of Skyhook %s: %w", name, err)
		}
	}
	var found []nodeSummary
	for _, n := range all {
		if selector.Matches(labels.Set(n.Labels)) || slices.Contains(n.Skyhooks(), name) {
			found = append(found, summary(n, name, s))
		}
	}
	if s == nil && len(found) == 0 {
		return missing
	}
	return a.sayNodes(name, s, found)
}

func (a *factory) sayNodes(name string, s *v1alpha1.Skyhook, found []nodeSummary) error {
	type row struct {
		NodeName         string `json:"nodeName"`
		Status           string `json:"status"`
		PackagesComplete int    `json:"packagesComplete"`
		PackagesTotal    int    `json:"packagesTotal"`
		Restarts         int32  `json:"restarts"`
	}
	rows, all := []row{}, []string{}
	for i := range found {
		n := &found[i]
		rows = append(rows, row{n.NodeName, n.Status, n.PackagesComplete, n.PackagesTotal, n.restarts()})
		all = append(all, n.NodeName)
	}
	return a.Print(output.Answer{
		Value: struct {
			SkyhookName string `json:"skyhookName"`
			Nodes       []row  `json:"nodes"`
		}{name, rows},
		Names: output.WithKind("node", all...),
		Text: func(wide bool) string {
			gone := ""
			if s == nil {
				gone = " (does not exist any more)"
			}
			header, cells := []string{"NODE", "STATUS", "PACKAGES"}, [][]string{}
			if wide {
				header = append(header, "RESTARTS")
			}
			for _, r := range rows {
				line := []string{r.NodeName, loud(r.Status), fmt.Sprintf("%d/%d", r.PackagesComplete, r.PackagesTotal)}
				if wide {
					line = append(line, strconv.Itoa(int(r.Restarts)))
				}
				cells = append(cells, line)
			}
			return fmt.Sprintf("Skyhook: %s%s\nNodes: %d (%s)\n\n", name, gone, len(rows), tally(found)) + output.FormatTable(header, cells, a.Painter())
		},
	})
}

// loud puts a failure where eyes fall on it.
func loud(status string) string {
	if status == string(v1alpha1.StatusErroring) {
		return strings.ToUpper(status)
	}
	return status
}
