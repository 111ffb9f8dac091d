// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// nodeMark is what other programs are shown on a node.
type nodeMark struct {
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
func (v *view) listMarks(r *rollout.Rollout) []nodeMark {
	holds := slices.ContainsFunc(r.Targets, func(t *rollout.Target) bool {
		return canStart(t) && t.NeedsDrain()
	})
	options := v.marksOf(r)
	if !holds || options == (v1alpha1.NodeMarks{}) {
		return nil
	}
	var out []nodeMark
	if options.PreferNoSchedule {
		out = append(out, nodeMark{"taint", node.MaintenancePlanned.ToString(), whilePlanned})
	}
	if options.Conditions {
		out = append(out, nodeMark{"condition", string(corev1.NodeMaintenancePlanned), whilePlanned + ", and until it is drained"})
		for _, c := range []corev1.NodeConditionType{corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress} {
			out = append(out, nodeMark{"condition", string(c), whileHeld})
		}
	}
	marks := node.NewMarks(options, node.Description{})
	for _, kind := range []struct {
		name string
		of   map[string]string
	}{{"label", marks.Labels}, {"annotation", marks.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(kind.of)) {
			out = append(out, nodeMark{kind.name, key, whileHeld})
		}
	}
	return out
}

// marksOf returns the marks that a Skyhook or NodeOp and its policy ask for.
func (v *view) marksOf(r *rollout.Rollout) v1alpha1.NodeMarks {
	if hook := v.skyhookOf(r); hook != nil {
		return v.objects.Compiled(hook).Marks()
	}
	for _, op := range v.objects.NodeOps {
		if compiled := v.objects.CompiledNodeOp(op); compiled != nil && compiled.Rollout.Ref == r.Ref {
			return compiled.Operation.Marks
		}
	}
	return v1alpha1.NodeMarks{}
}

// formatMarks lists marks, one line for each time.
func formatMarks(marks []nodeMark) string {
	if len(marks) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n  Marks on each node:\n")
	for i := 0; i < len(marks); {
		end := i
		var names []string
		for ; end < len(marks) && marks[end].Kind == marks[i].Kind && marks[end].When == marks[i].When; end++ {
			names = append(names, marks[end].Name)
		}
		fmt.Fprintf(&b, "    %s: %s %s\n", marks[i].When, marks[i].Kind, strings.Join(names, ", "))
		i = end
	}
	return b.String()
}
