// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// simulateOptions is one simulation.
type simulateOptions struct {
	from   viewOptions
	stage  time.Duration
	pod    time.Duration
	limit  time.Duration
	stages []string // TASK=DURATION
	nodes  []string
	waves  int
}

func (a *factory) simulateCommand() *cobra.Command {
	var s simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate [SKYHOOK|nodeop/NAME…]",
		Short: "Play a rollout to its end on a virtual clock",
		Long: "Play a rollout to its end on a virtual clock: when each wave begins and ends, and how long everything takes. With names\n" +
			"it ends when those are through. Every stage takes as long as --stage says, and ends well; --duration tells those that\n" +
			"differ, by package and stage. Nothing is changed.",
		Example: "  kubectl skyhook simulate -f skyhook.yaml\n" +
			"  kubectl skyhook simulate demo --stage 90s --duration 'driver interrupt=8m' --duration 'driver=5m'\n" +
			"  kubectl skyhook simulate --from stuck.yaml -o wide --node worker-1",
		ValidArgsFunction: a.completeSkyhooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.simulate(cmd.Context(), &s, args) },
	}
	s.from.addFlags(cmd)
	f := cmd.Flags()
	f.StringSliceVarP(&s.from.files, "filename", "f", nil, "lay the objects of this `FILE` or folder over what is there; - for standard input; may be repeated")
	f.DurationVar(&s.stage, "stage", 2*time.Minute, "how long a stage takes")
	f.StringArrayVar(&s.stages, "duration", nil, "how long the stages of a package take, or one of them: `'PACKAGE [STAGE]=DURATION'`; may be repeated")
	f.DurationVar(&s.pod, "pod", 30*time.Second, "how long an evicted pod takes to go")
	f.DurationVar(&s.limit, "limit", 365*24*time.Hour, "end the simulation after so much time")
	f.StringSliceVar(&s.nodes, "node", nil, "with -o wide: the steps on this `node` only; may be repeated")
	f.IntVar(&s.waves, "waves", -1, fmt.Sprintf("print so many waves; 0 for all; by default all up to %d nodes, and 20 beyond", fewNodes))
	return cmd
}

// times reads the durations.
func (s *simulateOptions) times() (sim.Times, error) {
	given := map[string]time.Duration{}
	for _, text := range s.stages {
		what, long, ok := strings.Cut(text, "=")
		d, err := time.ParseDuration(long)
		if !ok || err != nil || d < 0 {
			return sim.Times{}, fmt.Errorf("--duration %q is not 'PACKAGE [STAGE]=DURATION', such as 'driver interrupt=8m'", text)
		}
		given[strings.Join(strings.Fields(strings.ReplaceAll(what, "/", " ")), " ")] = d
	}
	return sim.Times{Pod: s.pod, Task: func(_ rollout.Rollout, _ rollout.Target, k rollout.Task) time.Duration {
		name, _, _ := strings.Cut(k.Label, " ")
		for _, key := range []string{k.Label, name} {
			if d, ok := given[key]; ok {
				return d
			}
		}
		return s.stage
	}}, nil
}

// simulation is a simulation as it is printed.
type simulation struct {
	Took     string             `json:"took"`
	Complete bool               `json:"complete"`
	Rollouts []simulatedRollout `json:"rollouts"`
	Steps    []simulatedStep    `json:"steps"`
	most     int                // waves that are printed of each; 0 for all
}

type simulatedRollout struct {
	Name  rollout.Ref     `json:"name"`
	Waves []simulatedWave `json:"waves"`
	Left  []reasonCount   `json:"left,omitempty"`
}

type simulatedWave struct {
	wave
	Ended string `json:"ended,omitempty"`
}

type simulatedStep struct {
	At      string `json:"at"`
	Node    string `json:"node"`
	Rollout string `json:"rollout"`
	Verb    string `json:"verb"`
	What    string `json:"what,omitempty"`
}

func (a *factory) simulate(ctx context.Context, in *simulateOptions, args []string) error {
	format, err := a.CheckFormat()
	if err != nil {
		return err
	}
	times, err := in.times()
	if err != nil {
		return err
	}
	s, err := a.loadView(ctx, in.from)
	if err != nil {
		return err
	}
	if err := s.checkNames(args); err != nil {
		return err
	}
	c := s.forecast(times, in.limit, s.untilDone(args))
	p := s.buildSimulation(c, args)
	if format != output.Table && format != output.Name {
		p.Steps = s.simulationSteps(c, args, in.nodes)
	}
	p.most = shownWaves(in.waves, 20, len(s.snapshot.Nodes))
	return a.Print(output.Answer{Value: p, Names: p.names(), Text: p.text})
}

