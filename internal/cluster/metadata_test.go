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
// metadata ConfigMap. It also finds the Skyhook's own marks, which a node that is drained first does not have at its admission. Without such
// a change the ConfigMap is written once for the whole visit.
func TestStageSeesLabelsOfEarlierStage(t *testing.T) {
	const interrupt = "      interrupt: {type: service, services: [containerd]}\n"
	for name, c := range map[string]struct {
		text     string
		labelled bool
		writes   int
	}{
		"labelled":  {demo, true, 2},
		"unchanged": {demo, false, 1},
		"drained":   {demo + interrupt, false, 2},
	} {
		t.Run(name, func(t *testing.T) { visitNode(t, c.text, c.labelled, c.writes) })
	}
}

// visitNode runs all stages of a package on a node.
func visitNode(t *testing.T, text string, labelled bool, want int) {
	s := newScenario(t, 1)
	s.Apply(text)
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
	if writes != want {
		t.Errorf("label set during apply: %v: the metadata is written %d times, want %d", labelled, writes, want)
	}
	maps := &corev1.ConfigMapList{}
	s.Must(s.Client.List(context.Background(), maps, client.InNamespace(s.Namespace), client.HasLabels{v1alpha1.LabelNodeMeta}))
	if len(maps.Items) != 1 || strings.Contains(maps.Items[0].Data["labels.json"], `"example.org/driver":"installed"`) != labelled {
		t.Errorf("label set during apply: %v: the metadata is %v", labelled, maps.Items)
	}
	if text := maps.Items[0].Data["annotations.json"]; !strings.Contains(text, v1alpha1.PrefixNodeState) {
		t.Errorf("the annotations lack the Skyhook's own: %s", text)
	}
}
