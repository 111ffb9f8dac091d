// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// DefaultImageVolumesFrom is the version of Kubernetes from which kubelets mount images as volumes without a feature gate.
const DefaultImageVolumesFrom = "1.35"

// imageRuntimes are the container runtimes that mount images, each with the version from which it does.
var imageRuntimes = map[string]string{"containerd": "2.1.0", "cri-o": "1.31.0"}

// PodLayout is how the stages of packages become pods.
type PodLayout string

// The layouts.
const (
	// LayoutCompatible runs each stage in a pod of its own: init containers copy the package, run the stage and check it.
	LayoutCompatible PodLayout = "Compatible"
	// LayoutCompact mounts packages as image volumes and runs stages that follow each other as containers of one pod.
	LayoutCompact PodLayout = "Compact"
)

// WantsCompact reports whether stages share pods on the nodes that can mount images.
func (f *Facts) WantsCompact() bool {
	return f.Config.PodLayout == LayoutCompact || f.Config.PodLayout == "" && f.isRecommended()
}

// MountProblem returns why a node cannot mount images; empty if it can, as far as is known.
func (f *Facts) MountProblem(n *node.Node, rec *node.SkyhookRecord) string {
	if rec.Unmounted != "" && rec.Unmounted == MountVersions(n) {
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

// MountVersions identifies what mounts images on a node.
func MountVersions(n *node.Node) string { return node.Truncate(n.Kubelet+" "+n.Runtime, 120) }

// IsCompactOn reports whether the stages of a node share pods.
func (f *Facts) IsCompactOn(n *node.Node, rec *node.SkyhookRecord) bool {
	return f.WantsCompact() && f.MountProblem(n, rec) == ""
}

// IsCompactStep reports whether a step on such a node mounts the image of its package. Another agent than ours may not know how, and
// what a node pulled for a volume it does not say: a digest that is to be recorded needs a container.
func (f *Facts) IsCompactStep(st *Step, n *node.Node, rec *node.SkyhookRecord) bool {
	return st.Definition.Package.AgentImageOverride == "" && f.ExclusiveKey(st) == "" && f.IsCompactOn(n, rec)
}

// MayJoin reports whether a step may share a pod with the steps before and after it.
func (f *Facts) MayJoin(st *Step, n *node.Node, rec *node.SkyhookRecord) bool {
	return !st.IsInterrupt() && !st.IsUninstall() && st.NotYet == nil && st.Keys == nil && !rec.Apart && f.fitsShared(st) && f.IsCompactStep(st, n, rec)
}

// What stages add to a pod that they share: the API server stores pods of less than 1.5 MiB, whose annotations have less than 256 KiB.
const (
	maxShared        = 24 // stages: see rollout/engine/joint.go
	maxSharedEnv     = 1 << 20
	maxSharedEffects = 128 << 10
)

// fitsShared reports whether a step is small enough for a pod that all stages of all packages may share.
func (f *Facts) fitsShared(st *Step) bool {
	const stages, perVariable = 3, 64 // what a package may have in a pod; names of fields
	env, effect := 0, 0
	for _, v := range st.Definition.Package.Env {
		env += len(v.Name) + len(v.Value) + perVariable
	}
	if st.Effect != nil {
		effect = len(strings.Join(st.Effect.Services, `","`))
	}
	share := min(maxShared, stages*max(1, len(f.Packages)))
	return env <= maxSharedEnv/share && effect <= maxSharedEffects/share
}
