// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
)

// dryRunPods returns a pod for each kind of pod that a node needs, by the hash of what it is made from. It is never created: the API
// server says of it whether it would refuse such a pod. Those that are known already are left out.
func (r renderer) dryRunPods(t *target, n *node.Node, isKnown func(hash string) bool) map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for _, id := range sortedNames(t.steps) {
		st := t.steps[id]
		hash := r.contentOf(st, st.payload, r.facts.isCompactStep(st, n, &t.rec))
		if out[hash] != nil || isKnown(hash) {
			continue
		}
		rec := node.SkyhookRecord{Packages: map[string]*node.PackageRecord{st.key: {Run: "dry-run", Generation: 1, Interrupt: "dry-run"}}}
		rec.Unmounted = t.rec.Unmounted
		out[hash] = r.taskPod([]*step{st}, &rec, n)
	}
	return out
}
