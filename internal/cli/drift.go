// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// maxDriftLogs is of how many packages the differences are read.
const maxDriftLogs = 20

func newDriftCommand(f *factory) *cobra.Command {
	var from viewOptions
	cmd := &cobra.Command{
		Use:   "drift [SKYHOOK|NODE]",
		Short: "Show what changed on nodes since packages were installed",
		Long: "Show what changed on nodes since packages were installed: what the last check of spec.drift found on each node, and how text\n" +
			"files that packages delivered differ now. Without a name it lists all Skyhooks, and no differences of files.\n\n" +
			"Exit code 0: nothing drifted; 2: something drifted; 1: it is not known.",
		Example: "  kubectl skyhook drift\n" +
			"  kubectl skyhook drift demo\n" +
			"  kubectl skyhook drift worker-1 -o yaml",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDrift(cmd.Context(), f, from, strings.Join(args, ""))
		},
	}
	from.addFromFlag(cmd)
	return cmd
}

// driftReport is what the command prints.
type driftReport struct {
	Skyhooks []driftSummary   `json:"skyhooks"`
	Packages []driftedPackage `json:"packages"` // that drifted, or cannot be checked

	now time.Time // of the data
}

// driftSummary sums up the checks of one Skyhook.
type driftSummary struct {
	Name      string `json:"name"`
	Nodes     int    `json:"nodes"`   // that it selects
	Checked   int    `json:"checked"` // at least once since packages were installed there
	Drifted   int    `json:"drifted"`
	Unknown   int    `json:"unknown"`             // nodes with packages that cannot be checked
	LastCheck string `json:"lastCheck,omitempty"` // when the last check of any node ended
}

// driftedPackage is a package on a node that is not as it was left, or cannot be checked.
type driftedPackage struct {
	Node    string   `json:"node"`
	Skyhook string   `json:"skyhook"`
	Package string   `json:"package"`
	Version string   `json:"version"`
	Result  string   `json:"result"` // Drifted, Repairing or Unknown
	Since   string   `json:"since"`
	Text    string   `json:"text"`
	Checks  []string `json:"checks,omitempty"`
	Files   []string `json:"files,omitempty"`
	Diff    []string `json:"diff,omitempty"`

	key, pod string
}

func runDrift(ctx context.Context, f *factory, from viewOptions, name string) error {
	if _, err := f.CheckFormat(); err != nil {
		return err
	}
	v, err := loadView(ctx, f, from)
	if err != nil {
		return err
	}
	report, err := v.newDriftReport(name)
	if err != nil {
		return err
	}
	if name != "" && v.dump.Live() {
		if err := report.readDiffs(ctx, f); err != nil {
			return err
		}
	}
	var names []string
	for _, p := range report.Packages {
		names = append(names, p.Node)
	}
	if err := f.Print(output.Answer{Value: report, Names: output.WithKind("node", slices.Compact(names)...), Text: func(bool) string { return report.format(f) }}); err != nil {
		return err
	}
	if slices.ContainsFunc(report.Packages, func(p driftedPackage) bool { return p.Result != driftUnknown }) {
		return &output.ExitError{Code: exitChanges}
	}
	return nil
}

// The results of a package that is not as it was left, or cannot be checked.
const (
	driftFound     = "Drifted"
	driftRepairing = "Repairing"
	driftUnknown   = "Unknown"
)

