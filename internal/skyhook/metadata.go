// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// prefixFile begins the annotations of a compact pod that have the files about its node. The pod mounts them.
const prefixFile = v1alpha1.Group + "/file-"

// maxInlineMetadata bounds these files: the annotations of a pod may have 256 KiB together.
const maxInlineMetadata = 64 << 10

// inlineMetadata returns the files that tell a package about its node, if a compact pod can have them in its annotations; otherwise it
// mounts a ConfigMap as other pods do.
func (r renderer) inlineMetadata(n *node.Node) (files map[string]string, isInline bool) {
	files = r.metadataFiles(n)
	size := 0
	for _, text := range files {
		size += len(text)
	}
	return files, size <= maxInlineMetadata
}

// mountsMetadata reports whether the pod of a task, or any pod of the node if none is named, mounts the ConfigMap with the node's
// metadata.
func (r renderer) mountsMetadata(t *target, n *node.Node, task string) bool {
	if !r.facts.isCompactOn(n, &t.rec) {
		return true
	}
	if _, isInline := r.inlineMetadata(n); !isInline {
		return true
	}
	for id, st := range t.steps {
		if (task == "" || id == task) && !st.isInterrupt() && !r.facts.isCompactStep(st, n, &t.rec) {
			return true
		}
	}
	return false
}

// addMetadata adds the volume with the files about the node to a compact pod, and returns its name.
func (r renderer) addMetadata(pod *corev1.Pod, n *node.Node) string {
	files, isInline := r.inlineMetadata(n)
	volume := r.metadataVolume(n)
	if !isInline {
		addVolume(&pod.Spec, volume)
		return volume.Name
	}
	source := &corev1.DownwardAPIVolumeSource{}
	for _, name := range sortedNames(files) {
		pod.Annotations[prefixFile+name] = files[name]
		source.Items = append(source.Items, corev1.DownwardAPIVolumeFile{
			Path: name, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + prefixFile + name + "']"},
		})
	}
	volume.VolumeSource = corev1.VolumeSource{DownwardAPI: source}
	addVolume(&pod.Spec, volume)
	return volume.Name
}

// TrimFiles removes the files about its node from a pod, in place: only the pod itself reads them.
func TrimFiles(p *corev1.Pod) {
	for _, name := range []string{"annotations.json", "labels.json", "packages.json"} {
		delete(p.Annotations, prefixFile+name)
	}
}
