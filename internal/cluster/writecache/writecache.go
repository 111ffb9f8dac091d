// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package writecache makes reads from an informer cache contain our own last writes while the cache lags behind.
package writecache

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConfirmAfter is how long an object that we created may be missing from a cache before it is read from the API server.
const ConfirmAfter = 5 * time.Second

// Cache holds what we last wrote of the objects of one kind. It drops what the informer cache has caught up with.
type Cache[T any] struct {
	clock    func() time.Time
	identify func(T) Identity

	mu      sync.Mutex
	entries map[types.NamespacedName]entry[T]
}

// Identity is an object's name, and which version of which incarnation it is.
type Identity struct {
	types.NamespacedName
	UID, Version string
	Deleting     bool
}

type entry[T any] struct {
	object  T // not set when deleted
	is      Identity
	deleted bool
	created bool // no cache has shown it yet
	dropped bool // the object has fields that the API server drops
	at      time.Time
}

func newCache[T any](clock func() time.Time, identify func(T) Identity) *Cache[T] {
	return &Cache[T]{clock: clock, identify: identify, entries: map[types.NamespacedName]entry[T]{}}
}

func identifyObject[T metav1.Object](o T) Identity {
	return Identity{
		NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()},
		UID:            string(o.GetUID()), Version: o.GetResourceVersion(), Deleting: o.GetDeletionTimestamp() != nil,
	}
}

// Put stores an object that existed before we wrote to it, as the API server returned it. When the informer cache loses
// such an object it is gone.
func (c *Cache[T]) Put(object T) { c.put(object, false) }

func (c *Cache[T]) put(object T, hasDropped bool) {
	c.store(entry[T]{object: object, is: c.identify(object), dropped: hasDropped, at: c.clock()})
}

// PutCreated stores an object that the informer cache may not show yet.
func (c *Cache[T]) PutCreated(object T) {
	c.store(entry[T]{object: object, is: c.identify(object), created: true, at: c.clock()})
}

// PutDeleting stores that the deletion of an object was accepted.
func PutDeleting[T client.Object](c *Cache[T], object T) {
	deleting := object.DeepCopyObject().(T)
	deleting.SetDeletionTimestamp(&metav1.Time{Time: c.clock()})
	deleting.SetResourceVersion("") // the answer to a deletion does not contain it
	c.Put(deleting)
}

// Remove stores that an object no longer exists.
func (c *Cache[T]) Remove(object T) {
	c.store(entry[T]{is: c.identify(object), deleted: true, at: c.clock()})
}

func (c *Cache[T]) store(e entry[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.entries[e.is.NamespacedName]; ok && old.is.UID == e.is.UID && old.created {
		e.created = true
	}
	c.entries[e.is.NamespacedName] = e
}

// Get returns an object if the informer cache has not caught up with our last write to it.
func (c *Cache[T]) Get(key types.NamespacedName) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	return e.object, ok && !e.deleted
}

// Latest returns an object as we left it after it was observed. Each of our writes has the version before it as its
// precondition, so there was no other write in between.
func (c *Cache[T]) Latest(observed T) T {
	is := c.identify(observed)
	if known, ok := c.Get(is.NamespacedName); ok && c.identify(known).UID == is.UID {
		return known
	}
	return observed
}

// Merge returns the objects of an informer cache with our own writes in them, and drops the entries that the informer
// cache has caught up with.
func (c *Cache[T]) Merge(cached []T) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) == 0 {
		return cached
	}
	out := make([]T, 0, len(cached)+len(c.entries))
	listed := make(map[types.NamespacedName]bool, len(c.entries))
	for _, object := range cached {
		is := c.identify(object)
		key := is.NamespacedName
		e, ok := c.entries[key]
		if !ok {
			out = append(out, object)
			continue
		}
		listed[key] = true
		switch {
		case e.isKnownTo(is), e.dropped && c.clock().Sub(e.at) > time.Hour: // by then the CRDs may be newer
			delete(c.entries, key)
			out = append(out, object)
		case !e.deleted:
			e.created = e.created && e.is.UID != is.UID
			c.entries[key] = e
			out = append(out, e.object)
		}
	}
	for key, e := range c.entries {
		switch {
		case listed[key]:
		case e.created && !e.deleted:
			out = append(out, e.object)
		default:
			delete(c.entries, key)
		}
	}
	return out
}

// isKnownTo reports whether a cache that shows this identity has caught up with the entry.
func (e entry[T]) isKnownTo(cached Identity) bool {
	if e.is.UID == cached.UID {
		switch {
		case e.deleted:
			return false // it will vanish from the cache
		case e.is.Deleting && e.is.Version == "":
			return cached.Deleting
		}
	}
	order, err := resourceversion.CompareResourceVersion(cached.Version, e.is.Version)
	if err != nil {
		return e.is.UID != cached.UID || e.is.Version != ""
	}
	return order > 0 || order == 0 && !e.dropped
}

// AddLive stores what the API server lists and the informer cache does not show yet.
func (c *Cache[T]) AddLive(live, cached []T) {
	now := c.clock()
	shown := make(map[types.NamespacedName]Identity, len(cached))
	for _, object := range cached {
		is := c.identify(object)
		shown[is.NamespacedName] = is
	}
	exists := make(map[types.NamespacedName]bool, len(live))
	for _, object := range live {
		is := c.identify(object)
		exists[is.NamespacedName] = true
		old, ok := shown[is.NamespacedName]
		e := entry[T]{object: object, is: is, created: !ok || old.UID != is.UID, at: now}
		if !ok || !e.isKnownTo(old) {
			c.store(e)
		}
	}
	for _, object := range cached {
		if !exists[c.identify(object).NamespacedName] {
			c.Remove(object)
		}
	}
}

// unconfirmed returns the objects that the informer cache should have shown by now, and when the next one is due; zero
// for never.
func (c *Cache[T]) unconfirmed() (overdue []T, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	for _, e := range c.entries {
		if !e.created || e.deleted {
			continue
		}
		due := e.at.Add(ConfirmAfter)
		if !due.After(now) {
			overdue = append(overdue, e.object)
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return overdue, next
}

// confirm reads the overdue objects of a kind from the API server, because somebody may have deleted them at once. It
// returns when to do so again: now if an object was gone.
func confirm[T client.Object](ctx context.Context, live client.Reader, c *Cache[T]) (retryAt time.Time, err error) {
	overdue, retryAt := c.unconfirmed()
	for _, known := range overdue {
		found := reflect.New(reflect.TypeOf(known).Elem()).Interface().(T)
		err := live.Get(ctx, client.ObjectKeyFromObject(known), found)
		switch {
		case apierrors.IsNotFound(err):
			c.forget(known)
			retryAt = c.clock()
		case err != nil:
			return time.Time{}, fmt.Errorf("reading %s/%s: %w", known.GetNamespace(), known.GetName(), err)
		default:
			c.PutCreated(found)
		}
	}
	return retryAt, nil
}

func (c *Cache[T]) forget(object T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, c.identify(object).NamespacedName)
}
