// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package writecache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

func newPodCache() *Cache[*corev1.Pod] {
	return newCache(func() time.Time { return start }, identifyObject[*corev1.Pod])
}

func versioned(name, uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func deleting(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: start}
	return p
}

func describe(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		s := fmt.Sprintf("%s %s@%s", p.Name, p.UID, p.ResourceVersion)
		if p.DeletionTimestamp != nil {
			s += " deleting"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// TestMerge shows that reads contain our own writes until the informer cache knows at least as much.
func TestMerge(t *testing.T) {
	type pods = []*corev1.Pod
	p := versioned
	for _, c := range []struct {
		what   string
		write  func(c *Cache[*corev1.Pod])
		cached pods
		want   []string
		kept   bool // the write cache still has an entry afterwards
	}{
		{"nothing written", func(*Cache[*corev1.Pod]) {}, pods{p("a", "1", "5")}, []string{"a 1@5"}, false},
		{"the cache is behind a patch", func(c *Cache[*corev1.Pod]) { c.Put(p("a", "1", "9")) }, pods{p("a", "1", "5")}, []string{"a 1@9"}, true},
		{"versions compare as numbers", func(c *Cache[*corev1.Pod]) { c.Put(p("a", "1", "10")) }, pods{p("a", "1", "9")}, []string{"a 1@10"}, true},
		{"the cache has caught up", func(c *Cache[*corev1.Pod]) { c.Put(p("a", "1", "9")) }, pods{p("a", "1", "9")}, []string{"a 1@9"}, false},
		{"the cache knows more", func(c *Cache[*corev1.Pod]) { c.Put(p("a", "1", "9")) }, pods{p("a", "1", "12")}, []string{"a 1@12"}, false},
		{"the API server drops fields", func(c *Cache[*corev1.Pod]) { c.put(p("a", "1", "9"), true) }, pods{p("a", "1", "9")}, []string{"a 1@9"}, true},
		{"another client wrote since", func(c *Cache[*corev1.Pod]) { c.put(p("a", "1", "9"), true) }, pods{p("a", "1", "12")}, []string{"a 1@12"}, false},
		{"the API server may know the fields by now", func(c *Cache[*corev1.Pod]) {
			c.put(p("a", "1", "9"), true)
			c.clock = func() time.Time { return start.Add(2 * time.Hour) }
		}, pods{p("a", "1", "9")}, []string{"a 1@9"}, false},
		{"the cache does not know a creation", func(c *Cache[*corev1.Pod]) { c.PutCreated(p("b", "2", "9")) }, pods{p("a", "1", "5")}, []string{"a 1@5", "b 2@9"}, true},
		{"somebody deleted what we patched", func(c *Cache[*corev1.Pod]) { c.Put(p("a", "1", "9")) }, nil, nil, false},
		{"the cache does not know a deletion", func(c *Cache[*corev1.Pod]) { c.Remove(p("a", "1", "5")) }, pods{p("a", "1", "5")}, nil, true},
		{"the cache knows a deletion", func(c *Cache[*corev1.Pod]) { c.Remove(p("a", "1", "5")) }, nil, nil, false},
		{"a deleted object was created again", func(c *Cache[*corev1.Pod]) { c.Remove(p("a", "1", "5")) }, pods{p("a", "2", "9")}, []string{"a 2@9"}, false},
		{"the cache shows an earlier one of the name", func(c *Cache[*corev1.Pod]) { c.PutCreated(p("a", "2", "9")) }, pods{p("a", "1", "5")}, []string{"a 2@9"}, true},
		{"the cache shows a later one of the name", func(c *Cache[*corev1.Pod]) { c.PutCreated(p("a", "1", "5")) }, pods{p("a", "2", "9")}, []string{"a 2@9"}, false},
		{"the cache does not show the deletion timestamp", func(c *Cache[*corev1.Pod]) { c.Put(deleting(p("a", "1", ""))) }, pods{p("a", "1", "5")}, []string{"a 1@ deleting"}, true},
		{"the cache shows the deletion timestamp", func(c *Cache[*corev1.Pod]) { c.Put(deleting(p("a", "1", ""))) }, pods{deleting(p("a", "1", "7"))}, []string{"a 1@7 deleting"}, false},
		{"the deletion is over", func(c *Cache[*corev1.Pod]) { c.Put(deleting(p("a", "1", ""))) }, nil, nil, false},
		{"created and deleted before the cache knew", func(c *Cache[*corev1.Pod]) {
			c.PutCreated(p("a", "1", "5"))
			c.Put(deleting(p("a", "1", "")))
		}, nil, []string{"a 1@ deleting"}, true},
	} {
		cache := newPodCache()
		c.write(cache)
		if got := describe(cache.Merge(c.cached)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if kept := len(cache.entries) > 0; kept != c.kept {
			t.Errorf("%s: the write cache keeps an entry: %v, want %v", c.what, kept, c.kept)
		}
	}
}

// TestUnconfirmed shows that only what the informer cache never showed is unconfirmed: what it showed and lost is gone.
func TestUnconfirmed(t *testing.T) {
	c := newPodCache()
	c.PutCreated(versioned("seen", "1", "5"))
	c.PutCreated(versioned("unseen", "2", "6"))
	c.Merge([]*corev1.Pod{versioned("seen", "1", "4")}) // an older version: it exists
	if got := describe(c.Merge(nil)); !slices.Equal(got, []string{"unseen 2@6"}) {
		t.Errorf("after the cache showed one of two: %v", got)
	}
	due := start.Add(ConfirmAfter)
	c.clock = func() time.Time { return due.Add(-1) }
	if got, next := c.unconfirmed(); len(got) > 0 || !next.Equal(due) {
		t.Errorf("too early: %v, again at %v", describe(got), next)
	}
	c.clock = func() time.Time { return due }
	if got, _ := c.unconfirmed(); !slices.Equal(describe(got), []string{"unseen 2@6"}) {
		t.Errorf("in time: %v", describe(got))
	}
}

// TestAddLive shows that after a live list nothing goes back in time while the informer cache catches up.
func TestAddLive(t *testing.T) {
	p := versioned
	c := newPodCache()
	live := []*corev1.Pod{p("same", "1", "5"), p("newer", "2", "9"), p("created", "3", "8"), p("again", "5", "7")}
	cached := []*corev1.Pod{p("same", "1", "5"), p("newer", "2", "4"), p("deleted", "4", "3"), p("again", "9", "2")}
	c.AddLive(live, cached)
	if got, want := describe(c.Merge(cached)), describe(live); !slices.Equal(got, want) {
		t.Errorf("merged with the old cache: %v, want %v", got, want)
	}
	if got, want := describe(c.Merge(live)), describe(live); !slices.Equal(got, want) || len(c.entries) > 0 {
		t.Errorf("when the cache has caught up: %v, want %v, and %d entries are left", got, want, len(c.entries))
	}
}
