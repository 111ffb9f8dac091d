// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
)

// Cache is what one leader's informers show: each kind as it was at some moment, not all at the same one.
type Cache struct {
	server  *Server
	watched []watched
}

// watched is one kind of a Cache.
type watched struct {
	Kind
	namespace string // empty for all
	selector  labels.Selector
	strip     func(runtime.Object) // in place

	at      int // how much of the history it shows
	objects map[client.ObjectKey]client.Object
}

// newCaches makes the two caches of a leader, with what the Server has now.
func newCaches(s *Server, namespace string) (all, nodeOps *Cache) {
	all = &Cache{server: s, watched: []watched{
		{Kind: Nodes, strip: func(o runtime.Object) { cluster.StripNode(o.(*corev1.Node)) }},
		{Kind: Pods, namespace: namespace, selector: cluster.PodSelector, strip: func(o runtime.Object) { cluster.StripPod(o.(*corev1.Pod)) }},
		{Kind: ConfigMaps, namespace: namespace, selector: cluster.ConfigMapSelector},
		{Kind: Skyhooks}, {Kind: Policies}, {Kind: NodeOps}, {Kind: Upgrades},
	}}
	nodeOps = &Cache{server: s, watched: []watched{
		{Kind: Pods, selector: cluster.NodeOpSelector, strip: func(o runtime.Object) { cluster.StripNodeOpPod(o.(*corev1.Pod)) }},
		{Kind: Jobs, selector: cluster.NodeOpSelector, strip: func(o runtime.Object) { cluster.StripJob(o.(*batchv1.Job)) }},
	}}
	for _, c := range []*Cache{all, nodeOps} {
		for i := range c.watched {
			w := &c.watched[i]
			w.objects = map[client.ObjectKey]client.Object{}
			for key, object := range s.objects[w.Kind.Kind] {
				w.show(s, change{key, object})
			}
			w.at = len(s.history[w.Kind.Kind])
		}
	}
	return all, nodeOps
}

// show adds one change.
func (w *watched) show(s *Server, c change) {
	isOurs := c.object != nil && (w.namespace == "" || c.key.Namespace == w.namespace) && matches(c.object, w.selector)
	if !isOurs {
		delete(w.objects, c.key)
		return
	}
	o, err := s.scheme.New(w.GroupVersionKind)
	if err != nil {
		panic(err) // every kind is in the scheme
	}
	decode(c.object, o.(client.Object))
	if w.strip != nil {
		w.strip(o)
	}
	w.objects[c.key] = o.(client.Object)
}

// lag is how many changes of a kind the cache does not show.
func (w *watched) lag(s *Server) int { return len(s.history[w.Kind.Kind]) - w.at }

// advance shows the next changes of each kind, as many as allowed says.
func (c *Cache) advance(allowed func(k Kind, lag int) int) {
	for i := range c.watched {
		w := &c.watched[i]
		for range min(w.lag(c.server), allowed(w.Kind, w.lag(c.server))) {
			w.show(c.server, c.server.history[w.Kind.Kind][w.at])
			w.at++
		}
	}
}

// watchedOf returns what the cache shows of a kind, which must be one of its kinds.
func (c *Cache) watchedOf(k Kind) *watched {
	return &c.watched[slices.IndexFunc(c.watched, func(w watched) bool { return w.Kind == k })]
}

func (c *Cache) find(o runtime.Object) (*watched, error) {
	gvk, err := apiutil.GVKForObject(o, c.server.scheme)
	if err != nil {
		return nil, err
	}
	for i := range c.watched {
		if c.watched[i].Kind.Kind == strings.TrimSuffix(gvk.Kind, "List") {
			return &c.watched[i], nil
		}
	}
	return nil, fmt.Errorf("nothing watches %s", gvk.Kind)
}

// Get reads one object of the cache.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	w, err := c.find(into)
	if err != nil {
		return err
	}
	found := w.objects[key]
	if found == nil {
		return apierrors.NewNotFound(w.resource(), key.Name)
	}
	raw, err := encode(found)
	if err != nil {
		return err
	}
	return fill(into, raw)
}

// List lists the objects of the cache, which nobody may change.
func (c *Cache) List(_ context.Context, l client.ObjectList, options ...client.ListOption) error {
	w, err := c.find(l)
	if err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	keys := make([]client.ObjectKey, 0, len(w.objects))
	for key := range w.objects {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
	items := make([]runtime.Object, 0, len(keys))
	for _, key := range keys {
		object := w.objects[key]
		isElsewhere := o.Namespace != "" && key.Namespace != o.Namespace
		if !isElsewhere && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			items = append(items, object)
		}
	}
	return apimeta.SetList(l, items)
}
