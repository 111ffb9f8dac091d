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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// pageSize bounds how many objects one answer of the API server holds.
const pageSize = 200

// Selectors of what is ours in our namespace. Node metadata is written and never read.
var (
	PodSelector       = newSelector(v1alpha1.LabelName, selection.Exists)
	ConfigMapSelector = newSelector(v1alpha1.LabelNodeMeta, selection.DoesNotExist)
	NodeOpSelector    = newSelector(opv1.LabelNode, selection.Exists) // in every namespace; Kairos probes too
)

func newSelector(key string, op selection.Operator) labels.Selector {
	r, err := labels.NewRequirement(key, op, nil)
	if err != nil {
		panic(err) // a constant
	}
	return labels.NewSelector().Add(*r)
}

// list lists everything through one reader. A cache gives all at once; the API server is asked page by page.
func (v *observer) list(ctx context.Context, r client.Reader, limit int64) (*Lists, error) {
	nodes, err := v.listNodes(ctx, r, limit)
	if err != nil {
		return nil, err
	}
	if len(v.parsed) != len(nodes) {
		v.parsed = byName(nodes)
	}
	ops, stores := r, Stores{}
	if r == v.options.Cached {
		stores = v.options.Stores
		if v.options.CachedNodeOps != nil {
			ops = v.options.CachedNodeOps
		}
	}
	namespace := client.InNamespace(v.options.Config.Namespace)
	ofNodeOps := client.MatchingLabelsSelector{Selector: NodeOpSelector}
	out := &Lists{Nodes: nodes}
	for _, l := range []struct {
		what string
		list func() error
	}{
		{"pods", func() (err error) {
			out.arePodsStored, err = listStored(ctx, stores.Pods, r, &corev1.PodList{}, &out.Pods, limit, namespace, client.MatchingLabelsSelector{Selector: PodSelector})
			return err
		}},
		{"ConfigMaps", func() error {
			return listInto(ctx, r, &corev1.ConfigMapList{}, &out.ConfigMaps, limit, namespace, client.MatchingLabelsSelector{Selector: ConfigMapSelector})
		}},
		{"Skyhooks", func() error { return listInto(ctx, r, &v1alpha1.SkyhookList{}, &out.Skyhooks, limit) }},
		{"DeploymentPolicies", func() error { return listInto(ctx, r, &v1alpha1.DeploymentPolicyList{}, &out.Policies, limit) }},
		{"NodeOps", func() error { return listInto(ctx, r, &opv1.NodeOpList{}, &out.NodeOps, limit) }},
		{"NodeOpUpgrades", func() error { return listInto(ctx, r, &opv1.NodeOpUpgradeList{}, &out.Upgrades, limit) }},
		{"Jobs", func() (err error) {
			_, err = listStored(ctx, stores.Jobs, ops, &batchv1.JobList{}, &out.Jobs, limit, ofNodeOps)
			return err
		}},
		{"pods of NodeOps", func() (err error) {
			_, err = listStored(ctx, stores.NodeOpPods, ops, &corev1.PodList{}, &out.NodeOpPods, limit, ofNodeOps)
			return err
		}},
	} {
		if err := l.list(); err != nil {
			return nil, fmt.Errorf("listing %s: %w", l.what, err)
		}
	}
	return out, nil
}

func byName(nodes []*node.Node) map[string]*node.Node {
	out := make(map[string]*node.Node, len(nodes))
	for _, n := range nodes {
		out[n.Name] = n
	}
	return out
}

func (v *observer) listNodes(ctx context.Context, r client.Reader, limit int64) ([]*node.Node, error) {
	if list := v.options.Stores.Nodes; r == v.options.Cached && list != nil {
		if stored := list(); stored != nil {
			return v.parseCachedNodes(stored), nil
		}
	}
	var out []*node.Node
	err := eachItem(ctx, r, &corev1.NodeList{}, limit, func(n *corev1.Node) { out = append(out, v.parseNode(n)) })
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return out, nil
}

