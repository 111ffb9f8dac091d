// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
)

// NodeMarks show other programs that a node is held for maintenance. They are put on the node in the same patch as the cordon,
// and removed with the last one. What is changed meanwhile belongs to somebody else and stays as it is, and so does what marks find there.
type NodeMarks struct {
	// marks are what is put on the node. Conditions are the lifecycle conditions of Kubernetes: MaintenancePlanned,
	// DrainInProgress, Drained and MaintenanceInProgress. ExcludeFromLoadBalancers is the label
	// node.kubernetes.io/exclude-from-external-load-balancers, so that load balancers send nothing to the node. DisableScaleDown is
	// the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled and DoNotDisrupt karpenter.sh/do-not-disrupt, so that
	// neither autoscaler removes the node. Description is the annotation skyhook.nvidia.com/maintenance, which says who holds the
	// node, why, since when, and when that is expected to end. PreferNoSchedule puts the taint
	// skyhook.nvidia.com/maintenance-planned:PreferNoSchedule on nodes whose turn is still to come, so that evicted pods go to other
	// nodes if there are any; it costs one more patch of each node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=6
	Marks []NodeMark `json:"marks,omitempty"`

	// labels are set on the node whatever value they have there, at most 20, such as nvidia.com/gpu.deploy.driver: paused. DaemonSets
	// that select nodes by them take their pods away: the drain waits until those are gone. When all work is done and a proof is
	// waited for, otherwise when the node is given back, the labels get their values from before.
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	Labels map[string]LabelValue `json:"labels,omitempty"`
}

// NodeMark is one thing that is shown on a held node.
// +kubebuilder:validation:Enum=Conditions;ExcludeFromLoadBalancers;DisableScaleDown;DoNotDisrupt;Description;PreferNoSchedule
type NodeMark string

// The marks.
const (
	MarkConditions               NodeMark = "Conditions"
	MarkExcludeFromLoadBalancers NodeMark = "ExcludeFromLoadBalancers"
	MarkDisableScaleDown         NodeMark = "DisableScaleDown"
	MarkDoNotDisrupt             NodeMark = "DoNotDisrupt"
	MarkDescription              NodeMark = "Description"
	MarkPreferNoSchedule         NodeMark = "PreferNoSchedule"
)

// Has reports whether a mark is asked for.
func (m NodeMarks) Has(mark NodeMark) bool { return slices.Contains(m.Marks, mark) }

// StringLabels are the labels, with their values as strings.
func (m NodeMarks) StringLabels() map[string]string {
	out := make(map[string]string, len(m.Labels))
	for key, value := range m.Labels {
		out[key] = string(value)
	}
	return out
}

// Union is what either of two sets of marks asks for; of two values for a label, the first counts. Both may be nil.
func (m *NodeMarks) Union(other *NodeMarks) NodeMarks {
	out := NodeMarks{Labels: map[string]LabelValue{}}
	for _, one := range []*NodeMarks{other, m} {
		if one != nil {
			out.Marks = append(out.Marks, one.Marks...)
			maps.Copy(out.Labels, one.Labels)
		}
	}
	return out
}
