// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// imagePins returns the digests to record: those that are recorded and still of use, and those of new images, each as the
// first pod pulled it.
func (rep Reporter) imagePins() []v1alpha1.ImagePin {
	if !rep.Facts.PinsImages() {
		return nil
	}
	out, others := rep.keptPins()
	pulls := slices.Clone(rep.Pulls)
	slices.SortFunc(pulls, func(a, b plan.ImagePull) int {
		return cmp.Or(a.PodStart.Compare(b.PodStart), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	for _, pull := range pulls {
		at := slices.IndexFunc(out, func(p v1alpha1.ImagePin) bool { return plan.KeyOfPin(p) == pull.Key })
		switch {
		case at >= 0:
			noteDeviation(&out[at], pull)
		case pull.IsByTag && (rep.Facts.IsOfSpec(pull.Key) || others < rep.Facts.MostOtherPins()):
			if !rep.Facts.IsOfSpec(pull.Key) {
				others++
			}
			out = append(out, v1alpha1.ImagePin{
				Package: pull.Key.Name, Version: pull.Key.Version, Image: pull.Key.Image,
				Digest: pull.Digest, Node: pull.Node, Since: metav1.NewTime(node.WholeSeconds(rep.Facts.Now)),
			})
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.ImagePin) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Image, b.Image))
	})
	return out
}

// keptPins returns the recorded digests that are of use, also those that a revision kept, without deviations of nodes that are gone, and how many
// are of images that the spec does not have.
func (rep Reporter) keptPins() (out []v1alpha1.ImagePin, others int) {
	isUsed := rep.usedVersions()
	isGone := func(d v1alpha1.ImageDeviation) bool {
		return !slices.ContainsFunc(rep.Nodes, func(n *node.Node) bool { return n.Name == d.Node })
	}
	for i := range rep.Facts.Pins {
		p := rep.Facts.Pins[i].DeepCopy()
		isOther := !rep.Facts.IsOfSpec(plan.KeyOfPin(*p))
		if !isUsed[p.Package+"|"+p.Version] || !podstate.ValidDigest.MatchString(p.Digest) || isOther && others == rep.Facts.MostOtherPins() {
			continue
		}
		if isOther {
			others++
		}
		if p.Deviations = slices.DeleteFunc(p.Deviations, isGone); len(p.Deviations) == 0 {
			p.Deviations = nil
		}
		out = append(out, *p)
	}
	return out, others
}

// noteDeviation adds a node that pulled something else by tag, and removes one that was installed from the recorded digest
// since.
func noteDeviation(pin *v1alpha1.ImagePin, pull plan.ImagePull) {
	isSame := !pull.IsByTag || pull.Digest == pin.Digest
	at := slices.IndexFunc(pin.Deviations, func(d v1alpha1.ImageDeviation) bool { return d.Node == pull.Node })
	switch {
	case isSame && at >= 0 && pull.Installs:
		pin.Deviations = slices.Delete(pin.Deviations, at, at+1)
	case isSame:
	case at >= 0:
		pin.Deviations[at].Digest = pull.Digest
	case len(pin.Deviations) < plan.MostDeviations:
		pin.Deviations = append(pin.Deviations, v1alpha1.ImageDeviation{Node: pull.Node, Digest: pull.Digest})
	}
}

// usedVersions returns the versions of packages, as in a nodeState, that the spec has or that a node records.
func (rep Reporter) usedVersions() map[string]bool {
	out := map[string]bool{}
	for _, d := range rep.Facts.Packages {
		out[d.Key()] = true
	}
	for i := range rep.Targets {
		for key := range rep.Targets[i].On.State {
			out[key] = true
		}
	}
	return out
}
