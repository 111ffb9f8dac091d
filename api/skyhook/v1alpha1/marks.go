// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// NodeMarks show other programs that a node is held for maintenance. They are put on the node in the same patch as the cordon,
// and removed with the last one. What is there before, or is changed meanwhile, belongs to somebody else and stays as it is.
type NodeMarks struct {
	// conditions sets the lifecycle conditions of Kubernetes on the node: MaintenancePlanned, DrainInProgress, Drained and
	// MaintenanceInProgress. Default false.
	// +optional
	Conditions bool `json:"conditions,omitempty"`

	// excludeFromLoadBalancers sets the label node.kubernetes.io/exclude-from-external-load-balancers, so that load balancers
	// send nothing to the node. Default false.
	// +optional
	ExcludeFromLoadBalancers bool `json:"excludeFromLoadBalancers,omitempty"`

	// disableScaleDown sets the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled, so that the cluster autoscaler
	// does not remove the node. Default false.
	// +optional
	DisableScaleDown bool `json:"disableScaleDown,omitempty"`

	// doNotDisrupt sets the annotation karpenter.sh/do-not-disrupt, so that Karpenter does not remove the node. Default false.
	// +optional
	DoNotDisrupt bool `json:"doNotDisrupt,omitempty"`

	// description sets the annotation skyhook.nvidia.com/maintenance, which says who holds the node, why, since when, and when
	// that is expected to end. Default false.
	// +optional
	Description bool `json:"description,omitempty"`

	// preferNoSchedule puts the taint skyhook.nvidia.com/maintenance-planned:PreferNoSchedule on nodes whose turn is still to
	// come, so that evicted pods go to other nodes if there are any. It costs one more patch of each node. Default false.
	// +optional
	PreferNoSchedule bool `json:"preferNoSchedule,omitempty"`
}

// Union is what either of two sets of marks asks for. Both may be nil.
func (m *NodeMarks) Union(other *NodeMarks) NodeMarks {
	var a, b NodeMarks
	if m != nil {
		a = *m
	}
	if other != nil {
		b = *other
	}
	return NodeMarks{
		Conditions:               a.Conditions || b.Conditions,
		ExcludeFromLoadBalancers: a.ExcludeFromLoadBalancers || b.ExcludeFromLoadBalancers,
		DisableScaleDown:         a.DisableScaleDown || b.DisableScaleDown,
		DoNotDisrupt:             a.DoNotDisrupt || b.DoNotDisrupt,
		Description:              a.Description || b.Description,
		PreferNoSchedule:         a.PreferNoSchedule || b.PreferNoSchedule,
	}
}
