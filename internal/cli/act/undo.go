// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/preview"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// undoOptions are the flags of undo.
type undoOptions struct {
	*session.Factory
	sure  session.Confirmation
	name  string
	to    int64
	force bool
}

// NewUndoCommand returns the command `undo`.
func NewUndoCommand(f *session.Factory) *cobra.Command {
	o := &undoOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "undo SKYHOOK",
		Short: "Go back to the packages of an earlier revision",
		Long: "Go back to the packages of an earlier revision: it shows what changes in the spec and the plan for the nodes, asks, and writes the\n" +
			"packages into the spec. Nothing else of the spec changes, and nodes change as after any other edit: within budgets, windows\n" +
			"and gates. Lower versions are uninstalled and installed as the packages say.\n\n" +
			"A Skyhook whose packages are written by a GitOps tool, as its managed fields say, is left alone: the tool would undo the\n" +
			"undo. Revert the commit instead, or use --force.",
		Example: "  kubectl skyhook undo demo\n" +
			"  kubectl skyhook undo demo --to-revision 3 --confirm",
		Args: output.Args("SKYHOOK"), ValidArgsFunction: f.CompleteSkyhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().Int64Var(&o.to, "to-revision", 0, "`number` of the revision to go back to; 0 for the newest that differs from the spec")
	cmd.Flags().BoolVar(&o.force, "force", false, "write packages that a GitOps tool owns")
	o.sure.AddFlags(cmd.Flags())
	return cmd
}

func (o *undoOptions) run(ctx context.Context) error {
	c, all, err := session.ReadRevisions(ctx, o.Factory, o.name)
	if err != nil {
		return err
	}
	to, err := all.Choose(o.to)
	if err != nil {
		return err
	}
	if to.Current {
		return fmt.Errorf("the spec of Skyhook %s has the packages of revision %d already", o.name, to.Revision)
	}
	if owner := findPackageOwner(all.Skyhook.ManagedFields); owner != "" && !o.force {
		return fmt.Errorf("the packages of Skyhook %s are written by %s, which would undo the undo: revert the commit there, or add --force", o.name, owner)
	}
	if err := o.preview(ctx, all, to); err != nil {
		return err
	}
	if err := o.Confirm(&o.sure, fmt.Sprintf("Go back to revision %d of Skyhook %q?", to.Revision, o.name)); err != nil {
		return err
	}
	if err := o.write(ctx, c, all.Skyhook, to); err != nil {
		return err
	}
	value := map[string]any{"skyhookName": o.name, "action": "undone", "revision": to.Revision}
	return o.PrintChange(value, output.WithKind("skyhook", o.name), fmt.Sprintf("Skyhook %q has the packages of revision %d", o.name, to.Revision))
}

// preview shows, on the standard error, what would change in the spec and on nodes.
func (o *undoOptions) preview(ctx context.Context, all *view.Revisions, to *view.Revision) error {
	diff, err := all.DiffTo(to)
	if err != nil {
		return err
	}
	cluster, err := session.OpenCluster(ctx, o.Factory, "")
	if err != nil {
		return err
	}
	changed := &v1alpha1.Skyhook{}
	if err := cluster.Find(ctx, client.ObjectKey{Name: o.name}, changed); err != nil {
		return fmt.Errorf("reading Skyhook %s: %w", o.name, err)
	}
	changed = changed.DeepCopy()
	changed.Spec.Packages = to.Packages
	changed.Status.Internal.ImagePins = all.PinsAfter(to)
	changed.Generation++
	if err := cluster.Put(changed); err != nil {
		return err
	}
	v, err := session.NewView(ctx, o.Factory, cluster)
	if err != nil {
		return err
	}
	if err := session.LoadNextPods(ctx, o.Factory, v); err != nil {
		return err
	}
	p := view.BuildPlan(v, []string{o.name}, view.LimitWaves(-1, 10, len(v.Snapshot.Nodes)))
	fmt.Fprintf(o.ErrOut, "%s\n%s\n", diff, preview.FormatPlan(p, false))
	return nil
}

// write puts the packages of a revision into the spec, if the Skyhook still is what was shown.
func (o *undoOptions) write(ctx context.Context, c client.Client, s *v1alpha1.Skyhook, to *view.Revision) error {
	cause := fmt.Sprintf("undo to revision %d", to.Revision)
	if to.ChangeCause != "" {
		cause += ": " + to.ChangeCause
	}
	steps := []map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": s.ResourceVersion},
		{"op": "replace", "path": "/spec/packages", "value": to.Packages},
	}
	if s.Annotations == nil {
		steps = append(steps, map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]string{}})
	}
	steps = append(steps, map[string]any{"op": "add", "path": "/metadata/annotations/kubernetes.io~1change-cause", "value": cause})
	raw, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	err = c.Patch(ctx, s, client.RawPatch(types.JSONPatchType, raw))
	if apierrors.IsInvalid(err) && failedTest.MatchString(err.Error()) {
		return fmt.Errorf("nothing was written, because Skyhook %s was changed meanwhile: run the command again", s.Name)
	}
	if err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	return nil
}

// failedTest matches what an API server says when the test of a JSON patch fails.
var failedTest = regexp.MustCompile(`(?i)testing.*resourceVersion.*failed|test failed`)

// gitOpsManagers matches the names under which GitOps tools write objects.
var gitOpsManagers = regexp.MustCompile(`(?i)argo-?cd|flux|kustomize-controller|helm|fleet|config-?sync|configmanagement|carvel|kapp`)

// findPackageOwner returns the GitOps tool that writes the packages of a Skyhook, as its managed fields say; nothing for people. Whoever
// applies on the server's side and is not kubectl repeats it, and counts as such a tool.
func findPackageOwner(fields []metav1.ManagedFieldsEntry) string {
	for _, entry := range fields {
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.Subresource != "" || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil || owned.Spec["f:packages"] == nil {
			continue
		}
		appliesAgain := entry.Operation == metav1.ManagedFieldsOperationApply && !strings.HasPrefix(entry.Manager, "kubectl")
		if gitOpsManagers.MatchString(entry.Manager) || appliesAgain {
			return entry.Manager
		}
	}
	return ""
}
