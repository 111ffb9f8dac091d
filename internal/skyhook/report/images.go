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
)

// imagePins returns the digests to record: those that are recorded and still of use, and those of new images, each as the
// first pod pulled it.
func (rep Reporter) imagePins() []v1alpha1.ImagePin {
	if !rep.Facts.PinsImages() {
		return nil
	}
	out, others := rep.Facts.UsefulPins(rep.Nodes)
	for i := range out {
		if out[i].Deviations = slices.DeleteFunc(out[i].Deviations, rep.isGone); len(out[i].Deviations) == 0 {
			out[i].Deviations = nil
		}
	}
	pulls := slices.Clone(rep.Pulls)
	slices.SortFunc(pulls, func(a, b plan.ImagePull) int {
		return cmp.Or(a.PodStart.Compare(b.PodStart), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	for _, pull := range pulls {
		at := slices.IndexFunc(out, func(p v1alpha1.ImagePin) bool { return plan.KeyOfPin(p) == pull.Key })
		switch {
		case at >= 0:
			noteDeviation(&out[at], pull)
		case pull.IsByTag && rep.Facts.HasRoomFor(pull.Key, others):
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

// isGone reports whether the node that pulled something else does not exist any more.
func (rep Reporter) isGone(d v1alpha1.ImageDeviation) bool {
	return !slices.ContainsFunc(rep.Nodes, func(n *node.Node) bool { return n.Name == d.Node })
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