// parseCachedNodes parses nodes. A cache lists them in any order; as long as they are the same ones they keep the order of the last
// time, so that sorting them takes little.
func (v *observer) parseCachedNodes(listed []*corev1.Node) []*node.Node {
	out, isSame := make([]*node.Node, len(listed)), len(listed) == len(v.ranks)
	for i, n := range listed {
		at := i
		if isSame {
			at, isSame = v.ranks[n.Name]
		}
		if !isSame {
			break
		}
		if out[at] = v.ordered[at]; !isVersion(out[at], n) {
			out[at] = v.parseNode(n)
		}
	}
	if isSame {
		v.ordered = out
		return out
	}
	for i, n := range listed {
		out[i] = v.parseNode(n)
	}
	sortNodes(out)
	v.ordered, v.ranks = out, make(map[string]int, len(out))
	for i, n := range out {
		v.ranks[n.Name] = i
	}
	return out
}

// isVersion reports whether a node was parsed from this version of it.
func isVersion(parsed *node.Node, n *corev1.Node) bool {
	return parsed.UID == string(n.UID) && parsed.ResourceVersion == n.ResourceVersion
}

// parseNode parses a node, unless this version of it was parsed before.
func (v *observer) parseNode(n *corev1.Node) *node.Node {
	prev := v.parsed[n.Name]
	if prev != nil && isVersion(prev, n) {
		return prev
	}
	if ours, ok := v.writes.Nodes.Get(types.NamespacedName{Name: n.Name}); ok && ours.UID == string(n.UID) {
		known := *ours
		known.ResourceVersion = "" // what we wrote need not be parsed again, but it is not all there is
		prev = &known
	}
	stripped := *n // others read what a cache has
	parsed := node.Parse(StripNode(&stripped), prev)
	v.parsed[n.Name] = parsed
	return parsed
}

// eachItem lists through one reader, at most limit objects at a time, and calls visit for each. A limit of 0 is for caches,
// which give everything at once. Every page is decoded into a list of its own: JSON would reuse the items of the page before.
func eachItem[T runtime.Object](ctx context.Context, r client.Reader, empty client.ObjectList, limit int64, visit func(T), options ...client.ListOption) error {
	options = append(options, client.UnsafeDisableDeepCopy)
	if limit > 0 {
		options = append(options, client.Limit(limit))
	}
	for next := ""; ; {
		page := empty.DeepCopyObject().(client.ObjectList)
		if err := r.List(ctx, page, append(slices.Clip(options), client.Continue(next))...); err != nil {
			return err
		}
		err := meta.EachListItem(page, func(o runtime.Object) error {
			visit(o.(T))
			return nil
		})
		next = page.GetContinue()
		if err != nil || limit == 0 || next == "" {
			return err
		}
	}
}

func listInto[T runtime.Object](ctx context.Context, r client.Reader, empty client.ObjectList, out *[]T, limit int64, options ...client.ListOption) error {
	return eachItem(ctx, r, empty, limit, func(o T) { *out = append(*out, o) }, options...)
}

// listStored lists what a store holds, or what a reader lists if there is no store. It reports whether there is one.
func listStored[T runtime.Object](ctx context.Context, store func() []T, r client.Reader, empty client.ObjectList, out *[]T, limit int64, options ...client.ListOption) (isStored bool, err error) {
	if store != nil {
		if *out = store(); *out != nil {
			return true, nil
		}
	}
	return false, listInto(ctx, r, empty, out, limit, options...)
}

// liveWorkloads lists pods from the API server itself, each time.
type liveWorkloads struct{ client.Reader }

// On lists the pods on these nodes, one node after the other.
func (l liveWorkloads) On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error) {
	out := make(map[string][]*corev1.Pod, len(nodes))
	var errs []error
	for _, n := range nodes {
		pods := []*corev1.Pod{}
		if err := listInto(ctx, l.Reader, &corev1.PodList{}, &pods, pageSize, client.MatchingFields{"spec.nodeName": n}); err != nil {
			errs = append(errs, fmt.Errorf("listing pods on node %s: %w", n, err))
			continue
		}
		out[n] = pods
		for _, p := range pods {
			StripWorkload(p) // as the watches do
		}
	}
	return out, errors.Join(errs...)
}
