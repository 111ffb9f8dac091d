// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

const compactSkyhook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  packages:
    first: {version: 1.0.0, image: registry.example/first, configMap: {a: "1"}}
    second: {version: 1.0.0, image: registry.example/second, dependsOn: {first: 1.0.0}}
`

// TestCompactPods rolls out a chain of packages: one pod on each node, each stage recorded, one event for each.
func TestCompactPods(t *testing.T) {
	s := newFixture(t, 2)
	s.options.Skyhook.PodLayout = plan.LayoutCompact
	s.startOperator()
	s.Apply(compactSkyhook)
	s.WaitComplete("demo")
	s.waitNoPods()
	for _, n := range []string{"n1", "n2"} {
		if started := s.kubelet.History(n); len(started) != 1 {
			t.Errorf("the pods on %s were %q, want one", n, started)
		}
	}
	got := s.GetSkyhook("demo").Status.PodLayout
	if got == nil || got.Compact != 2 || got.Compatible != 0 {
		t.Errorf("the status counts %+v", got)
	}
	s.Eventually("each stage has an event", func() bool {
		events, seen := &corev1.EventList{}, map[string]bool{}
		s.Must(s.Client.List(context.Background(), events))
		for _, e := range events.Items {
			for _, stage := range []string{"apply of package first", "config of package first", "apply of package second", "config of package second"} {
				seen[stage] = seen[stage] || strings.Contains(e.Message, "stage "+stage)
			}
		}
		return seen["apply of package first"] && seen["config of package first"] && seen["apply of package second"] && seen["config of package second"]
	})
}

// TestCompactRecall edits a package while a pod has its stages ahead: the pod is told to end before them.
func TestCompactRecall(t *testing.T) {
	s := newFixture(t, 1)
	s.options.Skyhook.PodLayout = plan.LayoutCompact
	s.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Hangs })
	s.startOperator()
	s.Apply(compactSkyhook)
	pod := func() *corev1.Pod {
		pods := &corev1.PodList{}
		s.Must(s.Client.List(context.Background(), pods, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelName: "demo"}))
		if len(pods.Items) != 1 {
			return nil
		}
		return &pods.Items[0]
	}
	s.Eventually("the first stage runs", func() bool { p := pod(); return p != nil && len(p.Status.ContainerStatuses) > 0 })
	s.Apply(strings.Replace(compactSkyhook, "registry.example/second,", "registry.example/second, env: [{name: A, value: b}],", 1))
	s.Eventually("the pod is told to end before its next stage", func() bool { return pod().Annotations[podstate.AnnotationStop] != "" })
	if p := pod(); p.DeletionTimestamp != nil {
		t.Error("the pod was deleted while its stage runs")
	}
	s.Eventually("the verdict says so", func() bool {
		return strings.Contains(s.GetNode("n1").Annotations[v1alpha1.PrefixNodeState+"demo"], `"stage":"apply","state":"in_progress"`)
	})
}
