// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// PrefixFile begins the annotations of a compact pod that have the files about its node. The pod mounts them.
const PrefixFile = v1alpha1.Group + "/file-"

// TrimFiles removes the files about its node from a pod, in place: only the pod itself reads them.
func TrimFiles(p *corev1.Pod) {
	for _, name := range []string{"annotations.json", "labels.json", "packages.json"} {
		delete(p.Annotations, PrefixFile+name)
	}
}

// Annotations on pods that only we read.
const (
	AnnotationRun      = v1alpha1.Group + "/run"      // SKYHOOK_RUN_ID of the admission the pod belongs to
	AnnotationContent  = v1alpha1.Group + "/content"  // hash of what the pod was made from
	AnnotationAttempts = v1alpha1.Group + "/attempts" // failed attempts before this pod
	AnnotationStages   = v1alpha1.Group + "/stages"   // of a compact pod: its stages in order, see podStage
	AnnotationQueue    = v1alpha1.Group + "/queue"    // of a compact pod with several: node.Queue.ID
)

// AnnotationStop on a compact pod says why it ends before its next stage. Its containers read it.
const AnnotationStop = v1alpha1.Group + "/stop"

// Container and volume names of the pods; other programs look for the first three.
const (
	ContainerInterrupt = "interrupt"
	SuffixCopy         = "-init"
	SuffixCheck        = "check"
	ContainerPause     = "pause"
	VolumeRoot         = "root-mount"
	PrefixMetadata     = "metadata" // of the volume with the metadata of a node
)
