// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// TestKairosNodes probes nodes: those that run Kairos are labelled, no pod stays, and a node that a person opts out
// meanwhile is left alone.
func TestKairosNodes(t *testing.T) {
	s := newScenario(t, 3)
	s.cluster.options.NodeOps.LabelKairos, s.cluster.options.NodeOps.Namespace = true, s.Namespace
	ctx, labelers := context.Background(), client.MatchingLabels{opv1.LabelApp: opv1.AppLabeler}
	boot := func(id string) {
		for _, name := range []string{"n1", "n2", "n3"} {
			n := s.GetNode(name)
			n.Status.NodeInfo.BootID = id
			s.Must(s.Client.Status().Update(ctx, n))
		}
	}
	pods := func() []corev1.Pod {
		list := &corev1.PodList{}
		s.Must(s.Client.List(ctx, list, labelers))
		return list.Items
	}
	see := func() {
		for _, p := range pods() {
			k := pack.Kairos{}
			if p.Spec.NodeName != "n2" {
				k = pack.Kairos{Runs: true, Boot: pack.KairosActive, Release: map[string]string{"VERSION": "v3.4.2"}}
			}
			s.Must(s.EndPod(ctx, &p, 0, string(k.Encode()), s.now))
		}
	}
	boot("boot-1")
	s.pass()
	s.pass()
	if got := len(pods()); got != 3 {
		t.Fatalf("%d pods probe 3 nodes", got)
	}
	s.Patch(s.GetNode("n3"), `{"metadata":{"labels":{"kairos.io/managed":"false"}}}`)
	see()
	for range 3 {
		s.pass()
		s.now = s.now.Add(time.Second)
	}
	for _, p := range pods() {
		if p.DeletionTimestamp == nil {
			t.Errorf("pod %s stays", p.Name)
		}
	}
	for name, want := range map[string]string{"n1": "true", "n2": "", "n3": "false"} {
		if got := s.GetNode(name).Labels[opv1.LabelManaged]; got != want {
			t.Errorf("%s is labelled %q, want %q", name, got, want)
		}
	}
	if v := s.GetNode("n1").Annotations["kairos.io/version"]; v != "v3.4.2" {
		t.Errorf("version %q", v)
	}
	s.requests.reset()
	s.pass()
	if writes := s.requests.list(); len(writes) > 0 {
		t.Errorf("at rest it writes %v", writes)
	}
}

// TestRefusedProbeIsTriedAgainLater: a policy that refuses the pods which probe nodes for Kairos is asked once, and again with the
// back-off of other refused requests.
func TestRefusedProbeIsTriedAgainLater(t *testing.T) {
	s, api := newRefusingScenario(t, 3, func(verbAndPath, body string) bool {
		return strings.HasPrefix(verbAndPath, "POST ") && strings.Contains(body, opv1.AppLabeler)
	})
	s.cluster.options.NodeOps.LabelKairos, s.cluster.options.NodeOps.Namespace = true, s.Namespace
	for _, name := range []string{"n1", "n2", "n3"} {
		n := s.GetNode(name)
		n.Status.NodeInfo.BootID = "boot-1"
		s.Must(s.Client.Status().Update(context.Background(), n))
	}
	pass := func() (Outcome, error) {
		o, plan := s.decide(s.cluster)
		return s.cluster.Apply(context.Background(), o, plan)
	}
	out, err := pass()
	if wait := out.RetryAt.Sub(s.now); wait != rollout.Backoff(1) || err == nil || !strings.Contains(err.Error(), "probes node n1 for Kairos") {
		t.Errorf("it is tried again after %s, and says %v", wait, err)
	}
	if _, err = pass(); err != nil || api.refused != 1 {
		t.Errorf("before the back-off is over %d requests were refused: %v", api.refused, err)
	}
	s.now = s.now.Add(rollout.Backoff(1))
	if _, err = pass(); err == nil || api.refused != 2 {
		t.Errorf("after the back-off %d requests were refused: %v", api.refused, err)
	}
}
