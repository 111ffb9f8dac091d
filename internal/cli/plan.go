// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// exitChanges says that a plan has changes, as diff does.
const exitChanges = 2

// fewNodes is up to how many nodes a plan is played to its end without being asked to.
const fewNodes = 500

func (a *factory) planCommand() *cobra.Command {
	var from viewOptions
	waves := -1
	cmd := &cobra.Command{
		Use:   "plan [SKYHOOK|nodeop/NAME…]",
		Short: "Say what would happen next, for what is there or for files",
		Long: "Say what would happen: which nodes change, in which waves, which stages run there and why, which pods would have to go\n" +
			"and which disruption budgets forbid it now. It is decided by the same code as in the operator, and nothing is changed.\n\n" +
			"With -f it is said for files that are not applied yet, laid over what is there. Everything is assumed to end well.\n\n" +
			"Exit code 0 means that nothing would change, 2 that something would, 1 that it could not be said.",
		Example: "  kubectl skyhook plan\n" +
			"  kubectl skyhook plan -f skyhook.yaml -f policy.yaml\n" +
			"  kubectl skyhook plan demo --from stuck.yaml -o json",
		ValidArgsFunction: a.completeSkyhooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), from, args, waves) },
	}
	from.addFlags(cmd)
	cmd.Flags().StringSliceVarP(&from.files, "filename", "f", nil, "lay the objects of this `FILE` or folder over what is there; - for standard input; may be repeated")
	cmd.Flags().IntVar(&waves, "waves", waves, fmt.Sprintf("show so many waves; 0 for all; by default all up to %d nodes, and 10 beyond", fewNodes))
	return cmd
}

func (a *factory) plan(ctx context.Context, from viewOptions, args []string, waves int) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	s, err := a.loadView(ctx, from)
	if err != nil {
		return err
	}
	if err := s.checkNames(args); err != nil {
		return err
	}
	if err := s.loadNextPods(ctx, a); err != nil {
		return err
	}
	waves = shownWaves(waves, 10, len(s.snapshot.Nodes))
	p := s.buildPlan(s.forecast(everyStage(2*time.Minute), 365*24*time.Hour, anyOf(afterWaves(waves), s.untilDone(args))), args, waves)
	if err := a.Print(output.Answer{Value: p, Names: p.names(), Text: func(wide bool) string { return p.text(wide) }}); err != nil {
		return err
	}
	if p.Changes {
		return &output.ExitError{Code: exitChanges}
	}
	return nil
}

// shownWaves is how many waves are shown, 0 for all: as many as somebody asks for, and of many nodes so many otherwise.
func shownWaves(asked, many, nodes int) int {
	switch {
	case asked >= 0:
		return asked
	case nodes <= fewNodes:
		return 0
	}
	return many
}

// everyStage lets every task take the same time. The order of things depends on it as little as it can.
func everyStage(d time.Duration) sim.Times {
	return sim.Times{Task: func(rollout.Rollout, rollout.Target, rollout.Task) time.Duration { return d }, Pod: 30 * time.Second}
}

// checkNames says which of the arguments names no rollout.
func (s *view) checkNames(args []string) error {
	for _, arg := range args {
		if _, _, ok := s.findRollout(arg); !ok {
			return fmt.Errorf("there is no %s: %s", arg, s.listNames())
		}
	}
	return nil
}

// listNames lists what could have been meant.
func (s *view) listNames() string {
	var all []string
	for i := range s.snapshot.Rollouts {
		all = append(all, shortName(s.snapshot.Rollouts[i].Ref))
	}
	if len(all) == 0 {
		return errNoObjects.Error()
	}
	return "there are " + output.List(all, 5)
}

// plan is a plan as it is printed.
type plan struct {
	Changes  bool             `json:"changes"`
	Rollouts []rolloutPlan    `json:"rollouts"`
	Actions  []planAction     `json:"actions"` // of the next pass
	Settings operatorSettings `json:"settings"`
}

// rolloutPlan is what one rollout would do.
type rolloutPlan struct {
	Name     rollout.Ref   `json:"name"`
	Nodes    int           `json:"nodes"`    // selected
	Changing int           `json:"changing"` // of them that owe work and can be worked on
	Work     []planWork    `json:"work"`
	Waves    []wave        `json:"waves"`
	Closed   []closedGroup `json:"closed,omitempty"` // groups that begin nothing now, whatever else would allow it
	Later    int           `json:"later"`            // nodes that begin after the waves shown
	Never    []reasonCount `json:"waiting,omitempty"`
	Pods     []nodePods    `json:"pods,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
	Problem  string        `json:"problem,omitempty"`
}

// planWork is what runs on nodes that stand alike, in its order.
type planWork struct {
	Nodes []string   `json:"nodes"`
	Steps []planStep `json:"steps"`
}

// closedGroup is why a group begins nothing now.
type closedGroup struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// planStep is one stage.
type planStep struct {
	Task   string   `json:"task"`
	Why    string   `json:"why"`
	Needs  string   `json:"needs,omitempty"`
	Covers []string `json:"covers,omitempty"`
}

// nodePods are the pods on one node of the first wave.
type nodePods struct {
	Node    string   `json:"node"`
	Evict   []string `json:"evict,omitempty"`
	Wait    []string `json:"waitFor,omitempty"`
	Keep    []string `json:"cannotBeEvicted,omitempty"`
	Refused []string `json:"refusedNow,omitempty"`
}

// planAction is one action of the next pass.
type planAction struct {
	Node    string `json:"node"`
	Verb    string `json:"verb"`
	Rollout string `json:"rollout"`
	What    string `json:"what,omitempty"`
	Why     string `json:"why"`
}

func (p *plan) names() []string {
	var out []string
	for _, r := range p.Rollouts {
		if r.Changing > 0 {
			out = append(out, strings.ToLower(r.Name.String()))
		}
	}
	return out
}
