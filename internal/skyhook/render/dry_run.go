// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// DryRunPods returns a pod for each kind of pod that a node needs, by the hash of what it is made from. It is never created: the API
// server says of it whether it would refuse such a pod. Those that are known already are left out.
func (r Renderer) DryRunPods(t *plan.Target, n *node.Node, isKnown func(hash string) bool) map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for _, id := range plan.SortedNames(t.Steps) {
		st := t.Steps[id]
		hash := r.ContentOf(st, st.Payload, r.Facts.IsCompactStep(st, n, &t.Record))
		if out[hash] != nil || isKnown(hash) {
			continue
		}
		rec := node.SkyhookRecord{Packages: map[string]*node.PackageRecord{st.Key: {Run: "dry-run", Generation: 1, Interrupt: "dry-run"}}}
		rec.Unmounted = t.Record.Unmounted
		out[hash] = r.taskPod([]*plan.Step{st}, &rec, n)
	}
	return out
}
