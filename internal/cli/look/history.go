// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewHistoryCommand returns the command `history`.
func NewHistoryCommand(f *session.Factory) *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:   "history SKYHOOK",
		Short: "Show the revisions of a Skyhook",
		Long: "Show the revisions of a Skyhook: the sets of packages that began to roll out, how many nodes have which, what changed with each,\n" +
			"and why (the annotation kubernetes.io/change-cause of the Skyhook at that time).\n\n" +
			"With pinImages it shows the digests that were recorded for the images of each, with -o wide in full. With --revision it shows the\n" +
			"packages of one, and the digests of their images.",
		Example: "  kubectl skyhook history demo\n" +
			"  kubectl skyhook history demo --revision 3\n" +
			"  kubectl skyhook history demo -o yaml",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runHistory(cmd.Context(), f, args[0], number) },
	}
	cmd.Flags().Int64Var(&number, "revision", 0, "`number` of the revision to show; 0 for all")
	return cmd
}

func runHistory(ctx context.Context, f *session.Factory, name string, number int64) error {
	_, r, err := session.ReadRevisions(ctx, f, name)
	if err != nil {
		return err
	}
	if number == 0 {
		return f.Print(output.Answer{Value: r.All, Names: r.Names(), Text: func(wide bool) string { return formatRevisionTable(r, f, wide) }})
	}
	one, err := r.Find(number)
	if err != nil {
		return err
	}
	text, err := one.Format(name)
	if err != nil {
		return err
	}
	return f.Print(output.Answer{Value: one, Names: output.WithKind("controllerrevision.apps", one.Name), Text: func(bool) string { return text }})
}

func formatRevisionTable(r *view.Revisions, f *session.Factory, wide bool) string {
	header := []string{"REVISION", "NODES", "AGE", "PACKAGES"}
	hasDigests := slices.ContainsFunc(r.All, func(one view.Revision) bool { return len(one.Images) > 0 })
	if hasDigests {
		header = append(header, "DIGESTS")
	}
	if wide {
		header = append(header, "NAME")
	}
	header = append(header, "CHANGES", "CHANGE-CAUSE")
	var rows [][]string
	for _, one := range r.All {
		number := strconv.FormatInt(one.Revision, 10)
		if one.Current {
			number += " (current)"
		}
		row := []string{number, strconv.Itoa(one.Nodes), view.FormatDuration(time.Since(one.Created.Time)), one.ListPackages()}
		if hasDigests {
			row = append(row, one.ListDigests(wide))
		}
		if wide {
			row = append(row, one.Name)
		}
		rows = append(rows, append(row, cmp.Or(strings.Join(one.Changes, "; "), "-"), cmp.Or(one.ChangeCause, "<none>")))
	}
	return output.FormatTable(header, f.ClipLastColumn(header, rows, 200, 0), f.Painter())
}

// NewDiffCommand returns the command `diff`.
func NewDiffCommand(f *session.Factory) *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:   "diff SKYHOOK",
		Short: "Compare the packages of a Skyhook with those of a revision",
		Long: "Compare the packages of a Skyhook with those of a revision: what would change if the Skyhook went back to it. Without --revision\n" +
			"it is the newest one that differs from the spec.",
		Example: "  kubectl skyhook diff demo\n" +
			"  kubectl skyhook diff demo --revision 3",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error { return runDiff(cmd.Context(), f, args[0], number) },
	}
	cmd.Flags().Int64Var(&number, "revision", 0, "`number` of the revision; 0 for the newest that differs")
	f.AddDetailedExitCode(cmd, "the packages differ")
	return cmd
}

func runDiff(ctx context.Context, f *session.Factory, name string, number int64) error {
	_, r, err := session.ReadRevisions(ctx, f, name)
	if err != nil {
		return err
	}
	to, err := r.Choose(number)
	if err != nil {
		return err
	}
	text, err := r.DiffTo(to)
	if err != nil {
		return err
	}
	if err := f.Print(output.Answer{
		Value: map[string]any{"skyhookName": name, "revision": to.Revision, "diff": text},
		Names: output.WithKind("controllerrevision.apps", to.Name), Text: func(bool) string { return text },
	}); err != nil {
		return err
	}
	return f.EndWith(text != "")
}
