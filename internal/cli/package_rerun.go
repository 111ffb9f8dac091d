// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

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
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// rerunStages are the stages from which a package can be run again.
var rerunStages = []string{
	string(v1alpha1.StageApply), string(v1alpha1.StageConfig), string(v1alpha1.StageInterrupt), string(v1alpha1.StagePostInterrupt),
}

// rerunOptions are the flags of package rerun, and what it found.
type rerunOptions struct {
	*factory
	sure             confirmation
	name, pkg, stage string
	nodeArgs         []string // names or expressions
	version          string   // of the package, in the spec
	nodes            []*node.Node
	refusals         []string // why the package does not run on other nodes
	now              bool     // replace the running stage
}

func newPackageRerunCommand(f *factory) *cobra.Command {
	o := &rerunOptions{factory: f}
	cmd := &cobra.Command{
		Use:   "rerun PACKAGE --skyhook SKYHOOK --node NODE",
		Short: "Run a package again on nodes",
		Long: "Run a package again on nodes, from its first stage or from --stage. The operator runs it within the budget, with the\n" +
			"interrupt of the package.\n\n" +
			"A running stage ends first, with the definition that it began with. --now replaces it: the stage is stopped and begins\n" +
			"again with the present definition. An interrupt is never replaced.",
		Example: "  kubectl skyhook package rerun tuning --skyhook demo --node worker-1\n" +
			"  kubectl skyhook package rerun tuning --skyhook demo --node 'gpu-.*' --stage config --confirm\n" +
			"  kubectl skyhook package rerun tuning --skyhook demo --node worker-1 --now",
		Args: output.Args("PACKAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.pkg = args[0]
			return o.run(cmd.Context())
		},
	}
	f.addSkyhookFlag(cmd, &o.name, true)
	f.addNodeFlag(cmd, &o.nodeArgs, "run it on this `node`, by name or regular expression; may be repeated (required)")
	_ = cmd.MarkFlagRequired("node")
	cmd.Flags().StringVar(&o.stage, "stage", "", "first `stage` to run: "+strings.Join(rerunStages, ", "))
	_ = cmd.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(rerunStages, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&o.now, "now", false, "stop the running stage and begin it again with the present definition")
	cmd.MarkFlagsMutuallyExclusive("now", "stage")
	o.sure.addFlags(cmd.Flags())
	return cmd
}

func (o *rerunOptions) run(ctx context.Context) error {
	if o.stage != "" && !slices.Contains(rerunStages, o.stage) {
		return fmt.Errorf("--stage %q is not one of %s", o.stage, strings.Join(rerunStages, ", "))
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	if err := o.readVersion(ctx, c); err != nil {
		return err
	}
	all, err := listNodeMetadata(ctx, o.factory, c)
	if err != nil {
		return err
	}
	if all, err = selectNodes(all, o.nodeArgs); err != nil {
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
	question := fmt.Sprintf("Run package %s %s of Skyhook %s again %s on %s: %s?", o.pkg, o.version, o.name, o.start(),
		output.Count(len(o.nodes), "node"), output.List(nodeNames(o.nodes), 10))
	if err := o.confirm(&o.sure, question); err != nil {
		return err
	}
	if err := editNodes(ctx, o.factory, c, o.nodes, o.change); err != nil {
		return fmt.Errorf("requesting package %s again: %w", o.pkg, err)
	}
	return o.printResult()
}

// readVersion reads the version of the package from the spec, and checks that the package has the stage.
func (o *rerunOptions) readVersion(ctx context.Context, c client.Client) error {
	s, err := o.getSkyhook(ctx, c, o.name)
	if err != nil {
		return err
	}
	p, ok := s.Spec.Packages[o.pkg]
	if !ok {
		return fmt.Errorf("there is no package %q in Skyhook %s; it has %s", o.pkg, s.Name,
			cmp.Or(output.List(slices.Sorted(maps.Keys(s.Spec.Packages)), 20), "none"))
	}
	if strings.HasSuffix(o.stage, string(v1alpha1.StageInterrupt)) && p.Interrupt == nil {
		return fmt.Errorf("--stage %s: package %s of Skyhook %s has no interrupt, so it has no such stage", o.stage, o.pkg, o.name)
	}
	o.version = string(p.Version)
	return nil
}

func (o *rerunOptions) change(n *node.Node) (node.Edit, error) {
	if o.now {
		return n.Replace(o.name, o.pkg, o.version)
	}
	return n.Rerun(o.name, o.pkg, o.version, v1alpha1.Stage(o.stage))
}

// start describes the first stage that runs.
func (o *rerunOptions) start() string {
	if o.now {
		return "from the stage that it runs now"
	}
	if o.stage == "" {
		return "from its first stage"
	}
	return "from stage " + o.stage
}

func (o *rerunOptions) printResult() error {
	names := nodeNames(o.nodes)
	return o.Print(output.Answer{
		Value: map[string]any{
			"skyhookName": o.name, "package": o.pkg, "version": o.version, "stage": o.stage, "nodes": names, "dryRun": o.DryRun,
		},
		Names: output.WithKind("node", names...),
		Text: func(bool) string {
			text := ""
			for _, node := range names {
				text += fmt.Sprintf("Package %q of Skyhook %q runs again %s on node %q%s\n", o.pkg, o.name, o.start(), node, o.dryRunSuffix())
			}
			return text
		},
	})
}
