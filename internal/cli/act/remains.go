// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// remains is everything of ours in a cluster.
type remains struct {
	Finalizers []string `json:"finalizers"` // objects with our finalizers
	Nodes      []string `json:"nodes"`
	Pods       []string `json:"pods"`
	ConfigMaps []string `json:"configMaps"`
	Policies   []string `json:"policies,omitempty"` // admission policies that protect the operator
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
	if err := r.addOwned(ctx, c, f.Namespace()); err != nil {
		return nil, err
	}
	return r, r.addBinding(ctx, c)
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
