// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

func (a *factory) packageStatusCommand() *cobra.Command {
	var name string
	var nodes []string
	cmd := &cobra.Command{
		Use:   "status PACKAGE --skyhook SKYHOOK",
		Short: "Show how far a package is on nodes",
		Long:  "Show how far a package is on nodes: on all of them, or on those named.",
		Example: "  kubectl skyhook package status tuning --skyhook demo\n" +
			"  kubectl skyhook package status tuning --skyhook demo --node 'gpu-.*' -o wide",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.packageStatus(cmd.Context(), args[0], name, nodes)
		},
	}
	a.skyhookFlag(cmd, &name, true)
	a.nodeFlag(cmd, &nodes, "show this `node` only, by name or regular expression; may be repeated")
	return cmd
}

func (a *factory) packageStatus(ctx context.Context, pkg, name string, args []string) error {
	_, all, err := a.asked(ctx, args)
	if err != nil {
		return err
	}
	type row struct {
		NodeName string `json:"nodeName"`
		packageState
	}
	rows, nodes := []row{}, []string{}
	for _, n := range all {
		s := summary(n, name, nil)
		if s.Problem != "" {
			a.Warn("%s", s.Problem)
		}
		for _, p := range s.Packages {
			if p.Name == pkg {
				rows, nodes = append(rows, row{n.Name, p}), append(nodes, n.Name)
			}
		}
	}
	return a.Print(output.Answer{Value: rows, Names: output.WithKind("node", nodes...), Text: func(wide bool) string {
		if len(rows) == 0 {
			return fmt.Sprintf("No node records package %q of Skyhook %q\n", pkg, name)
		}
		header, cells := []string{"NODE", "PACKAGE", "VERSION", "STAGE", "STATE"}, [][]string{}
		if wide {
			header = append(header, "RESTARTS", "IMAGE")
		}
		for _, r := range rows {
			line := []string{r.NodeName, r.Name, r.Version, string(r.Stage), string(r.State)}
			if wide {
				line = append(line, strconv.Itoa(int(r.Restarts)), r.Image)
			}
			cells = append(cells, line)
		}
		return output.FormatTable(header, cells, a.Painter())
	}})
}
