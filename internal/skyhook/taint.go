// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// passing are taints that Kubernetes itself adds and removes: a rebooting node has them for a while, and they do not
// restrict which workloads may run there.
var passing = map[string]bool{
	corev1.TaintNodeUnschedulable:      true,
	corev1.TaintNodeNotReady:           true,
	corev1.TaintNodeUnreachable:        true,
	corev1.TaintNodeMemoryPressure:     true,
	corev1.TaintNodeDiskPressure:       true,
	corev1.TaintNodePIDPressure:        true,
	corev1.TaintNodeNetworkUnavailable: true,
	corev1.TaintNodeOutOfService:       true,
}

// firstUntoleratedTaint returns the first taint that excludes this Skyhook from a node; nil for none. PreferNoSchedule
// excludes nothing. The runtime-required taint is tolerated only by Skyhooks that remove it.
func firstUntoleratedTaint(f *plan.Facts, n *node.Node) *corev1.Taint {
	for i := range n.Taints {
		t := &n.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || passing[t.Key] || toleratesTaint(f, t) {
			continue
		}
		return t
	}
	return nil
}

func toleratesTaint(f *plan.Facts, t *corev1.Taint) bool {
	s, required := f.Skyhook, f.Config.RuntimeTaint
	if s.Spec.RuntimeRequired && t.Key == required.Key && t.Value == required.Value && t.Effect == required.Effect {
		return true
	}
	for i := range s.Spec.AdditionalTolerations {
		if s.Spec.AdditionalTolerations[i].ToleratesTaint(logr.Discard(), t, true) {
			return true
		}
	}
	return false
}
