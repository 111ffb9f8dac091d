// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// provenNode is a ready node with devices and a condition.
func provenNode(gpus string, healthy corev1.ConditionStatus) *Node {
	return Parse(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "example.com/Healthy", Status: healthy}},
		},
	}, nil)
}

// TestProofSettles: after a reboot it takes a moment until what is reported is of this boot.
func TestProofSettles(t *testing.T) {
	since := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	n := provenNode("8", corev1.ConditionTrue)
	n.BootID = "second"
	for boot, want := range map[string]time.Time{"first": since.Add(30 * time.Second), "second": {}, "": {}} {
		if got := (Proofs{{}}).Compile(n, ProofState{Since: &since, Boot: boot}).Settles; !got.Equal(want) {
			t.Errorf("admitted in boot %q: it settles at %s, want %s", boot, got, want)
		}
	}
}

// TestProofsCompile: each part of a proof is asked for.
func TestProofsCompile(t *testing.T) {
	since := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	atLeast := int64(4)
	proof := &v1alpha1.Proof{
		NodeConditions: []string{"example.com/Healthy"},
		Resources:      []v1alpha1.ResourceProof{{Name: "nvidia.com/gpu"}},
		DaemonSets:     []string{"gpu/plugin"},
	}
	state := func(found Findings) ProofState {
		return ProofState{Since: &since, Offered: map[string]int64{"nvidia.com/gpu": 8}, Missing: found}
	}
	ready := Findings{{"n1": ""}}
	for _, c := range []struct {
		what  string
		node  *Node
		found Findings
		want  string
	}{
		{"condition", provenNode("8", corev1.ConditionFalse), ready, "condition example.com/Healthy of the node is False, and must be True"},
		{"resource", provenNode("7", corev1.ConditionTrue), ready, "the node offers 7 of nvidia.com/gpu, and must offer 8 as when it was admitted"},
		{"not looked at", provenNode("8", corev1.ConditionTrue), nil, "the DaemonSets and objects of the proof are looked at next"},
		{"DaemonSet", provenNode("8", corev1.ConditionTrue), Findings{{"n1": "no pod"}}, "no pod"},
		{"complete", provenNode("8", corev1.ConditionTrue), ready, ""},
	} {
		got := Proofs{proof}.Compile(c.node, state(c.found))
		text := ""
		if got.Missing != nil {
			text = got.Missing.Text
		}
		if text != c.want || !got.Since.Equal(since) {
			t.Errorf("%s: %q since %s; want %q", c.what, text, got.Since, c.want)
		}
	}
	proof.Resources[0].AtLeast = &atLeast
	if got := (Proofs{proof}).Compile(provenNode("7", corev1.ConditionTrue), state(ready)); got.Missing != nil {
		t.Errorf("with at least 4 of 7: %s", got.Missing.Text)
	}
}

// TestStrictestProof: of several proofs one that is not complete counts, then one that holds the node, then the shorter timeout. What the
// pods of one miss is not missed by the other.
func TestStrictestProof(t *testing.T) {
	short, long := metav1.Duration{Duration: time.Minute}, metav1.Duration{Duration: time.Hour}
	pods := []string{"gpu/plugin"}
	holds, releases := &v1alpha1.Proof{DaemonSets: pods, Timeout: &long}, &v1alpha1.Proof{DaemonSets: pods, Timeout: &short, OnTimeout: v1alpha1.ProofRelease}
	for _, c := range []struct {
		found   Findings
		release bool
		timeout time.Duration
	}{
		{Findings{{"n1": "a"}, {"n1": "b"}}, false, time.Hour},
		{Findings{{"n1": ""}, {"n1": "b"}}, true, time.Minute},
		{Findings{{"n1": "a"}, {"n1": ""}}, false, time.Hour},
	} {
		got := Proofs{holds, releases}.Compile(provenNode("8", corev1.ConditionTrue), ProofState{Missing: c.found})
		if got.Release != c.release || got.Timeout != c.timeout {
			t.Errorf("%v: release %v after %s", c.found, got.Release, got.Timeout)
		}
	}
}
