// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestRequestOnce: containers of which one works at a time request what the largest of them requests.
func TestRequestOnce(t *testing.T) {
	resources := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}
	}
	none := corev1.ResourceRequirements{}
	for _, c := range []struct {
		name string
		of   []corev1.ResourceRequirements
		want string
	}{
		{"alike", []corev1.ResourceRequirements{resources("100m", "64Mi"), resources("100m", "64Mi")}, "cpu=100m memory=64Mi, cpu=0 memory=0"},
		{"each has the most of something", []corev1.ResourceRequirements{resources("50m", "128Mi"), resources("1", "64Mi"), resources("100m", "1Mi")}, "cpu=0 memory=128Mi, cpu=1 memory=0, cpu=0 memory=0"},
		{"defaults", []corev1.ResourceRequirements{none, none, none}, "unset, cpu=0 memory=0, cpu=0 memory=0"},
		{"defaults after others", []corev1.ResourceRequirements{resources("50m", "1Mi"), none, none}, "cpu=50m memory=1Mi, unset, cpu=0 memory=0"},
	} {
		containers := make([]corev1.Container, len(c.of))
		for i := range c.of {
			containers[i].Resources = *c.of[i].DeepCopy()
		}
		requestOnce(containers)
		var got []string
		for i, container := range containers {
			r := container.Resources.Requests
			if len(r) == 0 {
				got = append(got, "unset")
			} else {
				got = append(got, fmt.Sprintf("cpu=%s memory=%s", r.Cpu(), r.Memory()))
			}
			if len(container.Resources.Limits) != len(c.of[i].Limits) {
				t.Errorf("%s: container %d has the limits %v", c.name, i, container.Resources.Limits)
			}
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: the containers request %s, want %s", c.name, s, c.want)
		}
	}
}
