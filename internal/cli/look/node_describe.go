// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// NewNodeDescribeCommand returns the command `node describe`.
func NewNodeDescribeCommand(f *session.Factory) *cobra.Command {
	var from session.ViewOptions
	cmd := &cobra.Command{
		Use:   "describe NODE",
		Short: "Show what happens on a node, and what happened there",
		Long: "Show what happens on a node, and what happened there: why it waits, the stages of each rollout with their times, failed attempts\n" +
			"and the end of the log while its pod exists, who holds the node, the pods that must leave it, and its events. NODE is a\n" +
			"name. Logs and events need the right to read them, and a dump has none.",
		Example: "  kubectl skyhook node describe worker-1\n" +
			"  kubectl skyhook node describe worker-1 --from stuck.yaml -o json",
		Args: output.Args("NODE"), ValidArgsFunction: f.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error { return runNodeDescribe(cmd.Context(), f, from, args[0]) },
	}
	from.AddFromFlag(cmd)
	return cmd
}

func runNodeDescribe(ctx context.Context, f *session.Factory, from session.ViewOptions, name string) error {
	v, err := session.LoadView(ctx, f, from)
	if err != nil {
		return err
	}
	n := v.Objects.Node(strings.TrimPrefix(strings.TrimPrefix(name, "node/"), "no/"))
	if n == nil {
		return fmt.Errorf("there is no node %q", name)
	}
	described := v.NewNode(n)
	if err := AddRead(ctx, f, v, described); err != nil {
		return err
	}
	return f.Print(output.Answer{Value: described, Names: output.WithKind("node", n.Name), Text: func(bool) string {
		return formatNode(f.Printer, described, v.Snapshot.Now)
	}})
}

// formatNode formats a node for people.
func formatNode(p *output.Printer, n *view.Node, now time.Time) string {
	var b strings.Builder
	ready, cordoned := "not ready", "schedulable"
	if n.Ready {
		ready = "ready"
	}
	if n.Cordoned {
		cordoned = "cordoned"
	}
	fmt.Fprintf(&b, "Node %s: %s, %s, %s\n", n.Name, strings.ToLower(n.State.Title()), ready, cordoned)
	b.WriteString("\n" + FormatExplanations(n.Why, 0))
	for i := range n.Work {
		b.WriteString(formatWork(&n.Work[i], now))
	}
	if n.Drift != nil {
		fmt.Fprintf(&b, "\nDrift: %s of its packages; kubectl skyhook drift %s shows more.\n", output.Count(len(n.Drift.Packages), "finding"), n.Name)
	}
	if len(n.Holds) > 0 {
		b.WriteString("\nHolds:\n")
	}
	for _, h := range n.Holds {
		was := ""
		if h.WasCordoned {
			was = "; the node was cordoned before, and stays so"
		}
		fmt.Fprintf(&b, "  %s, for %s%s\n", h.Owner, formatSince(h.Since, now), was)
	}
	var rows [][]string
	for _, pod := range n.Pods {
		rows = append(rows, []string{pod.Name, pod.Rollout, pod.Why})
	}
	b.WriteString(formatSection("Pods in the way", []string{"POD", "ROLLOUT", "WHY"}, rows))
	rows = nil
	header := []string{"TIME", "REASON", "COUNT", "MESSAGE"}
	for _, e := range n.Events {
		rows = append(rows, []string{e.At.Format("2006-01-02 15:04:05"), e.Reason, strconv.Itoa(int(e.Count)), e.Text})
	}
	b.WriteString(formatSection("Events", header, p.ClipLastColumn(header, rows, 80, 2)))
	return b.String()
}

// formatSection formats a table with a title; nothing without rows.
func formatSection(title string, header []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	return "\n" + title + ":\n" + session.Indent(output.FormatTable(header, rows, nil))
}

// formatWork formats what a rollout did on a node.
func formatWork(w *view.Work, now time.Time) string {
	text := fmt.Sprintf("\n%s: %s", w.Rollout, strings.ToLower(w.State.Title()))
	if w.AdmittedAt != nil {
		text += ", began " + formatSince(w.AdmittedAt, now) + " ago"
	}
	if w.FinishedAt != nil {
		text += ", ended " + formatSince(w.FinishedAt, now) + " ago"
	}
	text += "\n"
	var rows [][]string
	words := ""
	for _, s := range w.Stages {
		began := "-"
		if s.Started != nil {
			began = s.Started.Format("2006-01-02 15:04:05")
		}
		took := s.Duration
		if took == "" {
			took = "-"
		}
		rows = append(rows, []string{s.Label, s.State, began, took, strconv.Itoa(s.Attempts)})
		if s.Text != "" {
			words += fmt.Sprintf("  %s: %s\n", s.Label, s.Text)
		}
		if s.Log != "" {
			words += fmt.Sprintf("  log of %s:\n%s", s.Label, session.Indent(session.Indent(strings.TrimSuffix(s.Log, "\n")+"\n")))
		}
	}
	for _, said := range w.Preflight {
		text += "  preflight: " + said + "\n"
	}
	if len(rows) > 0 {
		text += session.Indent(output.FormatTable([]string{"STAGE", "STATE", "BEGAN", "TOOK", "FAILED ATTEMPTS"}, rows, nil))
	}
	return text + words
}
