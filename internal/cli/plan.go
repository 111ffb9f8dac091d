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
)

// exitChanges is the exit code of a plan with changes, as for diff.
const exitChanges = 2

// maxSimulatedTime ends every simulation.
const maxSimulatedTime = 365 * 24 * time.Hour

func newPlanCommand(f *factory) *cobra.Command {
	var from viewOptions
	waves := -1
	cmd := &cobra.Command{
		Use:   "plan [SKYHOOK|nodeop/NAME…]",
		Short: "Show what would happen next, in the cluster or for files",
		Long: "Show what would happen next: which nodes change, in which waves, which stages run and why, which pods are evicted and\n" +
			"which disruption budgets refuse that now. The plan comes from the same code as in the operator. Nothing is changed.\n\n" +
			"With -f the plan is for files that are not applied yet. It assumes that everything succeeds.\n\n" +
			"Exit code 0: nothing would change; 2: something would change; 1: the plan failed.",
		Example: "  kubectl skyhook plan\n" +
			"  kubectl skyhook plan -f skyhook.yaml -f policy.yaml\n" +
			"  kubectl skyhook plan demo --from stuck.yaml -o json",
		ValidArgsFunction: f.completeSkyhooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return runPlan(cmd.Context(), f, from, args, waves) },
	}
	from.addFromFlag(cmd)
	from.addFilesFlag(cmd)
	cmd.Flags().IntVar(&waves, "waves", waves, fmt.Sprintf("number of waves to print; 0 for all; default: all up to %d nodes, otherwise 10", maxNodesSimulated))
	return cmd
}

func runPlan(ctx context.Context, f *factory, from viewOptions, args []string, waves int) error {
	if _, err := f.CheckFormat(); err != nil {
		return err
	}
	v, err := loadView(ctx, f, from)
	if err != nil {
		return err
	}
	if err := v.checkNames(args); err != nil {
		return err
	}
	if err := v.loadNextPods(ctx, f); err != nil {
		return err
	}
	p := buildPlan(v, args, limitWaves(waves, 10, len(v.snapshot.Nodes)))
	if err := f.Print(output.Answer{Value: p, Names: p.names(), Text: p.formatText}); err != nil {
		return err
	}
	if p.Changes {
		return &output.ExitError{Code: exitChanges}
	}
	return nil
}

// plan is what the plan command prints.
type plan struct {
	Changes  bool             `json:"changes"`
	Rollouts []rolloutPlan    `json:"rollouts"`
	Actions  []planAction     `json:"actions"` // of the next reconcile
	Settings operatorSettings `json:"settings"`
}

// rolloutPlan is the plan of one rollout.
type rolloutPlan struct {
	Name     rollout.Ref `json:"name"`
	Nodes    int         `json:"nodes"`    // selected
	Changing int         `json:"changing"` // of these, with work that can start
	Work     []planWork  `json:"work"`
	Waves    []wave      `json:"waves"`
	// what other programs are shown on each node while it is held, or before
	Marks []nodeMark `json:"marks,omitempty"`
	// compartments that begin after each other, or after an approval
	Compartments []compartmentPlan `json:"compartments,omitempty"`
	Closed       []closedGroup     `json:"closed,omitempty"` // groups that start nothing now
	Later        int               `json:"later"`            // nodes that start after the printed waves
	Never        []reasonCount     `json:"waiting,omitempty"`
	Pods         []nodePods        `json:"pods,omitempty"`
	Images       []packageImage    `json:"images,omitempty"` // of packages, with pinImages
	Warnings     []string          `json:"warnings,omitempty"`
	Problem      string            `json:"problem,omitempty"`
}

// planWork is the work of nodes with the same tasks.
type planWork struct {
	Nodes []string   `json:"nodes"`
	Steps []planStep `json:"steps"`
}

// packageImage is what nodes pull for a package.
type packageImage struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Image   string `json:"image"`
	Text    string `json:"text"`
}

// closedGroup is a group that starts nothing now.
type closedGroup struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// planStep is one task.
type planStep struct {
	Task   string   `json:"task"`
	Why    string   `json:"why"`
	Needs  string   `json:"needs,omitempty"`
	Covers []string `json:"covers,omitempty"`
}

// nodePods are the pods to evict from one node.
type nodePods struct {
	Node    string   `json:"node"`
	Evict   []string `json:"evict,omitempty"`
	Wait    []string `json:"waitFor,omitempty"`
	Keep    []string `json:"cannotBeEvicted,omitempty"`
	Refused []string `json:"refusedNow,omitempty"`
}

// planAction is one action of the next reconcile.
type planAction struct {
	Node    string `json:"node"`
	Verb    string `json:"verb"`
	Rollout string `json:"rollout"`
	What    string `json:"what,omitempty"`
	Why     string `json:"why"`
}

// reasonCount is how many nodes wait for the same reason.
type reasonCount struct {
	Reason string   `json:"reason"`
	Nodes  int      `json:"nodes"`
	Text   string   `json:"text"` // of the first node
	First  []string `json:"first"`
}

func (p *plan) names() []string {
	var names []string
	for _, r := range p.Rollouts {
		if r.Changing > 0 {
			names = append(names, strings.ToLower(r.Name.String()))
		}
	}
	return names
}
