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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/cluster/handover"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
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
			"refuses: delete the Skyhooks, and the operator cleans up. See also forget, for one Skyhook.",
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
	c, err := o.NewClient()
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
	if err := o.remove(ctx, c, r); err != nil {
		return err
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
		return fmt.Errorf("an operator runs in namespace %s: delete the Skyhooks and let it clean up, or add --force", o.Namespace(ctx))
	}
	return nil
}

// remove deletes objects first, then edits nodes, and removes the finalizers last: until then, a failed cleanup can be
// repeated.
func (o *cleanupOptions) remove(ctx context.Context, c client.Client, r *remains) error {
	var errs []error
	for _, object := range r.owned {
		uid := object.GetUID()
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
	}{{"Finalizers", r.Finalizers}, {"Pods", r.Pods}, {"ConfigMaps", r.ConfigMaps}, {"Policies", r.Policies}, {"Handovers", r.Asked}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", list.title, output.List(list.names, 10))
		}
	}
	return b.String()
}

// remains is everything of ours in a cluster.
type remains struct {
	Finalizers []string `json:"finalizers"` // objects with our finalizers
	Nodes      []string `json:"nodes"`
	Pods       []string `json:"pods"`
	ConfigMaps []string `json:"configMaps"`
	Policies   []string `json:"policies,omitempty"`  // admission policies that protect the operator
	Asked      []string `json:"handovers,omitempty"` // objects that ask other programs for nodes
	DryRun     bool     `json:"dryRun"`

	objects []client.Object
	nodes   []*node.Node
	edits   map[string]node.Edit // by node
	owned   []client.Object
	config  plan.Config
}

func (r *remains) isEmpty() bool {
	return len(r.Finalizers)+len(r.Nodes)+len(r.Pods)+len(r.ConfigMaps)+len(r.Policies) == 0
}

func findRemains(ctx context.Context, f *session.Factory, c client.Client) (*remains, error) {
	cluster, err := session.OpenCluster(ctx, f, "")
	if err != nil {
		return nil, err
	}
	r := &remains{
		Finalizers: []string{}, Nodes: []string{}, Pods: []string{}, ConfigMaps: []string{}, DryRun: f.DryRun,
		edits: map[string]node.Edit{}, config: cluster.Operator.Skyhook(""),
	}
	if err := r.addObjects(ctx, cluster); err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := cluster.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	r.nodes = slices.DeleteFunc(session.ParseNodes(nodes.Items), func(n *node.Node) bool {
		edit := newCleanupEdit(n, r.config)
		if !edit.Empty() {
			r.edits[n.Name] = edit
		}
		return edit.Empty()
	})
	r.Nodes = append(r.Nodes, session.NodeNames(r.nodes)...)
	if err := r.addOwned(ctx, c, f.Namespace(ctx)); err != nil {
		return nil, err
	}
	if err := r.addHandovers(ctx, c); err != nil {
		return nil, err
	}
	return r, r.addBinding(ctx, c)
}

// addHandovers adds the objects that ask other programs for nodes.
func (r *remains) addHandovers(ctx context.Context, c client.Client) error {
	for _, n := range r.nodes {
		asked, err := handover.Find(ctx, c, n, n.HandoverObjects())
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		for _, o := range asked {
			r.owned, r.Asked = append(r.owned, o), append(r.Asked, o.GetKind()+"/"+o.GetName())
		}
	}
	return nil
}

// addObjects adds the objects with our finalizers.
func (r *remains) addObjects(ctx context.Context, cluster *dump.Cluster) error {
	for _, kind := range []struct {
		list client.ObjectList
		gvk  schema.GroupVersionKind
	}{
		{&v1alpha1.SkyhookList{}, v1alpha1.GroupVersion.WithKind("Skyhook")},
		{&v1alpha1.DeploymentPolicyList{}, v1alpha1.GroupVersion.WithKind("DeploymentPolicy")},
		{&nodeopv1.NodeOpList{}, nodeopv1.GroupVersion.WithKind("NodeOp")},
	} {
		if err := cluster.List(ctx, kind.list); err != nil && !session.IsUnknownKind(err) {
			return fmt.Errorf("listing %ss: %w", kind.gvk.Kind, err)
		}
		for _, o := range cluster.Objects(kind.gvk) {
			if slices.ContainsFunc(o.GetFinalizers(), isOurFinalizer) {
				r.objects = append(r.objects, o)
				r.Finalizers = append(r.Finalizers, strings.ToLower(kind.gvk.Kind)+"/"+o.GetName())
			}
		}
	}
	return nil
}

