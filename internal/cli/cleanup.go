// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

func (a *factory) cleanupCommand() *cobra.Command {
	var sure confirmation
	force := false
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what an operator that was removed too early left behind",
		Long: "Remove what an operator that was removed too early left behind: our finalizers, cordons, annotations, labels, conditions\n" +
			"and taints on nodes, and our pods and ConfigMaps. It shows first what that is, of many nodes a few unless -o wide asks for\n" +
			"all, and asks.\n\n" +
			"What packages installed on hosts stays there. Objects stay too, but can be deleted then. While an operator runs it\n" +
			"refuses: delete the Skyhooks and let the operator do it. See also reset, for one Skyhook.",
		Example: "  kubectl skyhook cleanup --dry-run\n" +
			"  kubectl skyhook cleanup --yes",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.cleanup(cmd.Context(), &sure, force) },
	}
	sure.flags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "go on although an operator runs")
	return cmd
}

// remains is what is left behind.
type remains struct {
	Finalizers []string `json:"finalizers"` // objects that carry one of ours
	Nodes      []string `json:"nodes"`
	Pods       []string `json:"pods"`
	ConfigMaps []string `json:"configMaps"`
	Policies   []string `json:"policies,omitempty"` // what has the operator's removal refused
	DryRun     bool     `json:"dryRun"`

	objects []client.Object
	nodes   []*skyhook.Node
	edits   map[string]skyhook.Edit
	owned   []client.Object
	config  skyhook.Config
}

func (r *remains) empty() bool {
	return len(r.Finalizers)+len(r.Nodes)+len(r.Pods)+len(r.ConfigMaps)+len(r.Policies) == 0
}

func (a *factory) cleanup(ctx context.Context, sure *confirmation, force bool) error {
	if _, err := a.CheckFormat(); err != nil {
		return err
	}
	c, err := a.newClient()
	if err != nil {
		return err
	}
	if running, err := a.operatorRuns(ctx, c); err != nil || running && !force {
		if err == nil {
			err = fmt.Errorf("an operator runs in namespace %s: delete the Skyhooks and let it clean up, or add --force", a.namespace())
		}
		return err
	}
	r, err := a.remains(ctx, c)
	if err != nil {
		return err
	}
	if r.empty() {
		fmt.Fprintln(a.ErrOut, "Nothing is left behind")
		return nil
	}
	if a.DryRun || !sure.given {
		fmt.Fprint(a.ErrOut, a.remainsText(r))
	}
	if err := a.confirm(sure, "Remove all of this?"); err != nil {
		return err
	}
	if err := a.removeRemains(ctx, c, r); err != nil {
		return err
	}
	return a.Print(output.Answer{Value: r, Names: output.WithKind("node", r.Nodes...), Text: func(bool) string {
		would := ""
		if a.DryRun {
			would = " (dry run)"
		}
		return fmt.Sprintf("Cleaned up %s, %s, %s and %s%s\n", output.Count(len(r.Nodes), "node"), output.Count(len(r.Finalizers), "finalizer"), output.Count(len(r.Pods), "pod"), output.Count(len(r.ConfigMaps), "ConfigMap"), would)
	}})
}

// operatorRuns says that a deployment of the operator has pods.
func (a *factory) operatorRuns(ctx context.Context, c client.Client) (bool, error) {
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(a.namespace())); err != nil {
		return false, fmt.Errorf("listing deployments in namespace %s: %w", a.namespace(), err)
	}
	for i := range list.Items {
		if d := &list.Items[i]; len(operatorImages(d)) > 0 && d.Status.Replicas > 0 {
			return true, nil
		}
	}
	return false, nil
}

// remains looks for everything of ours.
func (a *factory) remains(ctx context.Context, c client.Client) (*remains, error) {
	p, err := a.openCluster(ctx, "")
	if err != nil {
		return nil, err
	}
	r := &remains{Finalizers: []string{}, Nodes: []string{}, Pods: []string{}, ConfigMaps: []string{}, DryRun: a.DryRun, edits: map[string]skyhook.Edit{}, config: p.Operator.Skyhook("")}
	for _, kind := range []struct {
		list client.ObjectList
		of   string
	}{{&v1alpha1.SkyhookList{}, "Skyhook"}, {&v1alpha1.DeploymentPolicyList{}, "DeploymentPolicy"}, {&nodeopv1.NodeOpList{}, "NodeOp"}} {
		if err := p.List(ctx, kind.list); err != nil && !isUnknownKind(err) {
			return nil, fmt.Errorf("listing %ss: %w", kind.of, err)
		}
		gv := v1alpha1.GroupVersion
		if kind.of == "NodeOp" {
			gv = nodeopv1.GroupVersion
		}
		for _, o := range p.Objects(gv.WithKind(kind.of)) {
			if slices.ContainsFunc(o.GetFinalizers(), ourFinalizer) {
				r.objects = append(r.objects, o)
				r.Finalizers = append(r.Finalizers, strings.ToLower(kind.of)+"/"+o.GetName())
			}
		}
	}
	nodes := &corev1.NodeList{}
	if err := p.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	r.nodes = slices.DeleteFunc(parsed(nodes), func(n *skyhook.Node) bool {
		e := strip(n, r.config)
		if e.Empty() {
			return true
		}
		r.edits[n.Name] = e
		return false
	})
	r.Nodes = append(r.Nodes, names(r.nodes)...)
	return r, a.ownedRemains(ctx, c, r)
}

