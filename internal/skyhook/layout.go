// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// DefaultImageVolumesFrom is the version of Kubernetes from which kubelets mount images as volumes without a feature gate.
const DefaultImageVolumesFrom = "1.35"

// imageRuntimes are the container runtimes that mount images, each with the version from which it does.
var imageRuntimes = map[string]string{"containerd": "2.1.0", "cri-o": "1.31.0"}

// wantsCompact reports whether stages share pods on the nodes that can mount images.
func (f *facts) wantsCompact() bool {
	layout := f.Skyhook.Spec.PodLayout
	if layout == "" {
		layout = f.Config.PodLayout
	}
	return layout == v1alpha1.PodLayoutCompact
}

// mountProblem returns why a node cannot mount images; empty if it can, as far as is known.
func (f *facts) mountProblem(n *node.Node, rec *node.SkyhookRecord) string {
	if rec.Unmounted != "" && rec.Unmounted == mountVersions(n) {
		return "it could not mount an image, with kubelet and runtime " + rec.Unmounted
	}
	return mountingVersions{n.Kubelet, n.Runtime}.findProblem(cmp.Or(f.Config.ImageVolumesFrom, DefaultImageVolumesFrom))
}

// mountingVersions are the versions of what mounts images on a node.
type mountingVersions struct{ kubelet, runtime string }

// findProblem returns why images are not mounted; from is the version of Kubernetes from which kubelets mount them.
func (v mountingVersions) findProblem(from string) string {
	if _, err := pack.ParseVersion(v.kubelet); err != nil || pack.CompareVersions(withoutSuffix(v.kubelet), from) < 0 {
		return fmt.Sprintf("its kubelet %s is older than %s", v.kubelet, from)
	}
	name, version, _ := strings.Cut(v.runtime, "://")
	oldest, isKnown := imageRuntimes[name]
	switch {
	case !isKnown:
		return fmt.Sprintf("its container runtime %s is not known to mount images", v.runtime)
	case pack.CompareVersions(withoutSuffix(version), oldest) < 0:
		return fmt.Sprintf("its container runtime %s is older than %s", v.runtime, oldest)
	}
	return ""
}

// withoutSuffix leaves out what distributions and pre-releases add to a version.
func withoutSuffix(version string) string {
	if at := strings.IndexAny(version, "-+~"); at >= 0 {
		return version[:at]
	}
	return version
}

// mountVersions identifies what mounts images on a node.
func mountVersions(n *node.Node) string { return node.Truncate(n.Kubelet+" "+n.Runtime, 120) }

// isCompactOn reports whether the stages of a node share pods.
func (f *facts) isCompactOn(n *node.Node, rec *node.SkyhookRecord) bool {
	return f.wantsCompact() && f.mountProblem(n, rec) == ""
}

// isCompactStep reports whether a step on such a node mounts the image of its package. Another agent than ours may not know how, and
// what a node pulled for a volume it does not say: a digest that is to be recorded needs a container.
func (f *facts) isCompactStep(st *step, n *node.Node, rec *node.SkyhookRecord) bool {
	return st.def.Package.AgentImageOverride == "" && f.exclusiveKey(st) == "" && f.isCompactOn(n, rec)
}

// mayJoin reports whether a step may share a pod with the steps before and after it.
func (f *facts) mayJoin(st *step, n *node.Node, rec *node.SkyhookRecord) bool {
	return !st.isInterrupt() && !st.isUninstall() && st.notYet == nil && st.keys == nil && !rec.Apart && f.isCompactStep(st, n, rec)
}

// IsCompact reports whether a pod has the compact layout.
func IsCompact(p *corev1.Pod) bool { return p.Annotations[annotationStages] != "" }

// podLayoutStatus counts the selected nodes by their layout; nil unless stages share pods.
func (rep reporter) podLayoutStatus() *v1alpha1.PodLayoutStatus {
	if !rep.facts.wantsCompact() {
		return nil
	}
	out := &v1alpha1.PodLayoutStatus{}
	for i := range rep.targets {
		t := rep.targets[i]
		if !t.selected {
			continue
		}
		problem := rep.facts.mountProblem(t.node, &t.rec)
		if problem == "" {
			out.Compact++
			continue
		}
		if out.Compatible++; out.Message == "" {
			out.Message = node.Truncate(fmt.Sprintf("node %s gets Compatible: %s", t.node.Name, problem), 300)
		}
	}
	return out
}
