// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// countTags makes every pull of the package by its tag find another image.
func (s *fixture) countTags() {
	tagged := 0
	s.kubelet.SetRegistry(func(image string) string {
		if !strings.HasPrefix(image, "registry.example/tuning:") {
			return image
		}
		tagged++
		return fmt.Sprintf("registry.example/tuning@sha256:%064x", tagged)
	})
}

// revisionPins returns the digests that are kept with the revisions of a Skyhook with the package tuning, by its version.
func (s *fixture) revisionPins() map[string]string {
	s.Helper()
	list, out := &appsv1.ControllerRevisionList{}, map[string]string{}
	s.Must(s.Client.List(context.Background(), list, client.InNamespace(s.Namespace)))
	for i := range list.Items {
		packages, err := render.PackagesOf(&list.Items[i])
		s.Must(err)
		for _, p := range plan.PinsOf(&list.Items[i].ObjectMeta) {
			out[string(packages["tuning"].Version)] += fmt.Sprintf("%s %s", p.Version, p.Digest[len(p.Digest)-2:])
		}
	}
	return out
}

// TestPinsOfRevisions goes from one version to the next and back, with a restart between: the digest that is kept with a revision is
// pulled again, although the tag was moved, and only an operator without pinImages forgets it.
func TestPinsOfRevisions(t *testing.T) {
	s := newFixture(t, 2)
	s.countTags()
	pins := "true"
	s.options.Skyhook.PinImages = new(true)
	s.startOperator()
	roll := func(version, pin string, want map[string]string) {
		t.Helper()
		if pin != pins {
			s.stop()
			pins, s.options.Skyhook.PinImages = pin, new(pin == "true")
			s.startOperator()
		}
		s.Apply(`{apiVersion: skyhook.nvidia.com/v1alpha1, kind: Skyhook, metadata: {name: demo},
		  spec: {packages: {tuning: {version: ` + version + `, image: registry.example/tuning}}}}`)
		s.Eventually("revisions have the digests "+fmt.Sprint(want), func() bool {
			got := s.GetSkyhook("demo").Status
			return got.ObservedGeneration == s.GetSkyhook("demo").Generation && got.CompleteNodes == "2/2" && (pin == "true") == (len(got.Internal.ImagePins) > 0) &&
				fmt.Sprint(s.revisionPins()) == fmt.Sprint(want)
		})
		s.waitNoPods()
	}
	roll("1.0.0", "true", map[string]string{"1.0.0": "1.0.0 01"})
	roll("1.1.0", "true", map[string]string{"1.0.0": "1.0.0 01", "1.1.0": "1.1.0 02"})
	s.stop()
	s.startOperator()
	pulled := len(s.kubelet.Pulled())
	roll("1.0.0", "true", map[string]string{"1.0.0": "1.0.0 01", "1.1.0": "1.1.0 02"})
	for _, pull := range s.kubelet.Pulled()[pulled:] {
		if !strings.Contains(pull, "@") {
			t.Errorf("on the way back to the earlier revision %s was pulled by its tag", pull)
		}
	}
	if pins := s.GetSkyhook("demo").Status.Internal.ImagePins; len(pins) != 1 || !strings.HasSuffix(pins[0].Digest, "01") || pins[0].Node == "" || pins[0].Since.IsZero() {
		t.Errorf("back at the earlier revision the status records %+v", pins)
	}

	roll("1.0.0", "false", map[string]string{"1.1.0": "1.1.0 02"})
	roll("1.1.0", "true", map[string]string{"1.1.0": "1.1.0 02"})
	roll("1.0.0", "true", map[string]string{"1.0.0": "1.0.0 03", "1.1.0": "1.1.0 02"})
}
