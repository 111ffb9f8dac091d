// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// rerunStages are the stages from which a package can be run again.
var rerunStages = []string{
	string(v1alpha1.StageApply), string(v1alpha1.StageConfig), string(v1alpha1.StageInterrupt), string(v1alpha1.StagePostInterrupt),
}

// RerunOptions are the flags of package reapply, and what it found.
type RerunOptions struct {
	*session.Factory
	Sure             session.Confirmation
	Name, Pkg, stage string
	NodeArgs         []string // names or expressions
	version          string   // of the package, in the spec
	nodes            []*node.Node
	refusals         []string // why the package does not run on other nodes
	now              bool     // replace the running stage
}

func newPackageReapplyCommand(f *session.Factory) *cobra.Command {
	o := &RerunOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "reapply PACKAGE --skyhook SKYHOOK --node NODE",
		Short: "Apply a package again on nodes",
		Long: "Apply a package again on nodes, from its first stage or from --stage. The operator runs it within the budget, with the\n" +
			"interrupt of the package.\n\n" +
			"A running stage ends first, with the definition that it began with. --now replaces it: the stage is stopped and begins\n" +
			"again with the present definition. An interrupt is never replaced.",
		Example: "  kubectl skyhook package reapply tuning --skyhook demo --node worker-1\n" +
			"  kubectl skyhook package reapply tuning --skyhook demo --node 'gpu-.*' --stage config --confirm\n" +
			"  kubectl skyhook package reapply tuning --skyhook demo --node worker-1 --now",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pkg = args[0]
			return o.Run(cmd.Context())
		},
	}
	f.AddSkyhookFlag(cmd, &o.Name, true)
	f.AddNodeFlag(cmd, &o.NodeArgs, "run it on this `node`, by name or regular expression; may be repeated (required)")
	_ = cmd.MarkFlagRequired("node")
	cmd.Flags().StringVar(&o.stage, "stage", "", "first `stage` to run: "+strings.Join(rerunStages, ", "))
	_ = cmd.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(rerunStages, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&o.now, "now", false, "stop the running stage and begin it again with the present definition")
	cmd.MarkFlagsMutuallyExclusive("now", "stage")
	o.Sure.AddFlags(cmd.Flags())
	return cmd
}

// Run has a package run again on nodes.
func (o *RerunOptions) Run(ctx context.Context) error {
	if o.stage != "" && !slices.Contains(rerunStages, o.stage) {
		return fmt.Errorf("--stage %q is not one of %s", o.stage, strings.Join(rerunStages, ", "))
	}
	c, err := o.NewClient()
	if err != nil {
		return err
	}
	if err := o.readVersion(ctx, c); err != nil {
		return err
	}
	all, err := session.ListNodeMetadata(ctx, o.Factory, c)
	if err != nil {
		return err
	}
	if all, err = session.SelectNodes(all, o.NodeArgs); err != nil {
		return err
	}
	for _, n := range all {
		if _, err := o.change(n); err != nil {
			o.refusals = append(o.refusals, err.Error())
		} else {
			o.nodes = append(o.nodes, n)
		}
	}
	if len(o.nodes) == 0 {
		return fmt.Errorf("nothing to run again: %s", strings.Join(o.refusals, "; "))
	}
	for _, refusal := range o.refusals {
		o.Warn("%s", refusal)
	}
	question := fmt.Sprintf("Run package %s %s of Skyhook %s again %s on %s: %s?", o.Pkg, o.version, o.Name, o.start(),
		output.Count(len(o.nodes), "node"), output.List(session.NodeNames(o.nodes), 10))
	if err := o.Confirm(&o.Sure, question); err != nil {
		return err
	}
	if err := session.EditNodes(ctx, o.Factory, c, o.nodes, o.change); err != nil {
		return fmt.Errorf("requesting package %s again: %w", o.Pkg, err)
	}
	return o.printResult()
}

// readVersion reads the version of the package from the spec, and checks that the package has the stage.
func (o *RerunOptions) readVersion(ctx context.Context, c client.Client) error {
	s, err := o.GetSkyhook(ctx, c, o.Name)
	if err != nil {
		return err
	}
	p, ok := s.Spec.Packages[o.Pkg]
	if !ok {
		return fmt.Errorf("there is no package %q in Skyhook %s; it has %s", o.Pkg, s.Name,
			cmp.Or(output.List(slices.Sorted(maps.Keys(s.Spec.Packages)), 20), "none"))
	}
	if strings.HasSuffix(o.stage, string(v1alpha1.StageInterrupt)) && p.Interrupt == nil {
		return fmt.Errorf("--stage %s: package %s of Skyhook %s has no interrupt, so it has no such stage", o.stage, o.Pkg, o.Name)
	}
	o.version = string(p.Version)
	return nil
}

func (o *RerunOptions) change(n *node.Node) (node.Edit, error) {
	if o.now {
		return n.Replace(o.Name, o.Pkg, o.version)
	}
	return n.Rerun(o.Name, o.Pkg, o.version, v1alpha1.Stage(o.stage))
}

// start describes the first stage that runs.
func (o *RerunOptions) start() string {
	if o.now {
		return "from the stage that it runs now"
	}
	if o.stage == "" {
		return "from its first stage"
	}
	return "from stage " + o.stage
}

func (o *RerunOptions) printResult() error {
	names := session.NodeNames(o.nodes)
	lines := make([]string, len(names))
	for i, node := range names {
		lines[i] = fmt.Sprintf("Package %q of Skyhook %q runs again %s on node %q", o.Pkg, o.Name, o.start(), node)
	}
	value := map[string]any{"skyhookName": o.Name, "package": o.Pkg, "version": o.version, "stage": o.stage, "nodes": names}
	return o.PrintChange(value, output.WithKind("node", names...), lines...)
}
