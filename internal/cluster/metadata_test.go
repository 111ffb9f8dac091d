// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestStageSeesLabelsOfEarlierStage labels the node while the first stage runs: the pod of the next stage finds the label in the
// metadata ConfigMap. Without such a change the ConfigMap is written once for the whole visit.
func TestStageSeesLabelsOfEarlierStage(t *testing.T) {
	for name, labelled := range map[string]bool{"labelled": true, "unchanged": false} {
		t.Run(name, func(t *testing.T) { visitNode(t, labelled) })
	}
}

// visitNode runs both stages of a package on a node.
func visitNode(t *testing.T, labelled bool) {
	s := newScenario(t, 1)
	s.Apply(demo)
	for range 10 {
		if s.pass(); len(s.ListPods()) > 0 {
			break
		}
	}
	if labelled {
		s.Patch(s.GetNode("n1"), `{"metadata":{"labels":{"example.org/driver":"installed"}}}`)
	}
	s.SettlePods()
	s.finish()

	writes := 0
	for _, r := range s.requests.list() {
		if strings.HasPrefix(r, "PATCH configmaps/demo-") && strings.Contains(r, "metadata") {
			writes++
		}
	}
	want := map[bool]int{true: 2, false: 1}[labelled]
	if writes != want {
		t.Errorf("label set during apply: %v: the metadata is written %d times, want %d", labelled, writes, want)
	}
	maps := &corev1.ConfigMapList{}
	s.Must(s.Client.List(context.Background(), maps, client.InNamespace(s.Namespace), client.HasLabels{v1alpha1.LabelNodeMeta}))
	if len(maps.Items) != 1 || strings.Contains(maps.Items[0].Data["labels.json"], `"example.org/driver":"installed"`) != labelled {
		t.Errorf("label set during apply: %v: the metadata is %v", labelled, maps.Items)
	}
}
