// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// maxInlineMetadata bounds these files: the annotations of a pod may have 256 KiB together.
const maxInlineMetadata = 64 << 10

// inlineMetadata returns the files that tell a package about its node, if a compact pod can have them in its annotations; otherwise it
// mounts a ConfigMap as other pods do.
func (r Renderer) inlineMetadata(n *node.Node) (files map[string]string, isInline bool) {
	files = r.metadataFiles(n)
	size := 0
	for _, text := range files {
		size += len(text)
	}
	return files, size <= maxInlineMetadata
}

// MountsMetadata reports whether the pod of a task, or any pod of the node if none is named, mounts the ConfigMap with the node's
// metadata.
func (r Renderer) MountsMetadata(t *plan.Target, n *node.Node, task string) bool {
	if !r.Facts.IsCompactOn(n, &t.Record) {
		return true
	}
	if _, isInline := r.inlineMetadata(n); !isInline {
		return true
	}
	for id, st := range t.Steps {
		if (task == "" || id == task) && !st.IsInterrupt() && !r.Facts.IsCompactStep(st, n, &t.Record) {
			return true
		}
	}
	return false
}

// addMetadata adds the volume with the files about the node to a compact pod, and returns its name.
func (r Renderer) addMetadata(pod *corev1.Pod, n *node.Node) string {
	files, isInline := r.inlineMetadata(n)
	volume := r.metadataVolume(n)
	if !isInline {
		addVolume(&pod.Spec, volume)
		return volume.Name
	}
	source := &corev1.DownwardAPIVolumeSource{}
	for _, name := range plan.SortedNames(files) {
		pod.Annotations[podstate.PrefixFile+name] = files[name]
		source.Items = append(source.Items, corev1.DownwardAPIVolumeFile{
			Path: name, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + podstate.PrefixFile + name + "']"},
		})
	}
	volume.VolumeSource = corev1.VolumeSource{DownwardAPI: source}
	addVolume(&pod.Spec, volume)
	return volume.Name
}
