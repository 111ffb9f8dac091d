// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// maxDriftLogs is of how many packages the differences are read.
const maxDriftLogs = 20

// NewDriftCommand returns the command `drift`.
func NewDriftCommand(f *session.Factory) *cobra.Command {
	var from session.ViewOptions
	cmd := &cobra.Command{
		Use:   "drift [SKYHOOK|NODE]",
		Short: "Show what changed on nodes since packages were installed",
		Long: "Show what changed on nodes since packages were installed: what the last check of spec.drift found on each node, and how text\n" +
			"files that packages delivered differ now. Without a name it lists all Skyhooks, and no differences of files.",
		Example: "  kubectl skyhook drift\n" +
			"  kubectl skyhook drift demo\n" +
			"  kubectl skyhook drift worker-1 -o yaml",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDrift(cmd.Context(), f, from, strings.Join(args, ""))
		},
	}
	from.AddFromFlag(cmd)
	f.AddDetailedExitCode(cmd, "something drifted")
	return cmd
}

func runDrift(ctx context.Context, f *session.Factory, from session.ViewOptions, name string) error {
	v, err := session.LoadView(ctx, f, from)
	if err != nil {
		return err
	}
	report, err := v.NewDriftReport(name)
	if err != nil {
		return err
	}
	if name != "" && v.Dump.Live() {
		if err := readDiffs(ctx, f, report); err != nil {
			return err
		}
	}
	var names []string
	for _, p := range report.Packages {
		names = append(names, p.Node)
	}
	if err := f.Print(output.Answer{Value: report, Names: output.WithKind("node", slices.Compact(names)...), Text: func(bool) string { return formatDriftReport(report, f) }}); err != nil {
		return err
	}
	return f.EndWith(slices.ContainsFunc(report.Packages, func(p view.DriftedPackage) bool { return p.Result != view.DriftUnknown }))
}

// readDiffs reads from the logs of the pods that checked how files differ.
func readDiffs(ctx context.Context, f *session.Factory, r *view.DriftReport) error {
	core, err := f.CoreClient()
	if err != nil {
		return err
	}
	read := 0
	for i := range r.Packages {
		p := &r.Packages[i]
		if p.Result == view.DriftUnknown || p.Pod == "" || len(p.Files) == 0 {
			continue
		}
		if read++; read > maxDriftLogs {
			f.Warn("the differences of more than %d packages are not shown; name a node", maxDriftLogs)
			return nil
		}
		f.Note("reading the log of pod %s", p.Pod)
		if p.Diff, err = readDiff(ctx, core.Pods(f.Namespace(ctx)), p); err != nil {
			f.Warn("the differences of package %s on node %s cannot be read: %v", p.Package, p.Node, err)
		}
	}
	return nil
}

func readDiff(ctx context.Context, pods coreclient.PodInterface, p *view.DriftedPackage) (lines []string, err error) {
	in, err := pods.GetLogs(p.Pod, &corev1.PodLogOptions{Container: plan.DriftContainer(p.Key)}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	reader := bufio.NewReader(in)
	for {
		line, err := reader.ReadString('\n')
		if text, isDiff := strings.CutPrefix(strings.TrimRight(line, "\n"), pack.DriftDiffPrefix); isDiff {
			lines = append(lines, text)
		}
		switch {
		case err == io.EOF:
			return lines, nil
		case err != nil:
			return lines, err
		}
	}
}

func formatDriftReport(r *view.DriftReport, f *session.Factory) string {
	var out strings.Builder
	for _, s := range r.Skyhooks {
		fmt.Fprintf(&out, "Skyhook %s: %d of %s checked, %d drifted", s.Name, s.Checked, output.Count(s.Nodes, "node"), s.Drifted)
		if s.Unknown > 0 {
			fmt.Fprintf(&out, ", %d with packages that cannot be checked", s.Unknown)
		}
		if at, err := time.Parse(time.RFC3339, s.LastCheck); err == nil {
			fmt.Fprintf(&out, ", last check %s ago", view.FormatDuration(r.Now.Sub(at)))
		}
		out.WriteString("\n")
	}
	if len(r.Packages) == 0 {
		return out.String()
	}
	header := []string{"NODE", "SKYHOOK", "PACKAGE", "RESULT", "AGE", "FOUND"}
	var rows [][]string
	for _, p := range r.Packages {
		age := ""
		if at, err := time.Parse(time.RFC3339, p.Since); err == nil {
			age = view.FormatDuration(r.Now.Sub(at))
		}
		rows = append(rows, []string{p.Node, p.Skyhook, p.Package + ":" + p.Version, p.Result, age, p.Text})
	}
	out.WriteString("\n" + output.FormatTable(header, f.ClipLastColumn(header, rows, 300, 0), f.Painter()))
	for _, p := range r.Packages {
		if len(p.Diff) > 0 {
			fmt.Fprintf(&out, "\nPackage %s on node %s:\n%s\n", p.Package, p.Node, strings.Join(p.Diff, "\n"))
		}
	}
	return out.String()
}
