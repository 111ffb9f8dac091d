// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestPinnedImages rolls a package out whose tag is moved after every pull: one node pulls by it, the others what that node
// pulled, also after the operator was restarted.
func TestPinnedImages(t *testing.T) {
	s := newFixture(t, 4)
	tagged := 0
	s.kubelet.SetRegistry(func(image string) string {
		if strings.Contains(image, "@") {
			return image
		}
		tagged++
		repository, _, _ := strings.Cut(image, ":")
		return fmt.Sprintf("docker-pullable://%s@sha256:%064x", repository, tagged)
	})
	s.options.Skyhook.PinImages = new(true)
	s.startOperator()
	s.Apply(`{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: demo}, spec: {packages: {tuning: {version: 1.0.0, image: registry.example/tuning}}}}`)
	s.WaitComplete("demo")
	s.waitNoPods()
	pins := s.GetSkyhook("demo").Status.Internal.ImagePins
	if len(pins) != 1 || pins[0].Package != "tuning" || pins[0].Version != "1.0.0" || pins[0].Image != "registry.example/tuning" || pins[0].Node == "" || pins[0].Since.IsZero() {
		t.Fatalf("the status records %+v", pins)
	}

	s.stop()
	s.startOperator()
	s.AddNode("later", map[string]string{})
	s.Eventually("the later node is complete", func() bool { return s.GetSkyhook("demo").Status.CompleteNodes == "5/5" })
	byTag, byDigest := 0, 0
	for _, pull := range s.kubelet.Pulled() {
		switch node, image, _ := strings.Cut(pull, " "); image {
		case "registry.example/tuning:1.0.0":
			byTag++
			if node != pins[0].Node {
				t.Errorf("node %s pulled by tag, and the digest is from %s", node, pins[0].Node)
			}
		case "registry.example/tuning@" + pins[0].Digest:
			byDigest++
		default:
			t.Errorf("node %s pulled %s", node, image)
		}
	}
	if byTag != 1 || byDigest != 9 {
		t.Errorf("%d stages pulled by tag and %d by digest, want 1 and 9: %q", byTag, byDigest, s.kubelet.Pulled())
	}
	got := s.GetSkyhook("demo")
	if len(got.Status.Internal.ImagePins) != 1 || got.Status.Internal.ImagePins[0].Digest != pins[0].Digest {
		t.Errorf("after a restart the status records %+v, and had %+v", got.Status.Internal.ImagePins, pins)
	}
	if !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionImagesPinned) {
		t.Errorf("conditions: %+v", got.Status.Conditions)
	}
	s.Eventually("an event says so", func() bool {
		events := &corev1.EventList{}
		s.Must(s.Client.List(context.Background(), events))
		for _, e := range events.Items {
			if e.Reason == v1alpha1.EventImagePinned && strings.Contains(e.Message, pins[0].Digest) {
				return true
			}
		}
		return false
	})
}
