// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Proof is what must be true of a node before it is given back: after its last stage, while it is still cordoned and counts
// against the budget.
type Proof struct {
	// AsBefore asks that the node offers as much of its devices as when it was admitted, and that the pods of all DaemonSets there are
	// ready again. It is no field of the API: only a profile sets it.
	AsBefore bool `json:"-"`

	// nodeConditions are types of conditions that must be True, such as example.com/GPUHealthy, or False, as with KernelDeadlock=False,
	// at most 20. A node without the condition does not pass.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=322
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^= ]+(=True|=False)?$')",message="not a condition: write its type, or Type=False for one that must be False, such as KernelDeadlock=False"
	NodeConditions []string `json:"nodeConditions,omitempty"`

	// daemonSets are those whose pod on the node must be ready, as namespace/name, at most 20. A node that a DaemonSet does not select
	// needs no pod of it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}$')",message="not a DaemonSet: write its namespace and name, such as gpu-operator/nvidia-device-plugin"
	DaemonSets []string `json:"daemonSets,omitempty"`

	// resources are those that the node must offer again, such as nvidia.com/gpu, at most 20.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Resources []ResourceProof `json:"resources,omitempty"`

	// objects are conditions on objects of any kind, at most 10. An administrator grants the operator the right to read them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Objects []ObjectCheck `json:"objects,omitempty"`

	// timeout is how long everything may take to become true, up to 168h, such as 30m. 0s waits without a limit. Default
	// 30m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('168h')",message="timeout is not a duration of at most 168h: use a number and a unit, such as 30m, or 0s to wait without a limit"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout says what happens then. Hold (the default) keeps the node as it is and counts it as failed; it is given back
	// when everything is true after all. Release gives the node back and reports it. Rollback goes back to the packages that
	// were complete on the node before, as rollback of a Skyhook does; it is Hold where there are none, and in a
	// DeploymentPolicy.
	// +optional
	// +kubebuilder:default=Hold
	OnTimeout ProofTimeout `json:"onTimeout,omitempty"`
}

// ProofTimeout says what happens to a node that is not proven in time.
// +kubebuilder:validation:Enum=Hold;Release;Rollback
type ProofTimeout string

// The choices.
const (
	ProofHold     ProofTimeout = "Hold"
	ProofRelease  ProofTimeout = "Release"
	ProofRollback ProofTimeout = "Rollback"
)

// ResourceProof is an amount of a resource that a node must offer.
type ResourceProof struct {
	// name is the name of the resource, such as nvidia.com/gpu.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^/ ]+/[^/ ]+$`
	Name string `json:"name"`

	// atLeast is the amount, at least 1. Absent means as much as the node offered when it was admitted.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AtLeast *int64 `json:"atLeast,omitempty"`
}

// ObjectCheck is a condition on one object, or on each of several.
type ObjectCheck struct {
	ObjectSelector `json:",inline"`

	// cel is an expression that must be true. Its variables are object and, in a proof, node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	CEL string `json:"cel"`
}

// ObjectSelector names one object, or selects several.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.selector)",message="objects entry needs exactly one of name and selector: keep one of them"
type ObjectSelector struct {
	// apiVersion is the group and version of the kind, such as ceph.rook.io/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the objects, such as CephCluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace is the namespace of the objects. Absent for kinds without namespaces, and with a selector for all namespaces.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of one object. $(NODE_NAME) in it is the name of the node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// selector selects objects by their labels, as kubectl -l does, such as app=web,tier!=test. The expression must be true of each. One
	// must exist, but not in a handover.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`
}
