// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestEveryWaitHasAnEvent: each reason emits an event when it is new, with the sentence of the status, and no second one.
func TestEveryWaitHasAnEvent(t *testing.T) {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	r := &rollout.Rollout{Ref: rollout.ParseRef("Skyhook/demo")}
	for _, reason := range rollout.WaitReasons() {
		w := waitHistory{}
		why := rollout.Why{Reason: reason, Text: "it waits for Pod shop/a", About: "Pod shop/a", Since: now}
		report := rollout.Report{Verdicts: []rollout.Verdict{
			{Node: "n1", Phase: rollout.PhaseWaiting, Why: why}, {Node: "n2", Phase: rollout.PhaseWaiting, Why: why},
		}}
		got := w.newEvents(r, report, now)
		if reason.IsTransient() {
			if len(got) != 0 {
				t.Errorf("%s emits %+v", reason, got)
			}
			continue
		}
		eventType, eventReason := corev1.EventTypeNormal, string(reason)
		if slices.Contains([]rollout.Reason{rollout.ReasonProtectedPod, rollout.ReasonDrainTimeout, rollout.ReasonHandoverTimeout}, reason) {
			eventType, eventReason = corev1.EventTypeWarning, "Drain"
		}
		want := waitEvent{"", eventType, eventReason, "n1 and 1 more: " + report.Verdicts[0].Sentence("demo")}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
		if again := w.newEvents(r, report, now.Add(time.Hour)); len(again) != 0 {
			t.Errorf("%s emits again %+v", reason, again)
		}
	}
}

// TestWaitsEmitOneEvent: a wait that ends and returns emits another event only after a while; nodes in flight get their own.
func TestWaitsEmitOneEvent(t *testing.T) {
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	w, r := waitHistory{}, &rollout.Rollout{Ref: rollout.ParseRef("Skyhook/demo")}
	pod := func(node, name string) rollout.Verdict {
		return rollout.Verdict{Node: node, Phase: rollout.PhaseInFlight, Why: rollout.Why{Reason: rollout.ReasonProtectedPod, Text: name + " must not be interrupted", About: "Pod " + name}}
	}
	emit := func(after time.Duration, verdicts ...rollout.Verdict) string {
		now = now.Add(after)
		var out []string
		for _, e := range w.newEvents(r, rollout.Report{Verdicts: verdicts}, now) {
			text, _, _ := strings.Cut(e.text, " (")
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s", e.node, text)))
		}
		w.forgetExpired(now)
		return strings.Join(out, "; ")
	}
	for _, c := range []struct {
		after time.Duration
		what  []rollout.Verdict
		want  string
	}{
		{0, []rollout.Verdict{pod("n1", "a")}, "n1 Skyhook demo: a must not be interrupted; n1: a must not be interrupted"},
		{time.Second, []rollout.Verdict{pod("n1", "b"), pod("n2", "a")}, "n1 Skyhook demo: b must not be interrupted; n2 Skyhook demo: a must not be interrupted"},
		{time.Second, nil, ""},
		{time.Minute, []rollout.Verdict{pod("n1", "a")}, ""},
		{waitRepeatAfter, nil, ""},
		{time.Second, []rollout.Verdict{pod("n1", "a")}, "n1 Skyhook demo: a must not be interrupted; n1: a must not be interrupted"},
	} {
		if got := emit(c.after, c.what...); got != c.want {
			t.Errorf("events %q, want %q", got, c.want)
		}
	}
	broken := &rollout.Rollout{Ref: rollout.ParseRef("Skyhook/wrong"), Broken: &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: "a circle"}}
	if got := w.newEvents(broken, rollout.Report{}, now); len(got) != 1 || got[0].eventType != corev1.EventTypeWarning || !strings.HasPrefix(got[0].text, "a circle (") {
		t.Errorf("a broken Skyhook without nodes emits %+v", got)
	}
}

// TestWaitsInACluster: what the status says, the events say in the same words.
func TestWaitsInACluster(t *testing.T) {
	w := newFixture(t, 2)
	w.Apply(strings.Replace(demo, "{name: demo}", "{name: demo, annotations: {skyhook.nvidia.com/pause: \"true\"}}", 1))
	w.startOperator()
	sentence := ""
	w.Eventually("the status says that it is paused", func() bool {
		for _, c := range w.GetSkyhook("demo").Status.Conditions {
			if _, after, ok := strings.Cut(c.Message, "Skyhook demo is paused"); ok && c.Type == v1alpha1.ConditionReady {
				sentence = "Skyhook demo is paused" + after
				return strings.Contains(after, ", since 2") && strings.HasSuffix(after, " (kubectl skyhook resume demo)")
			}
		}
		return false
	})
	w.Eventually("an event says the same", func() bool {
		l := &corev1.EventList{}
		w.Must(w.Client.List(t.Context(), l, client.InNamespace("default")))
		return slices.ContainsFunc(l.Items, func(e corev1.Event) bool {
			text, since, _ := strings.Cut(e.Message, ", since ")
			_, remedy, _ := strings.Cut(since, " ")
			return e.InvolvedObject.UID == w.GetSkyhook("demo").UID && e.Reason == "Paused" && strings.HasSuffix(text, ": Skyhook demo is paused") &&
				strings.Contains(text, " and 1 more") && strings.HasSuffix(sentence, remedy)
		})
	})
}
