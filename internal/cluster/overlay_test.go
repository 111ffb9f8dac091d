// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var dawn = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

func versioned(name, uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func leaving(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: dawn}
	return p
}

func show(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		s := fmt.Sprintf("%s %s@%s", p.Name, p.UID, p.ResourceVersion)
		if p.DeletionTimestamp != nil {
			s += " leaving"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// Reads contain our own writes, until the cache knows at least as much.
func TestOverlay(t *testing.T) {
	type pods = []*corev1.Pod
	p := versioned
	for _, c := range []struct {
		what   string
		write  func(o *overlay[*corev1.Pod])
		cached pods
		want   []string
		kept   bool // the overlay still has something afterwards
	}{
		{"nothing written", func(*overlay[*corev1.Pod]) {}, pods{p("a", "1", "5")}, []string{"a 1@5"}, false},
		{"the cache is behind a patch", func(o *overlay[*corev1.Pod]) { o.put(p("a", "1", "9"), false, dawn) }, pods{p("a", "1", "5")}, []string{"a 1@9"}, true},
		{"versions compare as numbers", func(o *overlay[*corev1.Pod]) { o.put(p("a", "1", "10"), false, dawn) }, pods{p("a", "1", "9")}, []string{"a 1@10"}, true},
		{"the cache has caught up", func(o *overlay[*corev1.Pod]) { o.put(p("a", "1", "9"), false, dawn) }, pods{p("a", "1", "9")}, []string{"a 1@9"}, false},
		{"the cache knows more", func(o *overlay[*corev1.Pod]) { o.put(p("a", "1", "9"), false, dawn) }, pods{p("a", "1", "12")}, []string{"a 1@12"}, false},
		{"the cache does not know a creation", func(o *overlay[*corev1.Pod]) { o.put(p("b", "2", "9"), true, dawn) }, pods{p("a", "1", "5")}, []string{"a 1@5", "b 2@9"}, true},
		{"somebody deleted what we patched", func(o *overlay[*corev1.Pod]) { o.put(p("a", "1", "9"), false, dawn) }, nil, nil, false},
		{"the cache does not know a deletion", func(o *overlay[*corev1.Pod]) { o.remove(p("a", "1", "5"), dawn) }, pods{p("a", "1", "5")}, nil, true},
		{"the cache knows a deletion", func(o *overlay[*corev1.Pod]) { o.remove(p("a", "1", "5"), dawn) }, nil, nil, false},
		{"what is deleted came again", func(o *overlay[*corev1.Pod]) { o.remove(p("a", "1", "5"), dawn) }, pods{p("a", "2", "9")}, []string{"a 2@9"}, false},
		{"the cache shows an earlier one of the name", func(o *overlay[*corev1.Pod]) { o.put(p("a", "2", "9"), true, dawn) }, pods{p("a", "1", "5")}, []string{"a 2@9"}, true},
		{"the cache shows a later one of the name", func(o *overlay[*corev1.Pod]) { o.put(p("a", "1", "5"), true, dawn) }, pods{p("a", "2", "9")}, []string{"a 2@9"}, false},
		{"the cache does not know that it leaves", func(o *overlay[*corev1.Pod]) { o.put(leaving(p("a", "1", "")), false, dawn) }, pods{p("a", "1", "5")}, []string{"a 1@ leaving"}, true},
		{"the cache knows that it leaves", func(o *overlay[*corev1.Pod]) { o.put(leaving(p("a", "1", "")), false, dawn) }, pods{leaving(p("a", "1", "7"))}, []string{"a 1@7 leaving"}, false},
		{"it left", func(o *overlay[*corev1.Pod]) { o.put(leaving(p("a", "1", "")), false, dawn) }, nil, nil, false},
		{"created and deleted before the cache knew", func(o *overlay[*corev1.Pod]) {
			o.put(p("a", "1", "5"), true, dawn)
			o.put(leaving(p("a", "1", "")), false, dawn)
		}, nil, []string{"a 1@ leaving"}, true},
	} {
		o := overlay[*corev1.Pod]{of: identify[*corev1.Pod]}
		c.write(&o)
		if got := show(o.lay(c.cached)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if kept := len(o.entries) > 0; kept != c.kept {
			t.Errorf("%s: the overlay keeps something: %v, want %v", c.what, kept, c.kept)
		}
	}
}

// What was created and seen, then deleted by somebody, is gone; only what was never seen is doubtful.
func TestOverlayDoubts(t *testing.T) {
	o := overlay[*corev1.Pod]{of: identify[*corev1.Pod]}
	o.put(versioned("seen", "1", "5"), true, dawn)
	o.put(versioned("unseen", "2", "6"), true, dawn)
	o.lay([]*corev1.Pod{versioned("seen", "1", "4")}) // an older version: it exists
	if got := show(o.lay(nil)); !slices.Equal(got, []string{"unseen 2@6"}) {
		t.Errorf("after the cache showed one of two: %v", got)
	}
	if got, next := o.doubts(dawn.Add(doubtful - 1)); len(got) > 0 || !next.Equal(dawn.Add(doubtful)) {
		t.Errorf("too early: %v, again at %v", show(got), next)
	}
	if got, _ := o.doubts(dawn.Add(doubtful)); !slices.Equal(show(got), []string{"unseen 2@6"}) {
		t.Errorf("in time: %v", show(got))
	}
}

// After a first look at the API server itself nothing goes back in time while the cache catches up.
func TestOverlayLearns(t *testing.T) {
	p := versioned
	o := overlay[*corev1.Pod]{of: identify[*corev1.Pod]}
	live := []*corev1.Pod{p("same", "1", "5"), p("newer", "2", "9"), p("created", "3", "8"), p("again", "5", "7")}
	cached := []*corev1.Pod{p("same", "1", "5"), p("newer", "2", "4"), p("deleted", "4", "3"), p("again", "9", "2")}
	o.learn(live, cached, dawn)
	if got, want := show(o.lay(cached)), show(live); !slices.Equal(got, want) {
		t.Errorf("laid over the old cache: %v, want %v", got, want)
	}
	if got, want := show(o.lay(live)), show(live); !slices.Equal(got, want) || len(o.entries) > 0 {
		t.Errorf("when the cache has caught up: %v, want %v, and %d entries are left", got, want, len(o.entries))
	}
}
