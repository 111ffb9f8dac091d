// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OnNode are the pods of a Skyhook on a node, in the order of their creation.
type OnNode struct {
	Work   []*Pod // that run stages, interrupts and commands of proofs
	Checks []*Pod // that check the node for drift, or look what it needs before its turn
	Pulls  []*Pod // that pull images before the node's turn
}

// ReadAll reads the pods of a Skyhook on a node. Those that check the node or pull images are apart: they are no work, unless the
// Skyhook is being deleted and waits until they are gone.
func ReadAll(pods []*corev1.Pod, isDeleting bool) (out OnNode) {
	read := make([]*Pod, len(pods))
	for i, p := range pods {
		read[i] = Read(p)
	}
	slices.SortFunc(read, func(a, b *Pod) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
	for _, p := range read {
		switch {
		case p.Aside == nil || isDeleting:
			out.Work = append(out.Work, p)
		case isPull(p.Aside):
			out.Pulls = append(out.Pulls, p)
		default:
			out.Checks = append(out.Checks, p)
		}
	}
	return out
}

// FindCheck returns the pod of this name that checks the node; nil if there is none.
func (p OnNode) FindCheck(name string) *corev1.Pod {
	for _, pod := range p.Checks {
		if pod.Name == name {
			return pod.Aside
		}
	}
	return nil
}
