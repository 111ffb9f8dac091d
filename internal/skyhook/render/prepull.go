// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// PulledImage is an image that a target needs, and the container that pulls it before the target is admitted.
type PulledImage struct {
	Container string
	Image     string
	Tagged    string           // the same by its tag, when image is a recorded digest
	Def       *plan.Definition // of the package whose image it is; nil for the agent and the pause container
	command   []string
	args      []string
}

// ImagesToPull returns the images that the tasks of a target need. Compact pods have no pause container.
func (r Renderer) ImagesToPull(t *plan.Target) []PulledImage {
	var out []PulledImage
	agents, needsPause := 0, !r.Facts.IsCompactOn(t.Node, &t.Record)
	add := func(p PulledImage) {
		if !slices.ContainsFunc(out, func(other PulledImage) bool { return other.Image == p.Image }) {
			out = append(out, p)
		}
	}
	for _, id := range plan.SortedNames(t.Steps) {
		st := t.Steps[id]
		needsPause = needsPause || st.Definition.Package.AgentImageOverride != ""
		if !st.IsInterrupt() {
			add(PulledImage{
				Container: plan.SafeName(63, plan.PackageName(st.Name), "image", st.Version), Image: r.ImageOf(st.Definition), Tagged: plan.ImageOf(st.Definition.Package), Def: st.Definition,
				command: []string{"/bin/sh", "-c", ":"}, // without a shell it does not start, and its image was pulled
			})
		}
		known := len(out)
		add(PulledImage{Container: "agent-image", Image: r.agentImage(st.Definition), args: []string{"--version"}})
		if len(out) > known {
			if agents++; agents > 1 {
				out[known].Container = fmt.Sprintf("agent-image-%d", agents)
			}
		}
	}
	if len(out) > 0 && needsPause {
		add(PulledImage{Container: "pause-image", Image: r.Facts.Config.PauseImage, args: []string{"-v"}})
	}
	return out
}

// PullContent identifies images, by digest as far as these are recorded, or all by their tags.
func PullContent(images []PulledImage, byTag bool) string {
	var parts []string
	for _, p := range images {
		image := p.Image
		if byTag && p.Tagged != "" {
			image = p.Tagged
		}
		parts = append(parts, p.Container, image)
	}
	slices.Sort(parts)
	return plan.HashID(parts...)
}

// PullPodName returns the name of the pod that pulls images on a node.
func (r Renderer) PullPodName(nodeName string, images []PulledImage) string {
	return plan.SafeName(plan.MaxPodName, r.Facts.Skyhook.Name, "prepull", nodeName, PullContent(images, false))
}

// PullPod returns the pod that pulls the images for a node before its turn; nil if nothing is to be pulled. It does nothing else: a
// container ends at once, or does not start.
func (r Renderer) PullPod(t *plan.Target) *corev1.Pod {
	n := t.Node
	if !r.Facts.Prepulls() {
		return nil
	}
	images := r.ImagesToPull(t)
	if len(images) == 0 {
		return nil
	}
	spec := corev1.PodSpec{NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true, AutomountServiceAccountToken: new(false)}
	for _, image := range images {
		spec.Containers = append(spec.Containers, corev1.Container{
			Name: image.Container, Image: image.Image, Command: image.command, Args: image.args, ImagePullPolicy: r.pullPolicy(),
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			Resources: corev1.ResourceRequirements{Requests: resources("1m", "4Mi"), Limits: resources("500m", "64Mi")},
		})
	}
	out := r.newCheckPod(r.PullPodName(n.Name, images), v1alpha1.LabelPrepull, n, spec)
	out.Annotations = map[string]string{podstate.AnnotationContent: PullContent(images, false)}
	return out
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
