// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// MostPins and MostDeviations bound lists of the status.
const (
	MostPins       = 200
	MostDeviations = 20

	// pullLimit is how long other nodes wait for the first pull of an image. It begins with the pod, and a node on which the
	// pull fails, or that is not ready, keeps nobody waiting.
	PullLimit = 5 * time.Minute
	// recordLimit is how long they wait for the digest to be stored, from each pass on.
	RecordLimit = time.Minute
)

// ImageKey is what a digest is recorded for.
type ImageKey struct{ Name, Version, Image string }

// KeyOfPin is the image that a recorded digest is for.
func KeyOfPin(p v1alpha1.ImagePin) ImageKey { return ImageKey{p.Package, p.Version, p.Image} }

// ImageKey is the image of a definition.
func (d *Definition) ImageKey() ImageKey {
	return ImageKey{d.Package.Name, string(d.Package.Version), d.Package.Image}
}

func (k ImageKey) String() string { return k.Name + " " + k.Version }

// ImagePull is what a pod pulled for a package, by its tag or by the recorded digest.
type ImagePull struct {
	Key      ImageKey
	Node     string
	Digest   string
	IsByTag  bool
	Installs bool // the pod installs or upgrades the package
	PodStart time.Time
}

// PinsImages reports whether nodes pull by the digest that the first of them pulled: the operator's setting, or else the profile.
func (f *Facts) PinsImages() bool {
	if pins := f.Config.PinImages; pins != nil {
		return *pins
	}
	return f.isRecommended()
}

// Prepulls reports whether images are pulled before a node's turn.
func (f *Facts) Prepulls() bool { return f.Config.Prepull != nil && *f.Config.Prepull }

// IsPinned reports whether the digest of a package's image is recorded, or to be recorded.
func (f *Facts) IsPinned(d *Definition) bool {
	return f.PinsImages() && d.Package.ContainerSHA == ""
}

// FindPin returns the recorded digest of a package's image; nil when there is none.
func (f *Facts) FindPin(d *Definition) *v1alpha1.ImagePin {
	if !f.IsPinned(d) {
		return nil
	}
	pins := f.Pins
	at := slices.IndexFunc(pins, func(p v1alpha1.ImagePin) bool {
		return KeyOfPin(p) == d.ImageKey() && podstate.ValidDigest.MatchString(p.Digest)
	})
	if at < 0 {
		return nil
	}
	return &pins[at]
}

// RecordedDigest returns the recorded digest of a package's image, or "".
func (f *Facts) RecordedDigest(d *Definition) string {
	if pin := f.FindPin(d); pin != nil {
		return pin.Digest
	}
	return ""
}

// ExclusiveKey returns the key of tasks that pull an image whose digest is not recorded yet: one of them begins, and the
// others pull what it pulled. It is empty when they need not wait.
func (f *Facts) ExclusiveKey(st *Step) string {
	if st.IsInterrupt() || !f.IsPinned(st.Definition) || f.FindPin(st.Definition) != nil {
		return ""
	}
	return st.Definition.ImageKey().PullKey()
}

// PullKey is the key of what waits until the digest of an image is recorded.
func (k ImageKey) PullKey() string { return strings.Join([]string{k.Name, k.Version, k.Image}, "|") }

// IsNoted reports whether what a pod pulled is recorded already.
func (f *Facts) IsNoted(pull ImagePull, pin *v1alpha1.ImagePin) bool {
	if pin == nil {
		return !f.HasRoomFor(pull.Key, f.OtherPins) // it will not be
	}
	isSame := !pull.IsByTag || pull.Digest == pin.Digest
	hasRoom := len(pin.Deviations) < MostDeviations
	return isSame || !hasRoom || slices.Contains(pin.Deviations, v1alpha1.ImageDeviation{Node: pull.Node, Digest: pull.Digest})
}

// IsOfSpec reports whether the spec has an image.
func (f *Facts) IsOfSpec(key ImageKey) bool {
	d := f.Packages[key.Name]
	return d != nil && d.ImageKey() == key
}

