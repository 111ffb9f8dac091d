// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// PinsOf returns the digests that are kept with a revision, from the metadata of its ControllerRevision. What cannot be read, or is no
// digest, is left out: nodes pull by tag then, and the digest is recorded anew.
func PinsOf(m *metav1.ObjectMeta) []v1alpha1.ImagePin {
	var read, out []v1alpha1.ImagePin
	if text := m.Annotations[v1alpha1.AnnotationImagePins]; text == "" || json.Unmarshal([]byte(text), &read) != nil {
		return nil
	}
	for _, p := range read[:min(len(read), mostPins)] {
		if p.Package != "" && p.Image != "" && validDigest.MatchString(p.Digest) {
			out = append(out, p)
		}
	}
	return out
}

// PinsPatch returns the merge patch that makes digests those of a revision.
func PinsPatch(pins []v1alpha1.ImagePin) ([]byte, error) {
	var value any // none removes the annotation
	if len(pins) > 0 {
		text, err := json.Marshal(pins)
		if err != nil {
			return nil, fmt.Errorf("encoding the digests of a revision: %w", err)
		}
		value = string(text)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationImagePins: value}}})
	if err != nil {
		return nil, fmt.Errorf("encoding the digests of a revision: %w", err)
	}
	return patch, nil
}

// AwaitsRevisions reports whether nodes must not pull yet: the revisions are not known, and with them the digests that were used before.
func (c *Compiled) AwaitsRevisions() bool {
	return c.facts.pinsImages() && c.facts.Revisions == nil && !c.facts.Deleting
}

// RevisionPins returns the digests to keep with a revision.
//
// With pinImages those that are stored in the status are kept with the newest revision, if it is that of the spec. Without it nodes pull
// the packages of the spec by their tags, and no revision has digests of these any more.
func (c *Compiled) RevisionPins(r Revision, isNewest bool) []v1alpha1.ImagePin {
	if !c.facts.pinsImages() {
		return slices.DeleteFunc(slices.Clone(r.Pins), func(p v1alpha1.ImagePin) bool {
			d := c.facts.Packages[p.Package]
			return d != nil && d.imageKey() == keyOfPin(p)
		})
	}
	if !isNewest || r.Key != c.facts.Key {
		return r.Pins
	}
	out := slices.Clone(r.Pins)
	for _, p := range c.stored.ImagePins {
		d := c.facts.Packages[p.Package]
		if d == nil || !c.facts.isPinned(d) || d.imageKey() != keyOfPin(p) || !validDigest.MatchString(p.Digest) {
			continue
		}
		p.Deviations = nil // they are of nodes as they are now
		at := slices.IndexFunc(out, func(known v1alpha1.ImagePin) bool { return keyOfPin(known) == keyOfPin(p) })
		switch {
		case at < 0:
			out = append(out, p)
		case out[at].Digest != p.Digest:
			out[at] = p
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.ImagePin) int { return cmp.Compare(a.Package, b.Package) })
	return out
}

// HasSamePins reports whether two lists have the same digests for the same images.
func HasSamePins(a, b []v1alpha1.ImagePin) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.ImagePin) bool { return keyOfPin(a) == keyOfPin(b) && a.Digest == b.Digest })
}

// knownPins returns the digests by which nodes pull: those in the status, and for other images those of the newest revision that has them.
func knownPins(stored []v1alpha1.ImagePin, revisions []Revision) []v1alpha1.ImagePin {
	out := slices.Clone(stored)
	for _, r := range revisions {
		for _, p := range r.Pins {
			isKnown := slices.ContainsFunc(out, func(known v1alpha1.ImagePin) bool {
				return keyOfPin(known) == keyOfPin(p) && validDigest.MatchString(known.Digest)
			})
			if !isKnown {
				out = append(out, p)
			}
		}
	}
	return out
}
