// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package packages has the commands about packages on nodes: their status, their logs, and running them again.
package packages

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/packagecli"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewPackageCommand returns the command `package`.
func NewPackageCommand(f *session.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Show and control packages on nodes, and create packages",
		Long: "Show and control packages on nodes: logs, reapply.\n\n" +
			"Create packages, without a cluster and without Docker: init, validate, test, build, push, pull, inspect.",
		RunE: session.RunGroup,
	}
	former := newPackageReapplyCommand(f)
	former.Use, former.Hidden = "rerun PACKAGE --skyhook SKYHOOK --node NODE", true
	cmd.AddCommand(newPackageLogsCommand(f), newPackageReapplyCommand(f), newPackageStatusCommand(f), former)
	cmd.AddCommand(packagecli.Commands(f.Printer, f.Version)...)
	return cmd
}

func newPackageStatusCommand(f *session.Factory) *cobra.Command {
	var name string
	var nodes []string
	cmd := &cobra.Command{
		Use: "status PACKAGE --skyhook SKYHOOK", Hidden: true,
		Short: "Show the state of a package on nodes",
		Long:  "Show the state of a package on all nodes or on the named ones.",
		Example: "  kubectl skyhook package status tuning --skyhook demo\n" +
			"  kubectl skyhook package status tuning --skyhook demo --node 'gpu-.*' -o wide",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPackageStatus(cmd.Context(), f, args[0], name, nodes)
		},
	}
	f.AddSkyhookFlag(cmd, &name, true)
	f.AddNodeFlag(cmd, &nodes, "show only this `node`, by name or regular expression; may be repeated")
	return cmd
}

func runPackageStatus(ctx context.Context, f *session.Factory, pkg, name string, nodeArgs []string) error {
	_, nodes, err := session.ConnectAndSelect(ctx, f, nodeArgs)
	if err != nil {
		return err
	}
	type row struct {
		NodeName string `json:"nodeName"`
		view.PackageState
	}
	rows, names := []row{}, []string{}
	for _, n := range nodes {
		s := view.SummarizeNode(n, name, nil)
		if s.Problem != "" {
			f.Warn("%s", s.Problem)
		}
		for _, p := range s.Packages {
			if p.Name == pkg {
				rows, names = append(rows, row{n.Name, p}), append(names, n.Name)
			}
		}
	}
	return f.Print(output.Answer{Value: rows, Names: output.WithKind("node", names...), Text: func(wide bool) string {
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
		return output.FormatTable(header, cells, f.Painter())
	}})
}
