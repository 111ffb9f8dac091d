// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// doubtful is how long something we wrote may be missing from a cache before the API server itself is asked.
const doubtful = 5 * time.Second

// written is what we last wrote of the objects of each kind. Laid over what a cache shows it makes reads contain our
// own writes; what the cache has caught up with is dropped.
type written struct {
	nodes      overlay[*skyhook.Node]
	pods       overlay[*corev1.Pod]
	configMaps overlay[*corev1.ConfigMap]
	skyhooks   overlay[*v1alpha1.Skyhook]
	policies   overlay[*v1alpha1.DeploymentPolicy]
	nodeOps    overlay[*opv1.NodeOp]
	upgrades   overlay[*opv1.NodeOpUpgrade]
	jobs       overlay[*batchv1.Job]
	opPods     overlay[*corev1.Pod]
}

func newWritten() *written {
	return &written{
		nodes: overlay[*skyhook.Node]{of: func(n *skyhook.Node) identity {
			return identity{name: n.Name, uid: n.UID, version: n.ResourceVersion}
		}},
		pods:       overlay[*corev1.Pod]{of: identify[*corev1.Pod]},
		configMaps: overlay[*corev1.ConfigMap]{of: identify[*corev1.ConfigMap]},
		skyhooks:   overlay[*v1alpha1.Skyhook]{of: identify[*v1alpha1.Skyhook]},
		policies:   overlay[*v1alpha1.DeploymentPolicy]{of: identify[*v1alpha1.DeploymentPolicy]},
		nodeOps:    overlay[*opv1.NodeOp]{of: identify[*opv1.NodeOp]},
		upgrades:   overlay[*opv1.NodeOpUpgrade]{of: identify[*opv1.NodeOpUpgrade]},
		jobs:       overlay[*batchv1.Job]{of: identify[*batchv1.Job]},
		opPods:     overlay[*corev1.Pod]{of: identify[*corev1.Pod]},
	}
}

// identity is an object's name and which version of which incarnation it is.
type identity struct {
	namespace, name, uid, version string
	leaving                       bool
}

func identify[T metav1.Object](o T) identity {
	return identity{
		namespace: o.GetNamespace(), name: o.GetName(), uid: string(o.GetUID()), version: o.GetResourceVersion(),
		leaving: o.GetDeletionTimestamp() != nil,
	}
}

type place struct{ namespace, name string }

func (i identity) place() place { return place{i.namespace, i.name} }

// overlay is what we know of objects of one kind better than a cache.
type overlay[T any] struct {
	mu      sync.Mutex
	of      func(T) identity
	entries map[place]entry[T]
}

// entry is one such object.
type entry[T any] struct {
	object  T
	is      identity
	gone    bool // it is deleted; object means nothing
	created bool // no cache has shown it yet
	at      time.Time
}

// put remembers an object as the API server returned it. A created one is expected to appear in the cache; any other was
// there when we wrote to it, so when the cache loses it, it is gone.
func (o *overlay[T]) put(object T, created bool, now time.Time) {
	o.set(entry[T]{object: object, is: o.of(object), created: created, at: now})
}

// remove remembers that an object was deleted.
func (o *overlay[T]) remove(object T, now time.Time) {
	o.set(entry[T]{is: o.of(object), gone: true, at: now})
}

func (o *overlay[T]) set(e entry[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.entries == nil {
		o.entries = map[place]entry[T]{}
	}
	if old, ok := o.entries[e.is.place()]; ok && old.is.uid == e.is.uid && old.created {
		e.created = true
	}
	o.entries[e.is.place()] = e
}

// find is what is known, better than by a cache, of an object.
func (o *overlay[T]) find(namespace, name string) (T, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.entries[place{namespace, name}]
	return e.object, ok && !e.gone
}

// latest is an object as this Cluster left it after it was observed. Each of our writes only happens to the version before
// it, so nobody else wrote in between.
func (o *overlay[T]) latest(seen T) T {
	is := o.of(seen)
	if known, ok := o.find(is.namespace, is.name); ok && o.of(known).uid == is.uid {
		return known
	}
	return seen
}

// forget drops what is known of an object.
func (o *overlay[T]) forget(i identity) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.entries, i.place())
}

// lay gives what a cache lists with our own writes in it.
func (o *overlay[T]) lay(cached []T) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.entries) == 0 {
		return cached
	}
	out := make([]T, 0, len(cached)+len(o.entries))
	seen := make(map[place]bool, len(o.entries))
	for _, c := range cached {
		is := o.of(c)
		e, ok := o.entries[is.place()]
		if !ok {
			out = append(out, c)
			continue
		}
		seen[is.place()] = true
		switch {
		case e.caughtUp(is):
			delete(o.entries, is.place())
			out = append(out, c)
		case !e.gone:
			e.created = e.created && e.is.uid != is.uid
			o.entries[is.place()] = e
			out = append(out, e.object)
		}
	}
	for p, e := range o.entries {
		switch {
		case seen[p]:
		case e.gone || !e.created:
			delete(o.entries, p)
		default:
			out = append(out, e.object)
		}
	}
	return out
}

// caughtUp says that the cache knows at least what the entry knows.
func (e entry[T]) caughtUp(cached identity) bool {
	if e.is.uid == cached.uid {
		switch {
		case e.gone:
			return false // it will vanish
		case e.is.leaving && e.is.version == "":
			return cached.leaving // a deletion does not tell its version
		}
	}
	order, err := resourceversion.CompareResourceVersion(cached.version, e.is.version)
	if err != nil {
		return e.is.uid != cached.uid || e.is.version != ""
	}
	return order >= 0
}

// doubts are the objects that a cache should have shown by now, and when the next of the others becomes doubtful.
func (o *overlay[T]) doubts(now time.Time) (objects []T, next time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.entries {
		if !e.created || e.gone {
			continue
		}
		if due := e.at.Add(doubtful); !due.After(now) {
			objects = append(objects, e.object)
		} else {
			next = sooner(next, due)
		}
	}
	return objects, next
}

// learn makes a first look at the API server itself count until the cache has caught up with it.
func (o *overlay[T]) learn(live, cached []T, now time.Time) {
	shown := make(map[place]identity, len(cached))
	for _, c := range cached {
		is := o.of(c)
		shown[is.place()] = is
	}
	known := make(map[place]bool, len(live))
	for _, l := range live {
		is := o.of(l)
		known[is.place()] = true
		old, ok := shown[is.place()]
		e := entry[T]{object: l, is: is, created: !ok || old.uid != is.uid, at: now}
		if !ok || !e.caughtUp(old) {
			o.set(e)
		}
	}
	for _, c := range cached {
		if is := o.of(c); !known[is.place()] {
			o.remove(c, now)
		}
	}
}

// sooner is the earlier of two times, of which a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
