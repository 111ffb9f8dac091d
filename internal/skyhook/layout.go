// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

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
func (c *Compiled) wantsCompact() bool {
	layout := c.in.Skyhook.Spec.PodLayout
	if layout == "" {
		layout = c.in.Config.PodLayout
	}
	return layout == v1alpha1.PodLayoutCompact
}

// mountProblem returns why a node cannot mount images; empty if it can, as far as is known.
func (c *Compiled) mountProblem(n *node.Node, rec *node.SkyhookRecord) string {
	if rec.Unmounted != "" && rec.Unmounted == mountVersions(n) {
		return "it could not mount an image, with kubelet and runtime " + rec.Unmounted
	}
	return c.mounts.problemOf(mountingVersions{n.Kubelet, n.Runtime}, c.in.Config.ImageVolumesFrom)
}

// mountingVersions are the versions of what mounts images on a node.
type mountingVersions struct{ kubelet, runtime string }

// mountProblems has what was found out about versions: a fleet has many nodes and few versions. Pods are rendered side by side.
type mountProblems struct {
	mu sync.Mutex
	of map[mountingVersions]string
}

// problemOf returns why a node with these versions cannot mount images; empty if it can. It is found out once.
func (p *mountProblems) problemOf(of mountingVersions, from string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	problem, isKnown := p.of[of]
	if !isKnown {
		problem = of.findProblem(cmp.Or(from, DefaultImageVolumesFrom))
		p.of[of] = problem
	}
	return problem
}

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
func (c *Compiled) isCompactOn(n *node.Node, rec *node.SkyhookRecord) bool {
	return c.wantsCompact() && c.mountProblem(n, rec) == ""
}

// isCompactStep reports whether a step on such a node mounts the image of its package. Another agent than ours may not know how, and
// what a node pulled for a volume it does not say: a digest that is to be recorded needs a container.
func (c *Compiled) isCompactStep(st *step, n *node.Node, rec *node.SkyhookRecord) bool {
	return st.def.Package.AgentImageOverride == "" && c.exclusiveKey(st) == "" && c.isCompactOn(n, rec)
}

// mayJoin reports whether a step may share a pod with the steps before and after it.
func (c *Compiled) mayJoin(st *step, n *node.Node, rec *node.SkyhookRecord) bool {
	return !st.isInterrupt() && !st.isUninstall() && st.notYet == nil && st.keys == nil && !rec.Apart && c.isCompactStep(st, n, rec)
}

// IsCompact reports whether a pod has the compact layout.
func IsCompact(p *corev1.Pod) bool { return p.Annotations[annotationStages] != "" }

// podLayoutStatus counts the selected nodes by their layout; nil unless stages share pods.
func (rep reporter) podLayoutStatus() *v1alpha1.PodLayoutStatus {
	if !rep.wantsCompact() {
		return nil
	}
	out := &v1alpha1.PodLayoutStatus{}
	for i := range rep.all {
		t := rep.all[i]
		if !t.selected {
			continue
		}
		problem := rep.mountProblem(t.node, &t.rec)
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