func (s *view) buildSimulation(c *forecast, args []string) *simulation {
	p := &simulation{Took: formatDuration(c.timeline.End.Sub(c.began)), Complete: true, Rollouts: []simulatedRollout{}, Steps: []simulatedStep{}}
	ends := c.findEnds()
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if !isSelected(args, r) {
			continue
		}
		one := simulatedRollout{Name: r.Ref, Waves: []simulatedWave{}}
		for _, w := range c.waves[r.Ref] {
			pw := simulatedWave{wave: w}
			pw.Group = groupName(r, w.group)
			last, all := time.Duration(0), true
			for _, n := range w.Nodes {
				at, ok := ends[targetKey{r.Ref, n}]
				last, all = max(last, at), all && ok
			}
			if all {
				pw.Ended = formatDuration(last)
			}
			one.Waves = append(one.Waves, pw)
		}
		by := map[rollout.Reason][]rollout.Verdict{}
		for _, v := range s.waitingVerdicts(c, r) {
			by[v.Why.Reason] = append(by[v.Why.Reason], v)
		}
		for _, vs := range by {
			slices.SortFunc(vs, func(a, b rollout.Verdict) int { return strings.Compare(a.Node, b.Node) })
		}
		one.Left = countReasons(by)
		p.Complete = p.Complete && len(one.Left) == 0
		p.Rollouts = append(p.Rollouts, one)
	}
	return p
}

// findEnds is when each target gave its seat back, for the last time.
func (c *forecast) findEnds() map[targetKey]time.Duration {
	out := map[targetKey]time.Duration{}
	for _, m := range c.timeline.Moments {
		for _, act := range m.Actions {
			if act.Verb == rollout.VerbRetire {
				out[targetKey{act.Rollout, act.Node}] = m.At.Sub(c.began)
			}
		}
	}
	return out
}

// simulationSteps is what happens on nodes, rollout by rollout; no nodes are all.
func (s *view) simulationSteps(c *forecast, args, nodes []string) []simulatedStep {
	out := []simulatedStep{}
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if !isSelected(args, r) {
			continue
		}
		for _, m := range c.timeline.Moments {
			for _, act := range m.Actions {
				if act.Rollout == r.Ref && (len(nodes) == 0 || slices.Contains(nodes, act.Node)) {
					out = append(out, simulatedStep{formatDuration(m.At.Sub(c.began)), act.Node, shortName(r.Ref), string(act.Verb), s.actionObject(r, act)})
				}
			}
		}
	}
	return out
}

func (p *simulation) names() []string {
	var out []string
	for _, r := range p.Rollouts {
		out = append(out, strings.ToLower(r.Name.String()))
	}
	return out
}

func (p *simulation) text(wide bool) string {
	var b strings.Builder
	for _, r := range p.Rollouts {
		nodes := 0
		var rows [][]string
		hidden := 0
		for i, w := range r.Waves {
			nodes += len(w.Nodes)
			if p.most > 0 && i >= p.most {
				hidden += len(w.Nodes)
				continue
			}
			rows = append(rows, []string{strconv.Itoa(w.Number), w.After, cmp.Or(w.Ended, "not ended"), w.Group, output.Count(len(w.Nodes), "node") + ": " + output.List(w.Nodes, 6)})
		}
		kind, name := r.Name.Kind, r.Name.Path()
		fmt.Fprintf(&b, "%s %s: %s in %s\n", kind, name, output.Count(nodes, "node"), output.Count(len(r.Waves), "wave"))
		if len(rows) > 0 {
			b.WriteString("\n" + indent(output.FormatTable([]string{"WAVE", "BEGINS", "ENDS", "GROUP", "NODES"}, rows, nil)))
		}
		if hidden > 0 {
			fmt.Fprintf(&b, "  then %s in %s, the last after %s; --waves 0 shows all\n",
				output.Count(hidden, "node"), output.Count(len(r.Waves)-p.most, "more wave"), r.Waves[len(r.Waves)-1].After)
		}
		for _, l := range r.Left {
			fmt.Fprintf(&b, "  left: %s (%s): %s: %s\n", output.Count(l.Nodes, "node"), output.ListOf(l.First, l.Nodes), l.Reason, l.Text)
		}
		b.WriteString("\n")
	}
	if wide && len(p.Steps) > 0 {
		var rows [][]string
		for _, s := range p.Steps {
			rows = append(rows, []string{s.At, s.Node, s.Verb, s.Rollout, s.What})
		}
		b.WriteString(output.FormatTable([]string{"AT", "NODE", "VERB", "ROLLOUT", "WHAT"}, rows, nil) + "\n")
	}
	if p.Complete {
		fmt.Fprintf(&b, "Everything is done after %s.\n", p.Took)
	} else {
		fmt.Fprintf(&b, "After %s nothing goes on by itself, and not everything is done.\n", p.Took)
	}
	return b.String()
}