// HasRoomFor reports whether the digest of an image can be recorded beside this many of images that are not of the spec: those of the spec have
// room in any case.
func (f *Facts) HasRoomFor(key ImageKey, others int) bool {
	return f.IsOfSpec(key) || others < MostPins-len(f.Packages)
}

// UsefulPins returns the digests by which nodes pull of versions that the spec has or a node records, as far as they have room, and how many are
// of images that the spec does not have.
func (f *Facts) UsefulPins(nodes []*node.Node) (out []v1alpha1.ImagePin, others int) {
	isUsed := map[string]bool{}
	for _, d := range f.Packages {
		isUsed[d.Key()] = true
	}
	for _, n := range nodes {
		for key := range n.Skyhook(f.Skyhook.Name).State {
			isUsed[key] = true
		}
	}
	for i := range f.Pins {
		p := f.Pins[i].DeepCopy()
		if !isUsed[p.Package+"|"+p.Version] || !podstate.ValidDigest.MatchString(p.Digest) || !f.HasRoomFor(KeyOfPin(*p), others) {
			continue
		}
		if !f.IsOfSpec(KeyOfPin(*p)) {
			others++
		}
		out = append(out, *p)
	}
	return out, others
}

// HasPulledRecorded reports whether a pod pulled by tag what is recorded by now: it need not be replaced.
func (f *Facts) HasPulledRecorded(st *Step, pod *podstate.Pod) bool {
	return IsImageOf(st.Definition, pod.Image) && podstate.FindDigest(pod.ImageID, st.Definition.Package.Image) == f.RecordedDigest(st.Definition)
}

// IsImageOf reports whether the image of a pod is that of a package by its tag, or by a digest: an admission controller may have
// put the digest beside the tag, or in its place.
func IsImageOf(d *Definition, image string) bool {
	tag, isByDigest := ImageTag(image), strings.Contains(image, "@")
	return Repository(image) == d.Package.Image && (tag == VersionTag(d.Package.Version) || tag == "" && isByDigest)
}

// PinsOf returns the digests that are kept with a revision, from the metadata of its ControllerRevision. What cannot be read, or is no
// digest, is left out: nodes pull by tag then, and the digest is recorded anew.
func PinsOf(m *metav1.ObjectMeta) []v1alpha1.ImagePin {
	var read, out []v1alpha1.ImagePin
	if text := m.Annotations[v1alpha1.AnnotationImagePins]; text == "" || json.Unmarshal([]byte(text), &read) != nil {
		return nil
	}
	for _, p := range read[:min(len(read), MostPins)] {
		if p.Package != "" && p.Image != "" && podstate.ValidDigest.MatchString(p.Digest) {
			out = append(out, p)
		}
	}
	return out
}

// knownPins returns the digests by which nodes pull: those in the status, and for other images those of the newest revision that has them.
func knownPins(stored []v1alpha1.ImagePin, revisions []Revision) []v1alpha1.ImagePin {
	out := slices.Clone(stored)
	for _, r := range revisions {
		for _, p := range r.Pins {
			isKnown := slices.ContainsFunc(out, func(known v1alpha1.ImagePin) bool {
				return KeyOfPin(known) == KeyOfPin(p) && podstate.ValidDigest.MatchString(known.Digest)
			})
			if !isKnown {
				out = append(out, p)
			}
		}
	}
	return out
}

// OwnerReferences has an object deleted with its Skyhook.
func OwnerReferences(s *v1alpha1.Skyhook) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind, Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes,
	}}
}

// ImageOf returns the reference that a package names, by digest if it has one.
func ImageOf(p v1alpha1.Package) string {
	if p.ContainerSHA != "" {
		return p.Image + "@" + p.ContainerSHA
	}
	return p.Image + ":" + VersionTag(p.Version)
}

// VersionTag returns the tag of a version. A tag cannot have the plus sign that a version may have.
func VersionTag(v v1alpha1.PackageVersion) string { return strings.ReplaceAll(string(v), "+", "_") }
