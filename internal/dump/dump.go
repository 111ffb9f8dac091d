// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package dump holds the objects of a cluster at one moment: everything that a decision reads. They can be written to a
// file, read again without a cluster, and changed by manifests that are not applied yet.
//
// A Cluster is a client.Reader, so cluster.Observe reads it like an API server. A live one requests each list from the API
// server once; one that was read from a file has only what the file has.
package dump

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// Cluster holds the objects of a cluster at one moment.
type Cluster struct {
	Taken    time.Time
	Plugin   string // version of the plugin
	Operator Operator

	live    client.Reader // nil when it was read from a file
	scheme  *runtime.Scheme
	mu      sync.Mutex
	objects map[schema.GroupVersionKind]map[client.ObjectKey]client.Object
	calls   map[string]*listCall
	absent  map[string]bool // kinds without a CRD
	systems map[string]int
}

// listCall is a list that was requested.
type listCall struct {
	once sync.Once
	err  error
}

// Scheme has the kinds that a Cluster can hold.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, batchv1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme, nodeopv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("preparing to read the cluster: %w", err)
		}
	}
	return s, nil
}

// New returns an empty Cluster that reads from live, unless that is nil.
func New(live client.Reader, taken time.Time) (*Cluster, error) {
	s, err := Scheme()
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Taken: taken, live: live, scheme: s,
		objects: map[schema.GroupVersionKind]map[client.ObjectKey]client.Object{}, calls: map[string]*listCall{}, absent: map[string]bool{},
		systems: map[string]int{},
	}, nil
}

// Live reports whether the Cluster reads from an API server.
func (c *Cluster) Live() bool { return c.live != nil }

// Forget drops the objects that were read from an API server. They are read again when they are needed.
func (c *Cluster) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil {
		clear(c.objects)
		clear(c.calls)
	}
}

// Absent returns our kinds that the API server does not know.
func (c *Cluster) Absent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.absent))
}

// Systems counts the listed nodes by their versions.
func (c *Cluster) Systems() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.systems)
}

// Put adds an object, or replaces the one of its kind and name.
func (c *Cluster) Put(o client.Object) error {
	gvk, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return fmt.Errorf("%s: %w", o.GetName(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(gvk, o)
	return nil
}

func (c *Cluster) put(gvk schema.GroupVersionKind, o client.Object) {
	if c.objects[gvk] == nil {
		c.objects[gvk] = map[client.ObjectKey]client.Object{}
	}
	c.objects[gvk][client.ObjectKeyFromObject(o)] = o
}

// Objects returns the objects of a kind, by namespace and name.
func (c *Cluster) Objects(gvk schema.GroupVersionKind) []client.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(c.objects[gvk]), func(a, b client.ObjectKey) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out := make([]client.Object, len(keys))
	for i, k := range keys {
		out[i] = c.objects[gvk][k]
	}
	return out
}

// Get reads one object. It is requested from the API server when no list had it.
func (c *Cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, c.scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	found := c.objects[gvk][key]
	c.mu.Unlock()
	if found == nil {
		if c.live != nil {
			return c.live.Get(ctx, key, into, options...)
		}
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into)
}

// Find lists all objects of the kind, and gets one of them.
func (c *Cluster) Find(ctx context.Context, key client.ObjectKey, into client.Object) error {
	gvk, err := apiutil.GVKForObject(into, c.scheme)
	if err != nil {
		return err
	}
	list, err := c.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return err
	}
	if all, ok := list.(client.ObjectList); ok {
		if err := c.List(ctx, all); err != nil {
			return err
		}
	}
	return c.Get(ctx, key, into)
}

// List reads objects. It ignores limits.
func (c *Cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, c.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	o.Limit, o.Continue, o.UnsafeDisableDeepCopy = 0, "", nil
	if err := c.fetchOnce(ctx, gvk, list, o); err != nil {
		return err
	}
	var out []runtime.Object
	for _, found := range c.Objects(gvk) {
		if matchesOptions(found, o) {
			out = append(out, found)
		}
	}
	list.SetContinue("")
	return meta.SetList(list, out)
}

// fetchOnce requests a list from the API server, unless it was requested before. A kind without a CRD has no objects.
func (c *Cluster) fetchOnce(ctx context.Context, gvk schema.GroupVersionKind, like client.ObjectList, o *client.ListOptions) error {
	if c.live == nil {
		return nil
	}
	key := fmt.Sprint(gvk, o.Namespace, "|", o.LabelSelector, "|", o.FieldSelector)
	c.mu.Lock()
	call, whole := c.calls[key], c.calls[fmt.Sprint(gvk, "|<nil>|<nil>")]
	if whole != nil {
		call = whole
	}
	if call == nil {
		call = &listCall{}
		c.calls[key] = call
	}
	c.mu.Unlock()
	call.once.Do(func() { call.err = c.fetch(ctx, gvk, like, o) })
	return call.err
}

func (c *Cluster) fetch(ctx context.Context, gvk schema.GroupVersionKind, like client.ObjectList, o *client.ListOptions) error {
	fresh, err := c.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return err
	}
	list, ok := fresh.(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is no list", like)
	}
	err = c.live.List(ctx, list, o)
	if optional := gvk.Group == nodeopv1.Group || gvk == v1alpha1.GroupVersion.WithKind("DeploymentPolicy"); optional && apierrors.IsNotFound(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.absent[gvk.Kind] = true
		return nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return meta.EachListItem(list, func(item runtime.Object) error {
		if n, ok := item.(*corev1.Node); ok { // most fields are never read
			on := n.Status.NodeInfo
			c.systems[strings.Join([]string{on.KubeletVersion, on.OSImage, on.KernelVersion, on.ContainerRuntimeVersion, on.Architecture}, " | ")]++
			cluster.StripNode(n)
		}
		if o, ok := item.(client.Object); ok {
			c.put(gvk, o)
		}
		return nil
	})
}

// matchesOptions reports whether a list with these options includes an object.
func matchesOptions(o client.Object, by *client.ListOptions) bool {
	switch {
	case by.Namespace != "" && o.GetNamespace() != by.Namespace:
		return false
	case by.LabelSelector != nil && !by.LabelSelector.Matches(labels.Set(o.GetLabels())):
		return false
	case by.FieldSelector == nil || by.FieldSelector.Empty():
		return true
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if p, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = p.Spec.NodeName
	}
	return by.FieldSelector.Matches(set)
}

// maxNodeLists is the number of nodes up to which the pods of each node are listed; beyond it, all pods are listed.
const maxNodeLists = 8

// On lists the pods on nodes.
func (c *Cluster) On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error) {
	out := make(map[string][]*corev1.Pod, len(nodes))
	if len(nodes) == 0 {
		return out, nil
	}
	wanted := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		wanted[n] = true
	}
	if len(nodes) > maxNodeLists {
		if err := c.List(ctx, &corev1.PodList{}); err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
	} else if err := c.listPodsByNode(ctx, nodes); err != nil {
		return nil, err
	}
	for _, o := range c.Objects(corev1.SchemeGroupVersion.WithKind("Pod")) {
		if pod, ok := o.(*corev1.Pod); ok && wanted[pod.Spec.NodeName] {
			out[pod.Spec.NodeName] = append(out[pod.Spec.NodeName], pod)
		}
	}
	for _, n := range nodes { // an empty list means that the node has no pods
		if out[n] == nil {
			out[n] = []*corev1.Pod{}
		}
	}
	return out, nil
}

func (c *Cluster) listPodsByNode(ctx context.Context, nodes []string) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = c.List(ctx, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": n}) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("listing pods on node %s: %w", nodes[i], err)
		}
	}
	return nil
}
