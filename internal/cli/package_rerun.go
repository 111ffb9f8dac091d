// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// rerunStages are the stages a package can be run from again.
var rerunStages = []string{
	string(v1alpha1.StageApply), string(v1alpha1.StageConfig), string(v1alpha1.StageInterrupt), string(v1alpha1.StagePostInterrupt),
}

// rerunning is one rerun.
type rerunning struct {
	sure                confirmation
	skyhook, pkg, stage string
	nodes               []string        // names or expressions
	version             string          // of the spec
	changed             []*skyhook.Node // that record it
	reasons             []string        // why others do not run it
}

func (a *factory) packageRerunCommand() *cobra.Command {
	var r rerunning
	cmd := &cobra.Command{
		Use:   "rerun PACKAGE --skyhook SKYHOOK --node NODE",
		Short: "Run a package again on nodes",
		Long: "Run a package again on nodes: from its first stage, or from the stage given. The operator does it within the budget,\n" +
			"and with the package's interrupt.",
		Example: "  kubectl skyhook package rerun tuning --skyhook demo --node worker-1\n" +
			"  kubectl skyhook package rerun tuning --skyhook demo --node 'gpu-.*' --stage config --confirm",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.pkg = args[0]
			return a.rerun(cmd.Context(), &r)
		},
	}
	a.skyhookFlag(cmd, &r.skyhook, true)
	a.nodeFlag(cmd, &r.nodes, "run it on this `node`, by name or regular expression; may be repeated; required")
	_ = cmd.MarkFlagRequired("node")
	cmd.Flags().StringVar(&r.stage, "stage", "", "begin with this `stage`: "+strings.Join(rerunStages, ", "))
	_ = cmd.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(rerunStages, cobra.ShellCompDirectiveNoFileComp))
	r.sure.flags(cmd.Flags())
	return cmd
}

func (a *factory) rerun(ctx context.Context, r *rerunning) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	if r.stage != "" && !slices.Contains(rerunStages, r.stage) {
		return fmt.Errorf("--stage %q is not one of %s", r.stage, strings.Join(rerunStages, ", "))
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	s, err := a.getSkyhook(ctx, c, r.skyhook)
	if err != nil {
		return err
	}
	p, err := packageOf(s, r.pkg)
	if err != nil {
		return err
	}
	if strings.HasSuffix(r.stage, string(v1alpha1.StageInterrupt)) && p.Interrupt == nil {
		return fmt.Errorf("--stage %s: package %s of Skyhook %s has no interrupt, so it has no such stage", r.stage, r.pkg, r.skyhook)
	}
	r.version = string(p.Version)
	all, err := a.listNodeMetadata(ctx, c)
	if err != nil {
		return err
	}
	if all, err = named(all, r.nodes); err != nil {
		return err
	}
	change := func(n *skyhook.Node) (skyhook.Edit, error) {
		return n.Rerun(r.skyhook, r.pkg, r.version, v1alpha1.Stage(r.stage))
	}
	r.sort(all, change)
	if len(r.changed) == 0 {
		return fmt.Errorf("nothing to run again: %s", strings.Join(r.reasons, "; "))
	}
	for _, reason := range r.reasons {
		a.Warn("%s", reason)
	}
	if err := a.confirm(&r.sure, r.question()); err != nil {
		return err
	}
	if err := a.edit(ctx, c, r.changed, change); err != nil {
		return fmt.Errorf("asking for package %s again: %w", r.pkg, err)
	}
	return a.rerunDone(r)
}

// sort tells the nodes that record the package from those that do not.
func (r *rerunning) sort(all []*skyhook.Node, change func(*skyhook.Node) (skyhook.Edit, error)) {
	for _, n := range all {
		if _, err := change(n); err != nil {
			r.reasons = append(r.reasons, err.Error())
		} else {
			r.changed = append(r.changed, n)
		}
	}
}

// from says where the package begins.
func (r *rerunning) from() string {
	if r.stage == "" {
		return "from its first stage"
	}
	return "from stage " + r.stage
}

func (r *rerunning) question() string {
	return fmt.Sprintf("Run package %s %s of Skyhook %s again %s on %s: %s?", r.pkg, r.version, r.skyhook, r.from(),
		output.Count(len(r.changed), "node"), output.List(names(r.changed), 10))
}

func (a *factory) rerunDone(r *rerunning) error {
	return a.Print(output.Answer{
		Value: map[string]any{
			"skyhookName": r.skyhook, "package": r.pkg, "version": r.version, "stage": r.stage, "nodes": names(r.changed), "dryRun": a.DryRun,
		},
		Names: output.WithKind("node", names(r.changed)...),
		Text: func(bool) string {
			text := ""
			for _, n := range r.changed {
				text += fmt.Sprintf("Package %q of Skyhook %q runs again %s on node %q", r.pkg, r.skyhook, r.from(), n.Name)
				if a.DryRun {
					text += " (dry run)"
				}
				text += "\n"
			}
			return text
		},
	})
}
