// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// StageContainer is a container of a pod that works for a stage of a package. The check of a stage has one of its own, except in a
// compact pod.
type StageContainer struct {
	Package, Version string
	Stage            v1alpha1.Stage
	Container        string
}

// StageContainers lists the containers of a pod of a Skyhook that run stages or interrupts, in their order; none of another pod.
func StageContainers(p *corev1.Pod) []StageContainer {
	t, isOurs := readPodAnnotation(p)
	if !isOurs || t.Skyhook != p.Labels[v1alpha1.LabelName] {
		return nil
	}
	var out []StageContainer
	for _, s := range readPodStages(p) {
		out = append(out, StageContainer{s.Name, s.Version, s.Stage, s.Container})
	}
	if IsCompact(p) {
		return out
	}
	for i, c := range p.Spec.InitContainers {
		isCopy := i == 0 && strings.HasSuffix(c.Name, suffixCopy)
		if !isCopy {
			out = append(out, StageContainer{t.Name, t.Version, t.Stage, c.Name})
		}
	}
	return out
}