// newDriftReport collects what is known of all Skyhooks, of one, or of those on one node.
func (v *view) newDriftReport(name string) (*driftReport, error) {
	report := &driftReport{Skyhooks: []driftSummary{}, Packages: []driftedPackage{}, now: v.snapshot.Now}
	isNode := v.objects.Node(name) != nil
	isKnown := name == "" || isNode
	for _, s := range v.objects.Skyhooks {
		isAsked := name == "" || isNode || s.Name == name
		isKnown = isKnown || s.Name == name
		if !isAsked || s.Spec.Drift == nil {
			continue
		}
		summary := driftSummary{Name: s.Name}
		compiled := v.objects.Compiled(s)
		for _, t := range compiled.Rollout.Targets {
			if t.Leaving || isNode && t.Node != name {
				continue
			}
			report.addNode(&summary, t.Node, compiled.DriftOf(t.Node), !t.Visit.FinishedAt.IsZero() && t.Visit.FinishedAt.After(compiled.DriftOf(t.Node).CheckedAt))
		}
		if summary.Nodes > 0 || !isNode {
			report.Skyhooks = append(report.Skyhooks, summary)
		}
	}
	switch {
	case !isKnown:
		return nil, fmt.Errorf("there is no node and no Skyhook %q: %s", name, v.listNames())
	case len(report.Skyhooks) == 0:
		return nil, fmt.Errorf("nobody checks for drift: set spec.drift of the Skyhook, such as {every: 6h}")
	}
	return report, nil
}

// addNode adds what is known of one node. A check before the last work there tells nothing.
func (r *driftReport) addNode(summary *driftSummary, name string, rec node.DriftRecord, isOutdated bool) {
	summary.Nodes++
	if !rec.CheckedAt.IsZero() && !isOutdated {
		summary.Checked++
		summary.LastCheck = max(summary.LastCheck, rec.CheckedAt.UTC().Format(time.RFC3339))
	}
	if len(rec.Drifted()) > 0 {
		summary.Drifted++
	} else if len(rec.Packages) > 0 {
		summary.Unknown++
	}
	for _, key := range slices.Sorted(maps.Keys(rec.Packages)) {
		found := rec.Packages[key]
		pkg, version, _ := strings.Cut(key, "|")
		p := driftedPackage{
			Node: name, Skyhook: summary.Name, Package: pkg, Version: version, Result: driftFound, Since: found.Since.UTC().Format(time.RFC3339),
			Text: found.Text, Checks: found.Checks, Files: found.Files, key: key, pod: rec.Pod,
		}
		switch {
		case found.NotCheckable:
			p.Result = driftUnknown
		case found.Repair != "":
			p.Result = driftRepairing
		}
		r.Packages = append(r.Packages, p)
	}
}

// readDiffs reads from the logs of the pods that checked how files differ.
func (r *driftReport) readDiffs(ctx context.Context, f *factory) error {
	core, err := f.coreClient()
	if err != nil {
		return err
	}
	read := 0
	for i := range r.Packages {
		p := &r.Packages[i]
		if p.Result == driftUnknown || p.pod == "" || len(p.Files) == 0 {
			continue
		}
		if read++; read > maxDriftLogs {
			f.Warn("the differences of more than %d packages are not shown; name a node", maxDriftLogs)
			return nil
		}
		f.Note("reading the log of pod %s", p.pod)
		if p.Diff, err = readDiff(ctx, core.Pods(f.namespace()), p); err != nil {
			f.Warn("the differences of package %s on node %s cannot be read: %v", p.Package, p.Node, err)
		}
	}
	return nil
}

func readDiff(ctx context.Context, pods coreclient.PodInterface, p *driftedPackage) (lines []string, err error) {
	in, err := pods.GetLogs(p.pod, &corev1.PodLogOptions{Container: skyhook.DriftContainer(p.key)}).Stream(ctx)
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

func (r *driftReport) format(f *factory) string {
	var out strings.Builder
	for _, s := range r.Skyhooks {
		fmt.Fprintf(&out, "Skyhook %s: %d of %s checked, %d drifted", s.Name, s.Checked, output.Count(s.Nodes, "node"), s.Drifted)
		if s.Unknown > 0 {
			fmt.Fprintf(&out, ", %d with packages that cannot be checked", s.Unknown)
		}
		if at, err := time.Parse(time.RFC3339, s.LastCheck); err == nil {
			fmt.Fprintf(&out, ", last check %s ago", formatDuration(r.now.Sub(at)))
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
			age = formatDuration(r.now.Sub(at))
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
