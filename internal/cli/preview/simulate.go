// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	*session.Factory
	from      session.ViewOptions
	stage     time.Duration
	pod       time.Duration
	limit     time.Duration
	durations []string // TASK=DURATION
	nodes     []string
	waves     int
	approve   bool
	steps     bool
}

// NewSimulateCommand returns the command `simulate`.
func NewSimulateCommand(f *session.Factory) *cobra.Command {
	o := &simulateOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "simulate [SKYHOOK|nodeop/NAME…]",
		Short: "Simulate rollouts to their end",
		Long: "Simulate rollouts to their end on a virtual clock: when each wave starts and ends, and how long everything takes. With\n" +
			"names the simulation ends when these are done. Every stage succeeds and takes as long as nodes recorded; --stage sets\n" +
			"another duration of all stages, --duration those of a package. Windows open and close as they do in the cluster.\n" +
			"Compartments that wait for an approval do not begin, unless --approve says so.\n" +
			"Nothing is changed.",
		Example: "  kubectl skyhook simulate -f skyhook.yaml\n" +
			"  kubectl skyhook simulate demo --stage 90s --duration 'driver interrupt=8m' --duration 'driver=5m'\n" +
			"  kubectl skyhook simulate --from stuck.yaml -o wide --node worker-1",
		ValidArgsFunction: f.CompleteSkyhooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.from.AddFromFlag(cmd)
	o.from.AddFilesFlag(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&o.stage, "stage", 0, "duration of a stage; default: as nodes recorded")
	flags.StringArrayVar(&o.durations, "duration", nil, "duration of all stages or one stage of a package: `'PACKAGE [STAGE]=DURATION'`; may be repeated")
	flags.DurationVar(&o.pod, "pod", 0, "time until an evicted pod is gone; default: 30s, or less as nodes recorded")
	flags.DurationVar(&o.limit, "limit", view.MaxSimulatedTime, "end the simulation after this time")
	flags.StringSliceVar(&o.nodes, "node", nil, "with -o wide: only the steps on this `node`; may be repeated")
	flags.BoolVar(&o.steps, "steps", true, "with -o wide, json and yaml: list the steps on nodes")
	flags.BoolVar(&o.approve, "approve", false, "assume that every compartment that waits for an approval gets it")
	flags.IntVar(&o.waves, "waves", -1, fmt.Sprintf("number of waves to print; 0 for all; default: all up to %d nodes, otherwise 20", view.MaxNodesSimulated))
	return cmd
}

// parseDurations replaces recorded durations by those of --stage, --pod and --duration.
func (o *simulateOptions) parseDurations(recorded sim.Durations) (sim.Durations, error) {
	durations := map[string]time.Duration{}
	for _, text := range o.durations {
		task, duration, ok := strings.Cut(text, "=")
		d, err := time.ParseDuration(duration)
		if !ok || err != nil || d < 0 {
			return sim.Durations{}, fmt.Errorf("--duration %q is not 'PACKAGE [STAGE]=DURATION', such as 'driver interrupt=8m'", text)
		}
		durations[strings.Join(strings.Fields(strings.ReplaceAll(task, "/", " ")), " ")] = d
	}
	return sim.Durations{Pod: cmp.Or(o.pod, recorded.Pod), Task: func(r rollout.Rollout, t rollout.Target, k rollout.Task) time.Duration {
		pkg, _, _ := strings.Cut(k.Label, " ")
		for _, key := range []string{k.Label, pkg} {
			if d, ok := durations[key]; ok {
				return d
			}
		}
		if o.stage > 0 {
			return o.stage
		}
		return recorded.Task(r, t, k)
	}}, nil
}

func (o *simulateOptions) run(ctx context.Context, args []string) error {
	format, err := o.CheckFormat()
	if err != nil {
		return err
	}
	v, err := session.LoadView(ctx, o.Factory, o.from)
	if err != nil {
		return err
	}
	if err := v.CheckNames(args); err != nil {
		return err
	}
	times, err := o.parseDurations(sim.Recorded(v.Snapshot.Times))
	if err != nil {
		return err
	}
	if o.approve {
		v.AssumeApprovals()
	}
	c := v.SimulateRollouts(times, o.limit, v.StopWhenDone(args))
	s := view.NewSimulation(v, c, args)
	if o.steps && format != output.Table && format != output.Name {
		s.Steps = view.ListSteps(v, c, args, o.nodes)
	}
	for i := range s.Rollouts {
		if o.stage > 0 || len(o.durations) > 0 {
			s.Rollouts[i].Times = ""
		}
	}
	s.MaxWaves = view.LimitWaves(o.waves, 20, len(v.Snapshot.Nodes))
	return o.Print(output.Answer{Value: s, Names: s.Names(), Text: func(wide bool) string { return formatSimulation(s, wide) }})
}

func formatSimulation(s *view.Simulation, wide bool) string {
	var b strings.Builder
	for i := range s.Rollouts {
		b.WriteString(formatSimulatedRollout(&s.Rollouts[i], s.MaxWaves) + "\n")
	}
	if wide && len(s.Steps) > 0 {
		var rows [][]string
		for _, step := range s.Steps {
			rows = append(rows, []string{step.At, step.Node, step.Verb, step.Rollout, step.What})
		}
		b.WriteString(output.FormatTable([]string{"AT", "NODE", "VERB", "ROLLOUT", "WHAT"}, rows, nil) + "\n")
	}
	if s.Complete {
		fmt.Fprintf(&b, "Everything is done after %s.\n", s.Took)
	} else {
		fmt.Fprintf(&b, "After %s nothing continues without intervention, and work is left.\n", s.Took)
	}
	return b.String()
}

func formatSimulatedRollout(r *view.SimulatedRollout, maxWaves int) string {
	var b strings.Builder
	nodes, hidden := 0, 0
	var rows [][]string
	for i, w := range r.Waves {
		nodes += len(w.Nodes)
		if maxWaves > 0 && i >= maxWaves {
			hidden += len(w.Nodes)
			continue
		}
		rows = append(rows, []string{strconv.Itoa(w.Number), w.After, cmp.Or(w.Ended, "not ended"), w.Group, output.Count(len(w.Nodes), "node") + ": " + output.List(w.Nodes, 6)})
	}
	kind, name := r.Name.Kind, r.Name.Path()
	fmt.Fprintf(&b, "%s %s: %s in %s\n", kind, name, output.Count(nodes, "node"), output.Count(len(r.Waves), "wave"))
	b.WriteString(formatTimes(r.Times))
	b.WriteString(formatNeeds(r.Needs))
	if len(rows) > 0 {
		b.WriteString("\n" + session.Indent(output.FormatTable([]string{"WAVE", "BEGINS", "ENDS", "COMPARTMENT", "NODES"}, rows, nil)))
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "  then %s in %s, the last after %s; --waves 0 shows all\n",
			output.Count(hidden, "node"), output.Count(len(r.Waves)-maxWaves, "more wave"), r.Waves[len(r.Waves)-1].After)
	}
	for _, l := range r.Left {
		fmt.Fprintf(&b, "  left: %s (%s): %s: %s\n", output.Count(l.Nodes, "node"), output.ListOf(l.First, l.Nodes), l.Reason, l.Text)
	}
	return b.String()
}
