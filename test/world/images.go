// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// movesTags is after how many turns somebody pushes other images under the same tags.
const movesTags = 7

// pullImage returns what a node says that it pulled for a pod: what the tag names in this turn, or the digest that the pod names.
// Some nodes do not know, and some lie.
func (r *Run) pullImage(p *corev1.Pod, image string) string {
	if strings.Contains(image, "@") {
		return "docker-pullable://" + image
	}
	repository, _, _ := strings.Cut(image, ":")
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Append(nil, image, r.turn/movesTags)))
	switch r.random("image", string(p.UID)).IntN(8) {
	case 0:
		return digest
	case 1:
		return "registry.evil/" + strings.TrimPrefix(repository, "registry.example/") + "@" + digest
	case 2:
		return ""
	}
	r.truth.pulled[repository+"@"+digest] = true
	return repository + "@" + digest
}

// pinKey is what a digest is recorded for.
type pinKey struct{ uid, name, version, image string }

// pinsOf are the recorded digests of a Skyhook.
func pinsOf(c content) map[pinKey]string {
	out := map[pinKey]string{}
	if c == nil {
		return out
	}
	s := decode(c, &v1alpha1.Skyhook{})
	for _, p := range s.Status.Internal.ImagePins {
		out[pinKey{string(s.UID), p.Package, p.Version, p.Image}] = p.Digest
	}
	return out
}

// notePins notes which digests are recorded before a pass.
func (r *Run) notePins() {
	r.truth.pins = map[pinKey]string{}
	for _, key := range r.server.keys(Skyhooks) {
		for k, digest := range pinsOf(r.server.objects[Skyhooks.Kind][key]) {
			r.truth.pins[k] = digest
		}
	}
}

// checkPins checks a status that the operator wrote: a recorded digest never changes, and somebody really pulled it.
func (r *Run) checkPins(w Write) {
	before := pinsOf(w.Before)
	for k, digest := range pinsOf(w.After) {
		if was, known := before[k]; known && was != digest {
			r.violate("the first recorded digest stays", "Skyhook %s records %s for %s %s, and had %s", w.Name, digest, k.name, k.version, was)
		}
		if !r.truth.pulled[k.image+"@"+digest] {
			r.violate("containment", "Skyhook %s records %s for %s %s, and no node pulled that from %s", w.Name, digest, k.name, k.version, k.image)
		}
	}
}

// checkPodImage checks that a new pod pulls a package by its digest if one was recorded before the pass.
func (r *Run) checkPodImage(w Write) {
	p := decode(w.After, &corev1.Pod{})
	owner := metav1.GetControllerOf(p)
	r.checkMountedImages(p)
	var about struct{ Name, Version, Image string }
	isOfPackage := owner != nil && len(p.Spec.InitContainers) > 1 && !podstate.IsCompact(p) && json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationPackage]), &about) == nil
	if !isOfPackage {
		return
	}
	if !r.pinsImages(owner.Name) {
		return
	}
	digest, isPinned := r.truth.pins[pinKey{string(owner.UID), about.Name, about.Version, about.Image}]
	if image := p.Spec.InitContainers[0].Image; isPinned && image != about.Image+"@"+digest {
		r.violate("all nodes pull the recorded digest", "pod %s pulls %s, and %s was recorded", w.Name, image, digest)
	}
}

// pinsImages reports whether the images of a Skyhook are pinned, as its leader has seen it.
func (r *Run) pinsImages(skyhook string) bool {
	config := r.config()
	if config.PinImages != nil {
		return *config.PinImages
	}
	s, isSeen := r.leader.caches[0].watchedOf(Skyhooks).objects[client.ObjectKey{Name: skyhook}].(*v1alpha1.Skyhook)
	return isSeen && config.Profile == v1alpha1.ProfileRecommended && s.Spec.Profile == "" &&
		s.Status.Profile != nil && s.Status.Profile.Name == v1alpha1.ProfileRecommended
}

// checkMountedImages does the same for the images that a compact pod mounts.
func (r *Run) checkMountedImages(p *corev1.Pod) {
	owner := metav1.GetControllerOf(p)
	for _, v := range p.Spec.Volumes {
		if v.Image == nil || owner == nil || !r.pinsImages(owner.Name) {
			continue
		}
		for k := range r.truth.pins {
			isOf := k.uid == string(owner.UID) && v.Name == plan.SafeName(63, "image", k.name) // others may have the same image
			if isOf && v.Image.Reference == k.image+":"+k.version {
				r.violate("all nodes pull the recorded digest", "pod %s mounts %s, whose digest was recorded", p.Name, v.Image.Reference)
			}
		}
	}
}
