// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// standingOf has a reason for each word before the slash, and a node for each PHASE:REASON behind it.
func standingOf(t *testing.T, text string) *Standing {
	t.Helper()
	s := &Standing{Other: rollout.Why{Reason: "Other", Text: "1/2 nodes complete"}}
	object, nodes, _ := strings.Cut(text, "/")
	for _, word := range strings.Fields(object) {
		why := &rollout.Why{Reason: rollout.Reason(word), Text: "it is " + word}
		switch word {
		case "Deleting":
			s.Deleting = why
		case "Refused":
			s.Refused = why
		case "Ready":
			s.Ready = why
		case "Held":
			s.Held = why
		case "Failed":
			s.Failed = why
		default:
			t.Fatalf("unknown word %s", word)
		}
	}
	var verdicts []rollout.Verdict
	for i, word := range strings.Fields(nodes) {
		phase, reason, _ := strings.Cut(word, ":")
		verdicts = append(verdicts, rollout.Verdict{
			Node: "n" + string(rune('1'+i)), Phase: rollout.Phase(phase), Why: rollout.Why{Reason: rollout.Reason(reason), Text: "why"},
		})
	}
	if verdicts != nil {
		s.Nodes = slices.Values(verdicts)
	}
	return s
}

// TestJudge: each state has one verdict, and at most one of the conditions for kstatus follows from it.
func TestJudge(t *testing.T) {
	for text, want := range map[string]string{
		"":                                           "Progressing Other Reconciling: 1/2 nodes complete",
		"Ready":                                      "Ready Ready",
		"Deleting Refused Ready Held Failed":         "Deleting Deleting Reconciling: it is Deleting",
		"Refused Ready Held Failed":                  "Failed Refused Stalled: it is Refused",
		"Ready Held Failed":                          "Ready Ready",
		"Held Failed / failed:StageFailed":           "Suspended Held",
		"Failed / in-flight:Working":                 "Failed Failed Stalled: it is Failed",
		"/ finished:Finished finished:Soak":          "Progressing Other Reconciling: 1/2 nodes complete",
		"/ in-flight:Working":                        "Progressing Other Reconciling: 1/2 nodes complete",
		"/ failing:StageFailed":                      "Progressing Other Reconciling: 1/2 nodes complete", // it is tried again
		"/ in-flight:Working failed:ProofLate":       "Failed ProofLate Stalled: n2: why",
		"/ failed:RolledBack waiting:Window":         "Failed RolledBack Stalled: n1: why",
		"/ waiting:Budget waiting:Stopped":           "Failed Stopped Stalled: n2: why",
		"/ waiting:Stopped in-flight:Working":        "Progressing Other Reconciling: 1/2 nodes complete", // what runs ends first
		"/ waiting:Wave waiting:Approval":            "Suspended Approval",
		"/ waiting:Window blocked:Ignored":           "Suspended Window",
		"/ waiting:Paused":                           "Suspended Paused",
		"/ waiting:Window in-flight:Working":         "Progressing Other Reconciling: 1/2 nodes complete",
		"/ waiting:Budget blocked:TaintNotTolerated": "Progressing Other Reconciling: 1/2 nodes complete",
		"/ finished:Finished blocked:Ignored blocked:TaintNotTolerated": "Failed TaintNotTolerated Stalled: n3: why",
		"/ finished:Finished blocked:Ignored":                           "Suspended Ignored",
		"/ paused:Paused":                                               "Suspended Paused",
		"/ disabled:Disabled":                                           "Suspended Disabled",
	} {
		verdict := standingOf(t, text).Judge()
		got := string(verdict.Verdict) + " " + verdict.Reason
		verdict.SetConditions(func(kind string, holds bool, reason, message string) {
			if !holds || reason != verdict.Reason {
				t.Errorf("%q: condition %s is %v with the reason %s", text, kind, holds, reason)
			}
			got += " " + kind + ": " + message
		})
		if got != want {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestConditionSet: a condition that is not set again is removed, and one whose status stays keeps its time.
func TestConditionSet(t *testing.T) {
	then, now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	s := ConditionSet{Generation: 1, Now: then}
	s.Set("Ready", false, "Working", "")
	s.Set("Stalled", true, "Stopped", "")
	s = ConditionSet{Stored: s.Conditions, Generation: 2, Now: now}
	s.Set("Ready", false, "Waiting", "")
	want := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Waiting", ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(then)}
	if len(s.Conditions) != 1 || s.Conditions[0] != want {
		t.Errorf("%+v, want only %+v", s.Conditions, want)
	}
}

// TestPolicyVerdict: the verdict about a policy follows from its users and groups, and agrees with its conditions.
func TestPolicyVerdict(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	user := func(phase rollout.Phase, reason rollout.Reason) []User {
		return []User{{Ref: rollout.Ref{Kind: "Skyhook", Name: "demo"}, Verdicts: []rollout.Verdict{{Node: "n1", Phase: phase, Why: rollout.Why{Reason: reason}}}}}
	}
	for _, c := range []struct {
		name     string
		spec     string
		deleting bool
		users    []User
		want     v1alpha1.Outcome
	}{
		{"nobody uses it", "{}", false, nil, v1alpha1.Outcome{Verdict: v1alpha1.VerdictReady, Reason: v1alpha1.ReasonNodesConverged}},
		{"invalid", "compartments: [{name: a, after: [b]}]", false, nil, v1alpha1.Outcome{Verdict: v1alpha1.VerdictFailed, Reason: v1alpha1.ReasonInvalidSpec}},
		{"in progress", "{}", false, user(rollout.PhaseInFlight, rollout.ReasonWorking), v1alpha1.Outcome{Verdict: v1alpha1.VerdictProgressing, Reason: v1alpha1.ReasonProgressing}},
		{"approval", "{}", false, user(rollout.PhaseWaiting, rollout.ReasonApproval), v1alpha1.Outcome{Verdict: v1alpha1.VerdictSuspended, Reason: "Approval"}},
		{"in use", "{}", true, user(rollout.PhaseFinished, rollout.ReasonFinished), v1alpha1.Outcome{Verdict: v1alpha1.VerdictDeleting, Reason: v1alpha1.ReasonInUse}},
		{"deleted", "{}", true, nil, v1alpha1.Outcome{Verdict: v1alpha1.VerdictDeleting, Reason: v1alpha1.ReasonDeleting}},
	} {
		p := parsePolicy(t, c.spec)
		if c.deleting {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got := BuildStatus(p, c.users, nil, now).Outcome; got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	p := parsePolicy(t, "{scope: Policy}")
	group := rollout.GroupReport{Group: rollout.GroupRef{Owner: Ref(p), Compartment: v1alpha1.DefaultCompartment}}
	group.Memory.Stopped = true
	got := BuildStatus(p, user(rollout.PhaseInFlight, rollout.ReasonWorking), []rollout.GroupReport{group}, now).Outcome
	if got.Verdict != v1alpha1.VerdictFailed || got.Reason != v1alpha1.ReasonFailureThreshold {
		t.Errorf("a stopped group: %+v", got)
	}
}
