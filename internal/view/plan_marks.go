// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// NodeMark is what other programs are shown on a node.
type NodeMark struct {
	Kind string `json:"kind"` // condition, label, annotation or taint
	Name string `json:"name"`
	When string `json:"when"`
}

// The times at which a node has a mark.
const (
	whileHeld    = "while the node is held"
	whilePlanned = "until its turn comes"
)

// listMarks lists the marks that visits of a rollout put on nodes; none if no visit holds one.
func (v *Cluster) listMarks(r *rollout.Rollout) []NodeMark {
	holds := slices.ContainsFunc(r.Targets, func(t *rollout.Target) bool {
		return canStart(t) && t.NeedsDrain()
	})
	options := v.marksOf(r)
	if !holds || len(options.Marks)+len(options.Labels) == 0 {
		return nil
	}
	var out []NodeMark
	if options.Has(v1alpha1.MarkPreferNoSchedule) {
		out = append(out, NodeMark{"taint", node.MaintenancePlanned.ToString(), whilePlanned})
	}
	if options.Has(v1alpha1.MarkConditions) {
		out = append(out, NodeMark{"condition", string(corev1.NodeMaintenancePlanned), whilePlanned + ", and until it is drained"})
		for _, c := range []corev1.NodeConditionType{corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress} {
			out = append(out, NodeMark{"condition", string(c), whileHeld})
		}
	}
	marks := node.NewMarks(options, node.Description{})
	for _, kind := range []struct {
		name string
		of   map[string]string
	}{{"label", marks.Labels}, {"label", marks.Set}, {"annotation", marks.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(kind.of)) {
			out = append(out, NodeMark{kind.name, key, whileHeld})
		}
	}
	return out
}

// marksOf returns the marks that a Skyhook or NodeOp and its policy ask for.
func (v *Cluster) marksOf(r *rollout.Rollout) v1alpha1.NodeMarks {
	if hook := v.SkyhookOf(r); hook != nil {
		return v.Compiled.Skyhook(hook).Marks()
	}
	for _, op := range v.Objects.NodeOps {
		if compiled := v.Compiled.NodeOp(op); compiled != nil && compiled.Rollout.Ref == r.Ref {
			return compiled.Operation.Marks
		}
	}
	return v1alpha1.NodeMarks{}
}
