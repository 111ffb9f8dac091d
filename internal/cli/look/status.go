// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package look has the commands that show what is: status, why, history, drift, nodes and policies.
package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// statusOptions are the flags of status.
type statusOptions struct {
	*session.Factory
	from     session.ViewOptions
	watch    bool
	interval time.Duration
	args     []string // a rollout; none for all
	nodes    bool
	state    string
	search   string
}

// NewStatusCommand returns the command `status`.
func NewStatusCommand(f *session.Factory) *cobra.Command {
	o := &statusOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "status [SKYHOOK|nodeop/NAME]",
		Short: "Show the progress, expected end and problems of rollouts, or with --nodes of nodes",
		Long: "Show the progress, expected end and problems of rollouts: one line for each rollout, or details of the named one.\n\n" +
			"With --nodes it lists what each node does in the rollout that needs the most attention there, or in the named one: the most\n" +
			"urgent nodes first, as kubectl skyhook ui shows them.\n\n" +
			"With -w it continues until everything is done or interrupted. A terminal is redrawn; elsewhere changes are appended.",
		Example: "  kubectl skyhook status\n" +
			"  kubectl skyhook status demo -w\n" +
			"  kubectl skyhook status --nodes --state failed\n" +
			"  kubectl skyhook status nodeop/kernel-version -o json",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			if o.watch {
				return o.runWatch(cmd.Context())
			}
			answer, _, err := o.load(cmd.Context())
			if err != nil {
				return err
			}
			return f.Print(answer)
		},
	}
	o.from.AddFromFlag(cmd)
	cmd.Flags().BoolVar(&o.nodes, "nodes", false, "list what each node does, instead of rollouts")
	cmd.Flags().StringVar(&o.state, "state", "", "with --nodes: only nodes in this `state`, such as failed, draining or waiting")
	cmd.Flags().StringVar(&o.search, "search", "", "with --nodes: only nodes with this `text` in their name, stage or reason")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch for changes")
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "with -w: time between updates")
	return cmd
}

// load returns the status, and whether everything in it is done.
func (o *statusOptions) load(ctx context.Context) (output.Answer, bool, error) {
	filter := view.FleetFilter{State: view.State(o.state), Query: o.search}
	if err := filter.Check(); err != nil {
		return output.Answer{}, false, fmt.Errorf("--state: %w", err)
	}
	if filter != (view.FleetFilter{}) && !o.nodes {
		return output.Answer{}, false, errors.New("--state and --search choose nodes: add --nodes")
	}
	v, err := session.LoadView(ctx, o.Factory, o.from)
	if err != nil {
		return output.Answer{}, false, err
	}
	if err := v.CheckNames(o.args); err != nil {
		return output.Answer{}, false, err
	}
	all, names, isDone := []view.RolloutStatus{}, []string(nil), true
	for _, r := range v.SelectRollouts(o.args) {
		s := view.SummarizeRollout(v, r)
		all, names = append(all, s), append(names, strings.ToLower(s.Name.String()))
		isDone = isDone && (s.Ended || s.Complete == s.Nodes)
	}
	if o.nodes {
		return newFleetAnswer(o.Printer, v.NewFleet(o.args), filter, v.Snapshot.Now), isDone, nil
	}
	if len(o.args) > 0 {
		all[0] = view.DescribeRollout(v, v.SelectRollouts(o.args)[0])
		details := func(wide bool) string { return FormatRolloutDetails(&all[0], o.Printer, wide) }
		return output.Answer{Value: all[0], Names: names, Text: details}, isDone, nil
	}
	return output.Answer{Value: all, Names: names, Text: func(bool) string { return FormatOverview(o.Printer, all) }}, isDone, nil
}

// newFleetAnswer returns what status --nodes prints: the nodes that a filter selects.
func newFleetAnswer(p *output.Printer, fleet *view.Fleet, filter view.FleetFilter, now time.Time) output.Answer {
	fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(c view.Cell) bool { return !filter.Matches(&c) })
	var names []string
	for i := range fleet.Nodes {
		names = append(names, fleet.Nodes[i].Node)
	}
	return output.Answer{Value: fleet, Names: output.WithKind("node", names...), Text: func(bool) string { return formatFleet(p, fleet, now) }}
}

func formatFleet(p *output.Printer, fleet *view.Fleet, now time.Time) string {
	if len(fleet.Nodes) == 0 {
		return "No node matches.\n"
	}
	header := []string{"NODE", "STATE", "ROLLOUT", "STAGE", "SINCE", "WHY"}
	var rows [][]string
	for _, c := range fleet.SortByUrgency() {
		why := strings.TrimPrefix(c.Reason+": "+c.Text, ": ")
		rows = append(rows, []string{
			c.Node, c.State.Sign() + " " + strings.ToLower(c.State.Title()), cmp.Or(c.Rollout, "-"), cmp.Or(c.Stage, "-"), formatSince(c.Since, now), strings.TrimSuffix(why, ": "),
		})
	}
	return output.FormatTable(header, p.ClipLastColumn(header, rows, 80, 0), nil)
}

// formatSince returns how long ago a time was; a dash for none.
func formatSince(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return view.FormatDuration(now.Sub(*t))
}