// addOwned adds our pods and ConfigMaps.
func (r *remains) addOwned(ctx context.Context, c client.Client, namespace string) error {
	pods, configMaps := &corev1.PodList{}, &corev1.ConfigMapList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing pods in namespace %s: %w", namespace, err)
	}
	if err := c.List(ctx, configMaps, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing ConfigMaps in namespace %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; isOwnedByUs(p) || kairos.IsProbe(p, namespace) {
			r.owned, r.Pods = append(r.owned, p), append(r.Pods, p.Name)
		}
	}
	for i := range configMaps.Items {
		if m := &configMaps.Items[i]; isOwnedByUs(m) {
			r.owned, r.ConfigMaps = append(r.owned, m), append(r.ConfigMaps, m.Name)
		}
	}
	return nil
}

// addBinding adds the binding of the admission policy that refuses the removal of an operator that NodeOps need.
func (r *remains) addBinding(ctx context.Context, c client.Client) error {
	binding := &metav1.PartialObjectMetadata{}
	binding.SetGroupVersionKind(session.PolicyBinding)
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.InUseByNodeOps}, binding)
	switch {
	case err == nil:
		r.owned, r.Policies = append(r.owned, binding), append(r.Policies, binding.Name)
	case !apierrors.IsNotFound(err) && !session.IsUnknownKind(err):
		return fmt.Errorf("reading ValidatingAdmissionPolicyBinding %s: %w", v1alpha1.InUseByNodeOps, err)
	}
	return nil
}

func isOurFinalizer(name string) bool {
	return strings.HasPrefix(name, v1alpha1.Group+"/") || name == nodeopv1.FinalizerNodeOp || name == nodeopv1.FinalizerReboot
}

func isOwnedByUs(o client.Object) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && (strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/") || strings.HasPrefix(owner.APIVersion, nodeopv1.Group+"/"))
}

// newCleanupEdit returns the edit that removes everything of ours from a node. A cordon of ours is removed, unless the node
// was cordoned before, and so are marks of ours.
func newCleanupEdit(n *node.Node, config plan.Config) node.Edit {
	edit := node.Edit{Annotations: map[string]*string{}, Labels: map[string]*string{}}
	isLabelledByUs := kairos.HasOwnLabels(n.Annotations)
	for key := range n.Annotations {
		isOurs := strings.HasPrefix(key, v1alpha1.Group+"/") || strings.HasPrefix(key, nodeopv1.Group+"/")
		if isOurs || isLabelledByUs && kairos.IsAnnotation(key) {
			edit.Annotations[key] = nil
		}
	}
	for key := range n.Labels {
		isOurs := strings.HasPrefix(key, v1alpha1.Group+"/") && key != v1alpha1.LabelIgnore
		if isOurs || isLabelledByUs && kairos.IsLabel(key) {
			edit.Labels[key] = nil
		}
	}
	cordon := n.Cordon(n.Holds(nil))
	for _, h := range cordon.Holds {
		cordon = cordon.Release(h.Owner)
	}
	edit.SetUnschedulable(n, cordon.Unschedulable)
	if n.HasTaint(config.RuntimeTaint) {
		edit.RemoveTaints = []corev1.Taint{config.RuntimeTaint}
	}
	for _, c := range n.Conditions {
		edit.RemoveConditions = append(edit.RemoveConditions, c.Type)
	}
	return edit.Plus(n.RemoveMarks())
}
