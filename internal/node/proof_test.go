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

// TestProofsCompile: each part of a proof is asked for, and a command last.
func TestProofsCompile(t *testing.T) {
	since := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	atLeast := int64(4)
	command := &v1alpha1.ProofCommand{Image: "tester:1"}
	proof := &v1alpha1.Proof{
		NodeConditions: []v1alpha1.NodeConditionGate{{Type: "example.com/Healthy"}},
		Resources:      []v1alpha1.ResourceProof{{Name: "nvidia.com/gpu"}},
		DaemonSets:     []v1alpha1.DaemonSetProof{{Namespace: "gpu", Name: "plugin"}}, Command: command,
	}
	state := func(found Findings, pods ...*corev1.Pod) ProofState {
		return ProofState{Since: &since, Offered: map[string]int64{"nvidia.com/gpu": 8}, Missing: found,
			Commands: CommandPods{All: pods, Name: func(*v1alpha1.ProofCommand) string { return "check" }}}
	}
	pod := func(phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "check"}, Status: corev1.PodStatus{Phase: phase}}
	}
	ready := Findings{{"n1": ""}}
	for _, c := range []struct {
		what  string
		node  *Node
		state ProofState
		want  string
		start bool
	}{
		{"condition", provenNode("8", corev1.ConditionFalse), state(ready), "condition example.com/Healthy of the node is False, and must be True", false},
		{"resource", provenNode("7", corev1.ConditionTrue), state(ready), "the node offers 7 of nvidia.com/gpu, and must offer 8 as when it was admitted", false},
		{"not looked at", provenNode("8", corev1.ConditionTrue), state(nil), "the DaemonSets and objects of the proof are looked at next", false},
		{"DaemonSet", provenNode("8", corev1.ConditionTrue), state(Findings{{"n1": "no pod"}}), "no pod", false},
		{"command", provenNode("8", corev1.ConditionTrue), state(ready), "the command of the proof starts next", true},
		{"running", provenNode("8", corev1.ConditionTrue), state(ready, pod(corev1.PodRunning)), "the command of the proof has not started", false},
		{"complete", provenNode("8", corev1.ConditionTrue), state(ready, pod(corev1.PodSucceeded)), "", false},
	} {
		got := Proofs{proof}.Compile(c.node, c.state)
		text := ""
		if got.Missing != nil {
			text = got.Missing.Text
		}
		if text != c.want || got.Start != c.start {
			t.Errorf("%s: %q, start %v; want %q, %v", c.what, text, got.Start, c.want, c.start)
		}
	}
	proof.Resources[0].AtLeast = &atLeast
	if got := (Proofs{proof}).Compile(provenNode("7", corev1.ConditionTrue), state(ready, pod(corev1.PodSucceeded))); got.Missing != nil {
		t.Errorf("with at least 4 of 7: %s", got.Missing.Text)
	}
}

// TestStrictestProof: of several proofs one that is not complete counts, then one that holds the node, then the shorter timeout. What the
// pods of one miss is not missed by the other.
func TestStrictestProof(t *testing.T) {
	short, long := metav1.Duration{Duration: time.Minute}, metav1.Duration{Duration: time.Hour}
	pods := []v1alpha1.DaemonSetProof{{Namespace: "gpu", Name: "plugin"}}
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
