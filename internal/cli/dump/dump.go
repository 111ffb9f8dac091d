// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package dump holds a cluster as it was at one moment: everything that was read for a decision, so that it can be
// written to a file, read again somewhere else, and changed by what somebody thinks of applying.
//
// A Picture is a client.Reader. One that is taken asks the API server for each list once and keeps the answer; one that
// is read from a file has nobody to ask. cluster.Observe sees no difference.
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// Cluster is a cluster at one moment.
type Cluster struct {
	Taken    time.Time
	Plugin   string // version that took it
	Operator Operator

	live    client.Reader // nil: there is nobody to ask
	scheme  *runtime.Scheme
	mu      sync.Mutex
	objects map[schema.GroupVersionKind]map[client.ObjectKey]client.Object
	calls   map[string]*listCall
	absent  map[string]bool // kinds that the server does not know
	systems map[string]int
}

// listCall is a list that was asked for.
type listCall struct {
	once sync.Once
	err  error
}

// Scheme knows the kinds that a picture may hold.
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

// New is an empty picture that asks live, if that is not nil.
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

// Live says that the picture asks an API server.
func (p *Cluster) Live() bool { return p.live != nil }

// Absent are the kinds of ours that were asked for and that the server does not know.
func (p *Cluster) Absent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.absent))
}

// Systems is what the nodes that were listed run, and how many of them do.
func (p *Cluster) Systems() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.systems)
}

// Put adds an object, or replaces the one of its kind and name.
func (p *Cluster) Put(o client.Object) error {
	gvk, err := apiutil.GVKForObject(o, p.scheme)
	if err != nil {
		return fmt.Errorf("%s: %w", o.GetName(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(gvk, o)
	return nil
}

func (p *Cluster) put(gvk schema.GroupVersionKind, o client.Object) {
	if p.objects[gvk] == nil {
		p.objects[gvk] = map[client.ObjectKey]client.Object{}
	}
	p.objects[gvk][client.ObjectKeyFromObject(o)] = o
}

// Objects gives the kept objects of a kind, by namespace and name.
func (p *Cluster) Objects(gvk schema.GroupVersionKind) []client.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(p.objects[gvk]), func(a, b client.ObjectKey) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out := make([]client.Object, len(keys))
	for i, k := range keys {
		out[i] = p.objects[gvk][k]
	}
	return out
}

// Get reads one object. What is not kept is asked for, because no list may have covered it.
func (p *Cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, p.scheme)
	if err != nil {
		return err
	}
	p.mu.Lock()
	found := p.objects[gvk][key]
	p.mu.Unlock()
	if found == nil {
		if p.live != nil {
			return p.live.Get(ctx, key, into, options...)
		}
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into)
}

// Find is Get of what is kept, once everything of the kind has been asked for.
func (p *Cluster) Find(ctx context.Context, key client.ObjectKey, into client.Object) error {
	gvk, err := apiutil.GVKForObject(into, p.scheme)
	if err != nil {
		return err
	}
	list, err := p.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return err
	}
	if all, ok := list.(client.ObjectList); ok {
		if err := p.List(ctx, all); err != nil {
			return err
		}
	}
	return p.Get(ctx, key, into)
}

// List reads many objects. Limits mean nothing: everything comes at once.
func (p *Cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, p.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	o.Limit, o.Continue, o.UnsafeDisableDeepCopy = 0, "", nil
	if err := p.fetchOnce(ctx, gvk, list, o); err != nil {
		return err
	}
	var out []runtime.Object
	for _, found := range p.Objects(gvk) {
		if matchesOptions(found, o) {
			out = append(out, found)
		}
	}
	list.SetContinue("")
	return meta.SetList(list, out)
}

// fetchOnce has the API server answer a question, once. A kind that the server does not know has no objects.
func (p *Cluster) fetchOnce(ctx context.Context, gvk schema.GroupVersionKind, like client.ObjectList, o *client.ListOptions) error {
	if p.live == nil {
		return nil
	}
	key := fmt.Sprint(gvk, o.Namespace, "|", o.LabelSelector, "|", o.FieldSelector)
	p.mu.Lock()
	q, whole := p.calls[key], p.calls[fmt.Sprint(gvk, "|<nil>|<nil>")]
	if whole != nil {
		q = whole
	}
	if q == nil {
		q = &listCall{}
		p.calls[key] = q
	}
	p.mu.Unlock()
	q.once.Do(func() { q.err = p.fetch(ctx, gvk, like, o) })
	return q.err
}

func (p *Cluster) fetch(ctx context.Context, gvk schema.GroupVersionKind, like client.ObjectList, o *client.ListOptions) error {
	fresh, err := p.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return err
	}
	list, ok := fresh.(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T is no list", like)
	}
	err = p.live.List(ctx, list, o)
	if optional := gvk.Group == nodeopv1.Group || gvk == v1alpha1.GroupVersion.WithKind("DeploymentPolicy"); optional && apierrors.IsNotFound(err) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.absent[gvk.Kind] = true
		return nil
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return meta.EachListItem(list, func(item runtime.Object) error {
		if n, ok := item.(*corev1.Node); ok { // most of it nobody looks at
			on := n.Status.NodeInfo
			p.systems[strings.Join([]string{on.KubeletVersion, on.OSImage, on.KernelVersion, on.ContainerRuntimeVersion, on.Architecture}, " | ")]++
			cluster.StripNode(n)
		}
		if o, ok := item.(client.Object); ok {
			p.put(gvk, o)
		}
		return nil
	})
}

// matchesOptions says that a list with these options shows an object.
func matchesOptions(o client.Object, by *client.ListOptions) bool {
	switch {
	case by.Namespace != "" && o.GetNamespace() != by.Namespace:
		return false
	case by.LabelSelector != nil && !by.LabelSelector.Matches(labelSet(o.GetLabels())):
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

type labelSet map[string]string

// Has says that a label is there.
func (s labelSet) Has(key string) bool { _, ok := s[key]; return ok }

// Get is the value of a label.
func (s labelSet) Get(key string) string { return s[key] }

// Lookup is both.
func (s labelSet) Lookup(key string) (string, bool) { v, ok := s[key]; return v, ok }

// maxNodeLists is up to how many nodes are asked for their pods one by one; for more there is one list of all pods.
const maxNodeLists = 8

// On lists the pods on nodes: for a few nodes with one question each, otherwise with one for all.
func (p *Cluster) On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error) {
	out := make(map[string][]*corev1.Pod, len(nodes))
	if len(nodes) == 0 {
		return out, nil
	}
	wanted := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		wanted[n] = true
	}
	if len(nodes) > maxNodeLists {
		if err := p.List(ctx, &corev1.PodList{}); err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
	} else if err := p.listPodsByNode(ctx, nodes); err != nil {
		return nil, err
	}
	for _, o := range p.Objects(corev1.SchemeGroupVersion.WithKind("Pod")) {
		if pod, ok := o.(*corev1.Pod); ok && wanted[pod.Spec.NodeName] {
			out[pod.Spec.NodeName] = append(out[pod.Spec.NodeName], pod)
		}
	}
	for _, n := range nodes { // looked at, and nothing is there
		if out[n] == nil {
			out[n] = []*corev1.Pod{}
		}
	}
	return out, nil
}

func (p *Cluster) listPodsByNode(ctx context.Context, nodes []string) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = p.List(ctx, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": n}) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("listing pods on node %s: %w", nodes[i], err)
		}
	}
	return nil
}
