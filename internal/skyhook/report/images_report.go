// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
)

// ImageOfPackage is where a package of the spec gets its image from.
type ImageOfPackage struct {
	Package, Version string
	Image            string // what nodes pull: by digest when it is known
	Text             string // where the digest comes from
}

// Images lists the images of the packages of a Skyhook that records digests; nothing for others.
func (rep Reporter) Images() []ImageOfPackage {
	if !rep.Facts.PinsImages() {
		return nil
	}
	var out []ImageOfPackage
	for _, name := range plan.SortedNames(rep.Facts.Packages) {
		d := rep.Facts.Packages[name]
		image := ImageOfPackage{Package: name, Version: string(d.Package.Version), Image: render.Renderer{Facts: rep.Facts}.ImageOf(d), Text: "the digest that the first node pulls is used on the others"}
		pin := rep.Facts.FindPin(d)
		switch {
		case d.Package.ContainerSHA != "":
			image.Text = "containerSHA of the package"
		case pin != nil:
			image.Text = "pulled first by node " + pin.Node
			if len(pin.Deviations) > 0 {
				image.Text += "; " + describeDeviations(*pin)
			}
		}
		out = append(out, image)
	}
	return out
}

// setImagesPinned sets the condition that says whether every node pulled the recorded digests.
func (rep Reporter) setImagesPinned(t *conditionWriter, pins []v1alpha1.ImagePin) {
	if !rep.Facts.PinsImages() {
		return
	}
	var moved []string
	for _, p := range pins {
		if len(p.Deviations) > 0 {
			moved = append(moved, rep.describeMovedTag(p))
		}
	}
	unknown := rep.unknownDigests(pins)
	switch {
	case len(moved) > 0:
		t.set(v1alpha1.ConditionImagesPinned, false, v1alpha1.ReasonTagMoved, strings.Join(moved, "; "))
	case len(unknown) > 0:
		t.set(v1alpha1.ConditionImagesPinned, false, v1alpha1.ReasonDigestsUnknown,
			"no node has pulled an image yet whose digest can be recorded, for "+strings.Join(unknown, ", "))
	default:
		t.set(v1alpha1.ConditionImagesPinned, true, v1alpha1.ReasonDigestsRecorded, "every image is pulled by its digest")
	}
}

// describeMovedTag says which nodes have something else than the others, and how that ends.
func (rep Reporter) describeMovedTag(p v1alpha1.ImagePin) string {
	return fmt.Sprintf("package %s %s: the tag was moved: %s, and the others pull %s; kubectl skyhook package reapply %s --skyhook %s installs that there",
		p.Package, p.Version, describeDeviations(p), p.Digest, p.Package, rep.Facts.Skyhook.Name)
}

func describeDeviations(p v1alpha1.ImagePin) string {
	var out []string
	for _, d := range p.Deviations {
		out = append(out, "node "+d.Node+" pulled "+d.Digest)
	}
	return listNames(out, 3)
}

// unknownDigests lists the packages of the spec whose digest is not recorded, and why when a node named none.
func (rep Reporter) unknownDigests(pins []v1alpha1.ImagePin) []string {
	var out []string
	for _, name := range plan.SortedNames(rep.Facts.Packages) {
		d := rep.Facts.Packages[name]
		hasPin := slices.ContainsFunc(pins, func(p v1alpha1.ImagePin) bool { return plan.KeyOfPin(p) == d.ImageKey() })
		if !rep.Facts.IsPinned(d) || hasPin {
			continue
		}
		text := d.ImageKey().String()
		at := slices.IndexFunc(rep.Unnamed, func(pull plan.ImagePull) bool { return pull.Key == d.ImageKey() })
		if at >= 0 {
			text += fmt.Sprintf(" (node %s names no digest of %s for it)", rep.Unnamed[at].Node, d.Package.Image)
		}
		out = append(out, text)
	}
	return out
}

// ImageEvents returns an event for each digest that is newly recorded, and for each node that pulled something else.
func ImageEvents(was, is v1alpha1.SkyhookStatus) []Event {
	var out []Event
	for _, p := range is.Internal.ImagePins {
		at := slices.IndexFunc(was.Internal.ImagePins, func(old v1alpha1.ImagePin) bool {
			return plan.KeyOfPin(old) == plan.KeyOfPin(p) && old.Digest == p.Digest
		})
		var known []v1alpha1.ImageDeviation
		if at >= 0 {
			known = was.Internal.ImagePins[at].Deviations
		} else {
			out = append(out, Event{OnSkyhook: true, Type: corev1.EventTypeNormal, Reason: v1alpha1.EventImagePinned, Message: node.Truncate(fmt.Sprintf(
				"every node pulls package %s %s as %s@%s, as node %s did", p.Package, p.Version, p.Image, p.Digest, p.Node), 1000)})
		}
		for _, d := range p.Deviations {
			if slices.Contains(known, d) {
				continue
			}
			out = append(out, Event{Node: d.Node, OnSkyhook: true, Type: corev1.EventTypeWarning, Reason: v1alpha1.EventTagMoved, Message: node.Truncate(fmt.Sprintf(
				"node %s pulled package %s %s as %s, and the others pull %s: the tag was moved", d.Node, p.Package, p.Version, d.Digest, p.Digest), 1000)})
		}
	}
	return out
}
