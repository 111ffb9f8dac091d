// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// heldBy is a node that Skyhooks hold.
func heldBy(names ...string) *Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Annotations: map[string]string{}}}
	for _, name := range names {
		n.Annotations[v1alpha1.PrefixCordon+name] = "true"
	}
	return Parse(n, nil)
}

func (n *Node) asked(holder, step, object string, at time.Time) *Node {
	var o *HandoverObject
	if object != "" {
		o = &HandoverObject{APIVersion: "v1", Kind: "ConfigMap", Name: object}
	}
	return n.With(n.AskHandover(holder, step, o, at))
}

// released is the node without the hold of a Skyhook.
func (n *Node) released(name string) *Node {
	e := Edit{}
	e.RemoveAnnotation(n, v1alpha1.PrefixCordon+name)
	return n.With(e)
}

// TestHandoverRecord: which step is asked of a holder, since when, and which objects were created.
func TestHandoverRecord(t *testing.T) {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	n := heldBy("a").asked("Skyhook/a", "ops", "x", now).asked("Skyhook/a", "ops", "x", now.Add(time.Hour))
	if h := n.HandoverTo("Skyhook/a"); h.Step != "ops" || !h.Since.Equal(now) || len(h.Objects) != 1 || h.Done {
		t.Errorf("asked twice, it is %+v", h)
	}
	n = n.asked("Skyhook/a", "slurm", "", now.Add(time.Minute)).asked("Skyhook/a", "", "", now.Add(2*time.Minute))
	if h := n.HandoverTo("Skyhook/a"); !h.Done || h.Step != "" || len(h.Objects) != 1 {
		t.Errorf("when all have answered it is %+v", h)
	}
	if n.HasEndedHandovers() {
		t.Error("it ends while the node is held")
	}

	// Neither another node of that name nor a text that cannot be read says anything; both go.
	for _, text := range []string{"{", `{"node": "u2", "by": {"Skyhook/a": {"done": true}}}`} {
		e := Edit{}
		e.SetAnnotation(n, v1alpha1.AnnotationHandover, text)
		wrong := n.With(e)
		if wrong.HandoverTo("Skyhook/a").Done || !wrong.HasEndedHandovers() || wrong.With(wrong.ForgetHandovers(nil)).HasEndedHandovers() {
			t.Errorf("%s counts, or stays", text)
		}
	}

	n = n.released("a")
	want := map[string][]HandoverObject{"Skyhook/a": {{APIVersion: "v1", Kind: "ConfigMap", Name: "x", At: now}}}
	if got := n.EndedHandovers(); !reflect.DeepEqual(got, want) || n.HandoverTo("Skyhook/a").Done {
		t.Errorf("after the release %v are to be deleted, want %v", got, want)
	}
	if n = n.With(n.ForgetHandovers([]string{"Skyhook/a"})); n.Annotations[v1alpha1.AnnotationHandover] != "" {
		t.Errorf("recorded is still %s", n.Annotations[v1alpha1.AnnotationHandover])
	}
}

// TestHandoverOfNextHold: a yes counts for one hold, and the object of an earlier hold for none after it, though the next one begins before it
// is deleted, and in the same second.
func TestHandoverOfNextHold(t *testing.T) {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	x := HandoverObject{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}
	n := heldBy("a").asked("Skyhook/a", "ops", "x", now).asked("Skyhook/a", "", "", now).released("a")
	by := Holder{Owner: rollout.Ref{Kind: KindSkyhook, Name: "a"}}
	e := n.PlaceHold(by, nil, "work", now, func(*Held) Edit { return Edit{} })
	e.SetAnnotation(n, v1alpha1.PrefixCordon+"a", "true")
	n = n.With(e)
	if h := n.HandoverTo("Skyhook/a"); h.Done || h.Since != nil || len(h.Objects) != 1 || !n.CreatedAt(x).IsZero() {
		t.Errorf("held again, it is %+v, and its object of %s", h, n.CreatedAt(x))
	}
	n = n.asked("Skyhook/a", "ops", "x", now)
	if at := n.CreatedAt(x); !at.After(now) {
		t.Errorf("the object of the hold before counts: it is of %s, and so is the present one", at)
	}
	if got := n.released("a").EndedHandovers()["Skyhook/a"]; len(got) != 1 {
		t.Errorf("%v are deleted", got)
	}
}

// TestHandoverToTwo: two hold a node and ask the same. They share the object, and it goes with the last hold.
func TestHandoverToTwo(t *testing.T) {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	x := HandoverObject{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}
	n := heldBy("a", "b").asked("Skyhook/a", "ops", "x", now).asked("Skyhook/b", "ops", "x", now.Add(time.Minute))
	if got := n.CreatedAt(x); !got.Equal(now) {
		t.Errorf("the shared object is of %s, want %s", got, now)
	}
	n = n.released("a")
	if got, ended := n.EndedHandovers()["Skyhook/a"]; len(got) > 0 || !ended {
		t.Errorf("with the first hold %v go", got)
	}
	n = n.With(n.ForgetHandovers([]string{"Skyhook/a"}))
	if got := n.released("b").EndedHandovers()["Skyhook/b"]; len(got) != 1 || !n.CreatedAt(x).Equal(now) {
		t.Errorf("with the last hold %v go", got)
	}
}
