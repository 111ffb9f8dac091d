// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

func newHistoryCommand(f *factory) *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:   "history SKYHOOK",
		Short: "Show the revisions of a Skyhook",
		Long: "Show the revisions of a Skyhook: the sets of packages that began to roll out, how many nodes have which, and why each was\n" +
			"made (the annotation kubernetes.io/change-cause of the Skyhook at that time).\n\n" +
			"With pinImages it shows the digests that were recorded for the images of each, with -o wide in full. With --revision it shows the\n" +
			"packages of one, and the digests of their images.",
		Example: "  kubectl skyhook history demo\n" +
			"  kubectl skyhook history demo --revision 3\n" +
			"  kubectl skyhook history demo -o yaml",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runHistory(cmd.Context(), f, args[0], number) },
	}
	cmd.Flags().Int64Var(&number, "revision", 0, "`number` of the revision to show; 0 for all")
	return cmd
}

func runHistory(ctx context.Context, f *factory, name string, number int64) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	r, err := readRevisions(ctx, f, c, name)
	if err != nil {
		return err
	}
	if number == 0 {
		return f.Print(output.Answer{Value: r.all, Names: r.names(), Text: func(wide bool) string { return r.formatTable(f, wide) }})
	}
	one, err := r.find(number)
	if err != nil {
		return err
	}
	text, err := one.format(name)
	if err != nil {
		return err
	}
	return f.Print(output.Answer{Value: one, Names: output.WithKind("controllerrevision.apps", one.Name), Text: func(bool) string { return text }})
}

func (r *revisions) names() []string {
	var names []string
	for _, one := range r.all {
		names = append(names, one.Name)
	}
	return output.WithKind("controllerrevision.apps", names...)
}

func (r *revisions) formatTable(f *factory, wide bool) string {
	header := []string{"REVISION", "NODES", "AGE", "PACKAGES"}
	hasDigests := slices.ContainsFunc(r.all, func(one revision) bool { return len(one.Images) > 0 })
	if hasDigests {
		header = append(header, "DIGESTS")
	}
	if wide {
		header = append(header, "NAME")
	}
	header = append(header, "CHANGE-CAUSE")
	var rows [][]string
	for _, one := range r.all {
		number := strconv.FormatInt(one.Revision, 10)
		if one.Current {
			number += " (current)"
		}
		row := []string{number, strconv.Itoa(one.Nodes), formatDuration(time.Since(one.Created.Time)), one.listPackages()}
		if hasDigests {
			row = append(row, one.listDigests(wide))
		}
		if wide {
			row = append(row, one.Name)
		}
		cause := one.ChangeCause
		if cause == "" {
			cause = "<none>"
		}
		rows = append(rows, append(row, cause))
	}
	return output.FormatTable(header, f.ClipLastColumn(header, rows, 200, 0), f.Painter())
}

// listPackages returns the packages as name:version.
func (r *revision) listPackages() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Packages)) {
		out = append(out, name+":"+string(r.Packages[name].Version))
	}
	return output.List(out, 5)
}

// listDigests returns the digests that were recorded as package@digest, shortened unless there is room.
func (r *revision) listDigests(wide bool) string {
	var out []string
	for _, image := range r.Images {
		_, digest, _ := strings.Cut(image.Image, "@")
		if !wide {
			digest = digest[:min(len(digest), len("sha256:")+12)]
		}
		out = append(out, image.Package+"@"+digest)
	}
	if len(out) == 0 {
		return "<none>"
	}
	return output.List(out, 5)
}

// format shows a whole revision.
func (r *revision) format(of string) (string, error) {
	packages, err := formatPackageSpecs(r.Packages)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Skyhook %s, revision %d, on %s", of, r.Revision, output.Count(r.Nodes, "node"))
	if r.Current {
		out.WriteString(", is what the spec says")
	}
	out.WriteString("\n")
	if r.ChangeCause != "" {
		fmt.Fprintf(&out, "Change cause: %s\n", r.ChangeCause)
	}
	for _, image := range r.Images {
		fmt.Fprintf(&out, "Image of package %s: %s, pulled first by node %s\n", image.Package, image.Image, image.Node)
	}
	return out.String() + "\n" + packages, nil
}

func newDiffCommand(f *factory) *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:   "diff SKYHOOK",
		Short: "Compare the packages of a Skyhook with those of a revision",
		Long: "Compare the packages of a Skyhook with those of a revision: what would change if the Skyhook went back to it. Without --revision\n" +
			"it is the newest one that differs from the spec.\n\n" +
			"Exit code 0: they are equal; 2: they differ; 1: the comparison failed.",
		Example: "  kubectl skyhook diff demo\n" +
			"  kubectl skyhook diff demo --revision 3",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.completeSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runDiff(cmd.Context(), f, args[0], number) },
	}
	cmd.Flags().Int64Var(&number, "revision", 0, "`number` of the revision; 0 for the newest that differs")
	return cmd
}

func runDiff(ctx context.Context, f *factory, name string, number int64) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	r, err := readRevisions(ctx, f, c, name)
	if err != nil {
		return err
	}
	to, err := r.choose(number)
	if err != nil {
		return err
	}
	text, err := r.diffTo(to)
	if err != nil {
		return err
	}
	if err := f.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "revision": to.Revision, "diff": text},
		Names: output.WithKind("controllerrevision.apps", to.Name), Text: func(bool) string { return text },
	}); err != nil {
		return err
	}
	if text != "" {
		return &output.ExitError{Code: exitChanges}
	}
	return nil
}

// choose returns the revision of a number, or the newest one that differs from the spec.
func (r *revisions) choose(number int64) (*revision, error) {
	if number != 0 {
		return r.find(number)
	}
	return r.findPrevious()
}

// diffTo returns what changes from the spec to a revision.
func (r *revisions) diffTo(to *revision) (string, error) {
	return diffPackages("the spec", skyhook.WithoutUninstallRequests(r.skyhook.Spec.Packages), fmt.Sprintf("revision %d", to.Revision), to.Packages)
}