// ownedRemains finds our pods and ConfigMaps, those owned by one of ours, and what says that NodeOps need us.
func (a *factory) ownedRemains(ctx context.Context, c client.Client, r *remains) error {
	pods, maps := &corev1.PodList{}, &corev1.ConfigMapList{}
	if err := c.List(ctx, pods, client.InNamespace(a.namespace())); err != nil {
		return fmt.Errorf("listing pods in namespace %s: %w", a.namespace(), err)
	}
	if err := c.List(ctx, maps, client.InNamespace(a.namespace())); err != nil {
		return fmt.Errorf("listing ConfigMaps in namespace %s: %w", a.namespace(), err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; ourOwner(p) || nodeop.IsKairosProbe(p, a.namespace()) {
			r.owned, r.Pods = append(r.owned, p), append(r.Pods, p.Name)
		}
	}
	for i := range maps.Items {
		if m := &maps.Items[i]; ourOwner(m) {
			r.owned, r.ConfigMaps = append(r.owned, m), append(r.ConfigMaps, m.Name)
		}
	}
	binding := &metav1.PartialObjectMetadata{}
	binding.SetGroupVersionKind(policyBinding)
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.InUseByNodeOps}, binding)
	if err != nil && !apierrors.IsNotFound(err) && !isUnknownKind(err) {
		return fmt.Errorf("reading ValidatingAdmissionPolicyBinding %s: %w", v1alpha1.InUseByNodeOps, err)
	}
	if err == nil {
		r.owned, r.Policies = append(r.owned, binding), append(r.Policies, binding.Name)
	}
	return nil
}

func ourFinalizer(name string) bool {
	return strings.HasPrefix(name, v1alpha1.Group+"/") || name == nodeopv1.FinalizerNodeOp || name == nodeopv1.FinalizerReboot
}

func ourOwner(o client.Object) bool {
	by := metav1.GetControllerOf(o)
	return by != nil && (strings.HasPrefix(by.APIVersion, v1alpha1.Group+"/") || strings.HasPrefix(by.APIVersion, nodeopv1.Group+"/"))
}

// strip is the edit after which nothing of ours is on a node. A cordon goes when it was ours, and stays when the node was
// cordoned before.
func strip(n *skyhook.Node, config skyhook.Config) skyhook.Edit {
	e := skyhook.Edit{}
	all := holds(n)
	for _, name := range n.Skyhooks() {
		one := n.Reset(name, all)
		all = slices.DeleteFunc(all, func(h rollout.Hold) bool { return h.Owner == skyhook.Ref(name) })
		n, e = n.With(one), e.Plus(one)
	}
	clean := skyhook.Edit{Annotations: map[string]*string{}, Labels: map[string]*string{}}
	for key := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.Group+"/") || strings.HasPrefix(key, nodeopv1.Group+"/") {
			clean.Annotations[key] = nil
		}
	}
	kairos := nodeop.HasOwnKairosLabels(n.Annotations)
	for key := range n.Annotations {
		if kairos && nodeop.IsKairosAnnotation(key) {
			clean.Annotations[key] = nil
		}
	}
	for key := range n.Labels {
		if kairos && nodeop.IsKairosLabel(key) || strings.HasPrefix(key, v1alpha1.Group+"/") && key != v1alpha1.LabelIgnore {
			clean.Labels[key] = nil
		}
	}
	if _, held := n.Annotations[nodeopv1.AnnotationCordonedBy]; held && n.Unschedulable {
		no := false
		clean.Unschedulable = &no
	}
	if skyhook.Tainted(n, config.RuntimeTaint) {
		clean.RemoveTaints = []corev1.Taint{config.RuntimeTaint}
	}
	for _, c := range n.Conditions {
		clean.RemoveConditions = append(clean.RemoveConditions, c.Type)
	}
	return e.Plus(clean)
}

// remainsText says what will be removed.
func (a *factory) remainsText(r *remains) string {
	var b strings.Builder
	if len(r.nodes) > 0 {
		var rows [][]string
		for _, n := range r.nodes {
			e := r.edits[n.Name]
			rows = append(rows, []string{n.Name, yesNo(e.Unschedulable != nil), yesNo(len(e.RemoveTaints) > 0), output.List(n.Skyhooks(), 4)})
		}
		b.WriteString("Nodes:\n" + indent(a.nodeTable([]string{"NODE", "UNCORDON", "UNTAINT", "SKYHOOKS"}, rows, nil)))
	}
	for _, l := range []struct {
		what string
		all  []string
	}{{"Finalizers", r.Finalizers}, {"Pods", r.Pods}, {"ConfigMaps", r.ConfigMaps}, {"Policies", r.Policies}} {
		if len(l.all) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", l.what, output.List(l.all, 10))
		}
	}
	return b.String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// removeRemains removes objects first, then what is on nodes, and the finalizers last: as long as they are there it can be
// done again.
func (a *factory) removeRemains(ctx context.Context, c client.Client, r *remains) error {
	if a.DryRun {
		return nil
	}
	var errs []error
	for _, o := range r.owned {
		uid := o.GetUID()
		a.Note("deleting %s", o.GetName())
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &uid})))
	}
	errs = append(errs, a.edit(ctx, c, r.nodes, func(n *skyhook.Node) (skyhook.Edit, error) { return strip(n, r.config), nil }))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	for _, o := range r.objects {
		kept := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), ourFinalizer)
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": kept, "resourceVersion": o.GetResourceVersion()}})
		if err != nil {
			return fmt.Errorf("cleaning up: %w", err)
		}
		a.Note("patching %s: %s", o.GetName(), raw)
		if err := client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))); err != nil {
			return fmt.Errorf("removing the finalizer of %s: %w", o.GetName(), err)
		}
	}
	return nil
}
