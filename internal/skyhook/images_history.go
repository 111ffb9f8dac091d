// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

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
	return c.facts.PinsImages() && c.facts.Revisions == nil && !c.facts.Deleting
}

// RevisionPins returns the digests to keep with a revision.
//
// With pinImages those that are stored in the status are kept with the newest revision, if it is that of the spec. Without it nodes pull
// the packages of the spec by their tags, and no revision has digests of these any more.
func (c *Compiled) RevisionPins(r plan.Revision, isNewest bool) []v1alpha1.ImagePin {
	if !c.facts.PinsImages() {
		return slices.DeleteFunc(slices.Clone(r.Pins), func(p v1alpha1.ImagePin) bool {
			d := c.facts.Packages[p.Package]
			return d != nil && d.ImageKey() == plan.KeyOfPin(p)
		})
	}
	if !isNewest || r.Key != c.facts.Key {
		return r.Pins
	}
	out := slices.Clone(r.Pins)
	for _, p := range c.stored.Internal.ImagePins {
		d := c.facts.Packages[p.Package]
		if d == nil || !c.facts.IsPinned(d) || d.ImageKey() != plan.KeyOfPin(p) || !podstate.ValidDigest.MatchString(p.Digest) {
			continue
		}
		p.Deviations = nil // they are of nodes as they are now
		at := slices.IndexFunc(out, func(known v1alpha1.ImagePin) bool { return plan.KeyOfPin(known) == plan.KeyOfPin(p) })
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
	return slices.EqualFunc(a, b, func(a, b v1alpha1.ImagePin) bool { return plan.KeyOfPin(a) == plan.KeyOfPin(b) && a.Digest == b.Digest })
}
