// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
)

// cleanupOptions are the flags of cleanup.
type cleanupOptions struct {
	*session.Factory
	sure  session.Confirmation
	force bool
}

// NewCleanupCommand returns the command `cleanup`.
func NewCleanupCommand(f *session.Factory) *cobra.Command {
	o := &cleanupOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what an operator left behind that was uninstalled too early",
		Long: "Remove what an operator left behind that was uninstalled too early: our finalizers, cordons, annotations, labels,\n" +
			"conditions and taints on nodes, and our pods and ConfigMaps. It prints what it would remove, for many nodes only the\n" +
			"first ones without -o wide, and asks.\n\n" +
			"Files of packages on hosts stay, but their records on nodes go: a Skyhook that is created again installs its packages\n" +
			"again. Objects stay too, but can be deleted afterwards. While an operator runs, cleanup\n" +
			"refuses: delete the Skyhooks, and the operator cleans up. See also reset, for one Skyhook.",
		Example: "  kubectl skyhook cleanup --dry-run\n" +
			"  kubectl skyhook cleanup --yes",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.sure.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.force, "force", false, "clean up even if an operator runs")
	return cmd
}

func (o *cleanupOptions) run(ctx context.Context) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	if err := o.checkNoOperator(ctx, c); err != nil {
		return err
	}
	r, err := findRemains(ctx, o.Factory, c)
	if err != nil {
		return err
	}
	if r.isEmpty() {
		fmt.Fprintln(o.ErrOut, "Nothing is left behind")
		return nil
	}
	if o.DryRun || !o.sure.Given {
		fmt.Fprint(o.ErrOut, r.formatText(o.Factory))
	}
	if err := o.Confirm(&o.sure, "Remove all of this?"); err != nil {
		return err
	}
	if !o.DryRun {
		if err := o.remove(ctx, c, r); err != nil {
			return err
		}
	}
	return o.Print(output.Answer{Value: r, Names: output.WithKind("node", r.Nodes...), Text: func(bool) string {
		return fmt.Sprintf("Cleaned up %s, %s, %s and %s%s\n", output.Count(len(r.Nodes), "node"), output.Count(len(r.Finalizers), "finalizer"),
			output.Count(len(r.Pods), "pod"), output.Count(len(r.ConfigMaps), "ConfigMap"), o.DryRunSuffix())
	}})
}

// checkNoOperator returns an error when a Deployment of the operator has pods.
func (o *cleanupOptions) checkNoOperator(ctx context.Context, c client.Client) error {
	operators, err := session.ListOperators(ctx, o.Factory, c)
	if err != nil || o.force {
		return err
	}
	if slices.ContainsFunc(operators, func(d appsv1.Deployment) bool { return d.Status.Replicas > 0 }) {
		return fmt.Errorf("an operator runs in namespace %s: delete the Skyhooks and let it clean up, or add --force", o.Namespace())
	}
	return nil
}

// remove deletes objects first, then edits nodes, and removes the finalizers last: until then, a failed cleanup can be
// repeated.
func (o *cleanupOptions) remove(ctx context.Context, c client.Client, r *remains) error {
	var errs []error
	for _, object := range r.owned {
		uid := object.GetUID()
		o.Note("deleting %s", object.GetName())
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, object, client.Preconditions{UID: &uid})))
	}
	cleanNode := func(n *node.Node) (node.Edit, error) { return newCleanupEdit(n, r.config), nil }
	errs = append(errs, session.EditNodes(ctx, o.Factory, c, r.nodes, cleanNode))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	for _, object := range r.objects {
		finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isOurFinalizer)
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": object.GetResourceVersion()}})
		if err != nil {
			return fmt.Errorf("cleaning up: %w", err)
		}
		o.Note("patching %s: %s", object.GetName(), raw)
		if err := client.IgnoreNotFound(c.Patch(ctx, object, client.RawPatch(types.MergePatchType, raw))); err != nil {
			return fmt.Errorf("removing the finalizer of %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// formatText lists what is removed.
func (r *remains) formatText(f *session.Factory) string {
	var b strings.Builder
	if len(r.nodes) > 0 {
		var rows [][]string
		for _, n := range r.nodes {
			edit := r.edits[n.Name]
			rows = append(rows, []string{n.Name, session.YesOrDash(edit.Unschedulable != nil), session.YesOrDash(len(edit.RemoveTaints) > 0), output.List(n.Skyhooks(), 4)})
		}
		b.WriteString("Nodes:\n" + session.Indent(f.FormatNodeTable([]string{"NODE", "UNCORDON", "UNTAINT", "SKYHOOKS"}, rows, nil)))
	}
	for _, list := range []struct {
		title string
		names []string
	}{{"Finalizers", r.Finalizers}, {"Pods", r.Pods}, {"ConfigMaps", r.ConfigMaps}, {"Policies", r.Policies}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", list.title, output.List(list.names, 10))
		}
	}
	return b.String()
}
