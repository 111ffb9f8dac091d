// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A node gets an event when it is admitted and when it is complete; what many nodes have in common is one event.
func TestEvents(t *testing.T) {
	w := newFixture(t, 3)
	w.Apply(demo)
	uid := w.GetSkyhook("demo").UID
	w.startOperator()
	w.WaitComplete("demo")
	on := func(kind string, uid types.UID) []string {
		l := &corev1.EventList{}
		w.Must(w.Client.List(t.Context(), l, client.InNamespace("default")))
		var out []string
		for _, e := range l.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.UID == uid {
				out = append(out, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
			}
		}
		slices.Sort(out)
		return out
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		want := []string{"Normal Apply: Skyhook demo begins to work on the node", "Normal State: Skyhook demo is complete on the node"}
		w.Eventually("node "+n+" has all its events", func() bool { return slices.Equal(on("Node", w.GetNode(n).UID), want) })
	}
	w.Eventually("the Skyhook has an event that it is complete", func() bool {
		return slices.Contains(on("Skyhook", uid), "Normal State: status changed from in_progress to complete")
	})
	if got := on("Skyhook", uid); len(got) > 20 {
		t.Errorf("the Skyhook has %d events: %q", len(got), got)
	}
}

// Many events of one kind on one object do not hide one of another kind.
func TestSpamKey(t *testing.T) {
	e := corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Skyhook", Name: "demo", UID: "1"}, Type: "Normal", Reason: "Apply"}
	other, warning, node := e, e, e
	other.Reason, warning.Type, node.InvolvedObject.Name = "State", "Warning", "prod"
	for _, o := range []corev1.Event{other, warning, node} {
		if spamKey(&e) == spamKey(&o) {
			t.Errorf("%+v and %+v share a bound", e, o)
		}
	}
	same := e
	same.Message = "another text"
	if spamKey(&e) != spamKey(&same) {
		t.Error("events that differ in their text only do not share a bound")
	}
}
