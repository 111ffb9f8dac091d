// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// page bounds how many objects one answer of the API server holds.
const page = 200

// Selectors of what is ours in our namespace. Node metadata is written and never read.
var (
	OurPods       = mustSelect(v1alpha1.LabelName, selection.Exists)
	OurConfigMaps = mustSelect(v1alpha1.LabelNodeMeta, selection.DoesNotExist)
	OfNodeOps     = mustSelect(opv1.LabelNode, selection.Exists) // in every namespace; and pods that look at nodes
)

func mustSelect(key string, op selection.Operator) labels.Selector {
	r, err := labels.NewRequirement(key, op, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*r)
}

// lists is what one reader shows.
type lists struct {
	nodes      []*skyhook.Node
	pods       []*corev1.Pod
	configMaps []*corev1.ConfigMap
	skyhooks   []*v1alpha1.Skyhook
	policies   []*v1alpha1.DeploymentPolicy
	nodeOps    []*opv1.NodeOp
	upgrades   []*opv1.NodeOpUpgrade
	jobs       []*batchv1.Job
	opPods     []*corev1.Pod
}

// list reads everything through one reader. A cache gives all at once; the API server is asked page by page.
func (c *Cluster) list(ctx context.Context, r client.Reader, limit int64) (*lists, error) {
	var out lists
	var err error
	if out.nodes, err = c.listNodes(ctx, r, limit); err != nil {
		return nil, err
	}
	parsed := make(map[string]*skyhook.Node, len(out.nodes))
	for _, n := range out.nodes {
		parsed[n.Name] = n
	}
	pods, maps := &corev1.PodList{}, &corev1.ConfigMapList{}
	hooks, policies := &v1alpha1.SkyhookList{}, &v1alpha1.DeploymentPolicyList{}
	namespace := client.InNamespace(c.options.Config.Namespace)
	for _, l := range []struct {
		what    string
		list    client.ObjectList
		take    func()
		options []client.ListOption
	}{
		{"pods", pods, func() { out.pods = point(out.pods, pods.Items) }, []client.ListOption{namespace, client.MatchingLabelsSelector{Selector: OurPods}}},
		{"ConfigMaps", maps, func() { out.configMaps = point(out.configMaps, maps.Items) }, []client.ListOption{namespace, client.MatchingLabelsSelector{Selector: OurConfigMaps}}},
		{"Skyhooks", hooks, func() { out.skyhooks = point(out.skyhooks, hooks.Items) }, nil},
		{"DeploymentPolicies", policies, func() { out.policies = point(out.policies, policies.Items) }, nil},
	} {
		if err := pages(ctx, r, limit, l.list, l.take, l.options...); err != nil {
			return nil, fmt.Errorf("listing %s: %w", l.what, err)
		}
	}
	c.parsed = parsed
	return &out, c.listOps(ctx, r, limit, &out)
}

// listNodes reads the nodes through one reader.
func (c *Cluster) listNodes(ctx context.Context, r client.Reader, limit int64) ([]*skyhook.Node, error) {
	var out []*skyhook.Node
	list := &corev1.NodeList{}
	err := pages(ctx, r, limit, list, func() {
		for i := range list.Items {
			out = append(out, c.parse(&list.Items[i]))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return out, nil
}

// parse reads a node, unless this version of it was read before.
func (c *Cluster) parse(n *corev1.Node) *skyhook.Node {
	prev := c.parsed[n.Name]
	if prev != nil && prev.UID == string(n.UID) && prev.ResourceVersion == n.ResourceVersion {
		return prev
	}
	if ours, ok := c.writes.Nodes.Get(types.NamespacedName{Name: n.Name}); ok && ours.UID == string(n.UID) {
		known := *ours
		known.ResourceVersion = "" // what we wrote need not be parsed again, but it is not all there is
		prev = &known
	}
	return skyhook.ParseNode(StripNode(n), prev)
}

// pages lists everything there is into list, at most limit objects at a time, and calls take for each part. A limit of 0
// is for caches, which give everything at once.
func pages(ctx context.Context, r client.Reader, limit int64, list client.ObjectList, take func(), options ...client.ListOption) error {
	options = append(options, client.UnsafeDisableDeepCopy)
	if limit > 0 {
		options = append(options, client.Limit(limit))
	}
	for {
		if err := r.List(ctx, list, append(slices.Clip(options), client.Continue(list.GetContinue()))...); err != nil {
			return err
		}
		take()
		if limit == 0 || list.GetContinue() == "" {
			return nil
		}
	}
}

// point gives pointers to the items of a list.
func point[T any](out []*T, items []T) []*T {
	out = slices.Grow(out, len(items))
	for i := range items {
		out = append(out, &items[i])
	}
	return out
}

// listed lists pods from the API server itself, each time.
type listed struct{ client.Reader }

// On lists the pods on these nodes, one node after the other.
func (l listed) On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error) {
	out := make(map[string][]*corev1.Pod, len(nodes))
	var errs []error
	for _, n := range nodes {
		pods, list := []*corev1.Pod{}, &corev1.PodList{}
		err := pages(ctx, l.Reader, page, list, func() { pods = point(pods, list.Items) }, client.MatchingFields{"spec.nodeName": n})
		if err != nil {
			errs = append(errs, fmt.Errorf("listing pods on node %s: %w", n, err))
			continue
		}
		out[n] = pods
	}
	return out, errors.Join(errs...)
}
