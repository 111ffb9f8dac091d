// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DeploymentPolicy limits how many nodes are in progress at the same time and sets how batches grow, by compartment.
// Skyhooks and NodeOps refer to it by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=dp,categories=skyhook-all
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.scope`
// +kubebuilder:printcolumn:name="Used By",type=integer,JSONPath=`.status.users`
// +kubebuilder:printcolumn:name="Nodes In-Progress",type=integer,JSONPath=`.status.nodesInProgress`
// +kubebuilder:printcolumn:name="Complete Nodes",type=string,JSONPath=`.status.completeNodes`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DeploymentPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec describes the policy.
	// +required
	Spec DeploymentPolicySpec `json:"spec"`

	// status is the observed use of the policy and the progress of its users. Only the operator writes it.
	// +optional
	// +kubebuilder:default={}
	Status DeploymentPolicyStatus `json:"status,omitzero"`
}

// DeploymentPolicyList is a list of DeploymentPolicies.
// +kubebuilder:object:root=true
type DeploymentPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []DeploymentPolicy `json:"items"`
}

// DeploymentPolicySpec describes the policy.
// +kubebuilder:validation:XValidation:rule="!has(self.default.after) || self.default.after.all(a, has(self.compartments) && self.compartments.exists(c, c.name == a))",fieldPath=".default.after",message="after of default names a compartment that does not exist: correct the name, or add the compartment"
type DeploymentPolicySpec struct {
	// profile says which defaults apply where this policy leaves a field out: Recommended, which limits, proves and reports, or
	// Compatible, those of earlier operators. Absent means the operator's, and Compatible for one that existed before.
	// +optional
	Profile Profile `json:"profile,omitempty"`

	// scope says who shares the budgets. With Skyhook (the default) each Skyhook and NodeOp has its own. With Policy
	// all users of this policy share one, and nodes that are not ready or were cordoned by others count against it.
	// +optional
	// +kubebuilder:default=Skyhook
	Scope Scope `json:"scope,omitempty"`

	// default applies to the nodes that no compartment selects.
	// +required
	Default PolicyDefault `json:"default"`

	// compartments split the nodes into groups with their own budget and strategy, at most 100. A node that several
	// select belongs to the safest one: by strategy (fixed, linear, exponential, none), then by smaller budget, then by
	// name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(c, !has(c.after) || c.after.all(a, a == '__default__' || self.exists(b, b.name == a)))",messageExpression="'compartments has %s with a name in after that no compartment has: correct the name, or add the compartment'.format([self.filter(c, has(c.after) && c.after.exists(a, a != '__default__' && !self.exists(b, b.name == a))).map(c, c.name)])",message="compartments has one with a name in after that no compartment has: correct the name, or add the compartment"
	// +kubebuilder:validation:XValidation:rule="self.all(a, has(a.canary) || self.all(b, a.name == b.name || has(b.canary) || a.selector != b.selector))",messageExpression="'compartments has several with the same selector %s: change the selectors, or keep one of them'.format([self.filter(a, !has(a.canary) && self.exists(b, a.name != b.name && !has(b.canary) && a.selector == b.selector)).map(a, a.name)])",message="compartments has several with the same selector: change the selectors, or keep one of them"
	Compartments []Compartment `json:"compartments,omitempty"`

	// resetBatchStateOnCompletion starts again with the first batch when a Skyhook is complete or its packages change.
	// Default true.
	// +optional
	// +kubebuilder:default=true
	ResetBatchStateOnCompletion *bool `json:"resetBatchStateOnCompletion,omitempty"`

	// paused starts no further node. Nodes in progress finish.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// soak is how long a finished node must stay ready before it counts, up to 168h, such as 10m. Until then it counts
	// against the budget, and its batch stays open. Absent means no soak time.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('168h')",message="soak is not a duration of at most 168h: use a number and a unit, such as 10m, or leave it out"
	Soak *metav1.Duration `json:"soak,omitempty"`

	// maxUnavailablePerTopology limits how many nodes of one rack or zone are in progress at the same time, in each
	// compartment. Absent means no such limit.
	// +optional
	MaxUnavailablePerTopology *TopologyLimit `json:"maxUnavailablePerTopology,omitempty"`

	// windows are the times when nodes may be started. Absent means always.
	// +optional
	Windows *Windows `json:"windows,omitempty"`

	// health gates must pass before further nodes are started. Absent means none.
	// +optional
	Health *HealthGates `json:"health,omitempty"`

	// proof is what must be true of a node before it is given back. Absent means nothing, with profile Recommended asBefore: true.
	// +optional
	Proof *Proof `json:"proof,omitempty"`

	// avoid says on which nodes nothing begins because somebody else cares for them. They count as unavailable. What has begun there is
	// finished. Absent means none, and with profile Recommended those of docs/profiles.md; {} means none.
	// +optional
	Avoid *Avoid `json:"avoid,omitempty"`

	// maxPrivileges is the most that pods of users of this policy may do: Files (write the directories that a package declares), Sysctl,
	// Services, Reboot or Full; each includes those before. Nothing begins on a node with a package that needs more, or does not
	// declare what it needs. Absent means Full.
	// +optional
	MaxPrivileges PrivilegeClass `json:"maxPrivileges,omitempty"`

	// handover asks other programs for a node that is cordoned, before the first pod leaves it: step by step, at most 4. Absent means
	// that nobody is asked.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	Handover []HandoverStep `json:"handover,omitempty"`

	// nodeMarks show other programs that a node is held for maintenance by a user of this policy. Those of the user are added.
	// Absent means none, with profile Recommended those for load balancers and autoscalers.
	// +optional
	NodeMarks *NodeMarks `json:"nodeMarks,omitempty"`
}

// Avoid says which nodes are in the care of somebody else: those with one of the taints or labels, or of which the expression is true.
type Avoid struct {
	// taints are keys of taints, at most 20. node.kubernetes.io/unschedulable means that somebody else cordoned the node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=316
	Taints []string `json:"taints,omitempty"`

	// labels select nodes by their labels, as kubectl -l does, such as example.com/state=broken, at most 20.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Labels []string `json:"labels,omitempty"`

	// cel is an expression about the variable node, which has metadata.name and labels, spec.unschedulable and taints, and
	// status.conditions.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	CEL string `json:"cel,omitempty"`
}

// PrivilegeClass says how much pods may do on a host.
// +kubebuilder:validation:Enum=Files;Sysctl;Services;Reboot;Full
type PrivilegeClass string

// PrivilegesFull is the class of pods that may do everything, as those of NodeOps do.
const PrivilegesFull PrivilegeClass = "Full"

// Scope says who shares the budgets of a policy.
// +kubebuilder:validation:Enum=Skyhook;Policy
type Scope string

// The scopes.
const (
	ScopeSkyhook Scope = "Skyhook"
	ScopePolicy  Scope = "Policy"
)

// PolicyDefault is the budget and strategy for nodes that no compartment selects.
// +kubebuilder:validation:XValidation:rule="!has(self.after) || !('__default__' in self.after)",message="after of default names __default__, which is default itself: remove it"
type PolicyDefault struct {
	// budget limits how many nodes are in progress at the same time.
	// +required
	Budget Budget `json:"budget"`

	// strategy says how batches grow.
	// +required
	Strategy Strategy `json:"strategy"`

	Wave `json:",inline"`
}

// Compartment is a group of nodes with its own budget and strategy.
// +kubebuilder:validation:XValidation:rule="!has(self.after) || !(self.name in self.after)",message="after names the compartment itself: remove it"
type Compartment struct {
	// name is the name of the compartment, unique in the policy, 1 to 253 characters, not __default__.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != '__default__'",message="compartments has the name __default__, which stands for the nodes that no compartment selects: choose another name"
	Name string `json:"name"`

	// selector selects the nodes by label, among those of the Skyhook.
	// +required
	Selector LabelSelector `json:"selector"`

	// canary lets the operator choose some of the selected nodes. A node that it chooses belongs to no other compartment.
	// Absent means that the compartment has every node that is selected.
	// +optional
	Canary *Canary `json:"canary,omitempty"`

	// budget limits how many nodes of the compartment are in progress at the same time.
	// +required
	Budget Budget `json:"budget"`

	// strategy says how batches grow. Absent means batches as large as the budget, whatever fails; the strategy of
	// default does not apply here.
	// +optional
	Strategy *Strategy `json:"strategy,omitempty"`

	Wave `json:",inline"`

	// soak is how long a finished node of the compartment must stay ready before it counts, up to 168h, such as 1h; 0s for no
	// soak time. Absent means that of the policy.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('168h')",message="soak is not a duration of at most 168h: use a number and a unit, such as 10m, or leave it out"
	Soak *metav1.Duration `json:"soak,omitempty"`
}

// Budget limits how many nodes are in progress at the same time, by percent or by count.
// +kubebuilder:validation:XValidation:rule="has(self.percent) != has(self.count)",message="budget needs exactly one of percent and count: keep one of them"
type Budget struct {
	// percent is a share of the nodes, 1 to 100, rounded down but at least one node. It excludes count.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// count is a number of nodes, at least 1. It excludes percent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int64 `json:"count,omitempty"`

	// countUnavailable counts nodes against the budget that are not ready, or that somebody else cordoned. Default false: only
	// nodes in progress count. Default true with profile Recommended. With scope Policy they count always.
	// +optional
	CountUnavailable *bool `json:"countUnavailable,omitempty"`
}

// Strategy says how the next batch follows from the last: exactly one of fixed, linear and exponential.
// +kubebuilder:validation:XValidation:rule="(has(self.fixed) ? 1 : 0) + (has(self.linear) ? 1 : 0) + (has(self.exponential) ? 1 : 0) == 1",message="strategy needs exactly one of fixed, linear and exponential: keep one of them"
type Strategy struct {
	// fixed keeps every batch as large as the first.
	// +optional
	Fixed *FixedStrategy `json:"fixed,omitempty"`

	// linear makes the batch larger by delta after a passed batch, and smaller by delta after a failed one.
	// +optional
	Linear *LinearStrategy `json:"linear,omitempty"`

	// exponential multiplies the batch by growthFactor after a passed batch, and divides it after a failed one.
	// +optional
	Exponential *ExponentialStrategy `json:"exponential,omitempty"`
}

// FixedStrategy keeps every batch as large as the first.
type FixedStrategy struct {
	BatchStrategy `json:",inline"`
}

// LinearStrategy changes the batch by a fixed number of nodes.
type LinearStrategy struct {
	BatchStrategy `json:",inline"`

	// delta is the number of nodes the batch grows or shrinks by, at least 1. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Delta *int64 `json:"delta,omitempty"`
}

// ExponentialStrategy changes the batch by a factor.
type ExponentialStrategy struct {
	BatchStrategy `json:",inline"`

	// growthFactor is what the batch is multiplied or divided by, at least 2. Default 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=2
	GrowthFactor *int64 `json:"growthFactor,omitempty"`
}

// BatchStrategy holds the fields of all strategies.
type BatchStrategy struct {
	// initialBatch is the size of the first batch, at least 1. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	InitialBatch *int64 `json:"initialBatch,omitempty"`

	// batchThreshold is the percentage of a batch that must succeed for it to pass, 1 to 100. Default 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	BatchThreshold *int32 `json:"batchThreshold,omitempty"`

	// failureThreshold is the number of failed batches in a row after which the compartment stops, at least 1. Absent
	// means that it never stops, with profile Recommended 1 in the first batch. It has no effect once safetyLimit is reached.
	// +optional
	// +kubebuilder:validation:Minimum=1
	FailureThreshold *int64 `json:"failureThreshold,omitempty"`

	// safetyLimit is the percentage of finished nodes from which on failures neither shrink batches nor stop the
	// compartment, 1 to 100. Default 50.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SafetyLimit *int32 `json:"safetyLimit,omitempty"`
}

// DeploymentPolicyStatus is the observed state of a policy.
type DeploymentPolicyStatus struct {
	// observedGeneration is the generation of the policy that this status describes. It is 0 until the operator has written a
	// status.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	Outcome `json:",inline"`

	// conditions say whether the policy is accepted and whether its rollouts make progress, at most 32.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// users is the number of Skyhooks and NodeOps that name this policy. It cannot be deleted while there are any.
	// +optional
	// +kubebuilder:default=0
	Users int32 `json:"users,omitempty"`

	// usedBy names users, such as Skyhook/demo or NodeOp/default/check, sorted, at most 200.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=400
	UsedBy []string `json:"usedBy,omitempty"`

	// nodesTotal is the number of nodes that users select, each counted once.
	// +optional
	// +kubebuilder:default=0
	NodesTotal int32 `json:"nodesTotal,omitempty"`

	// nodesInProgress is the number of those nodes that are in progress.
	// +optional
	// +kubebuilder:default=0
	NodesInProgress int32 `json:"nodesInProgress,omitempty"`

	// completeNodes is the number of complete and of selected nodes, such as 3/5.
	// +optional
	// +kubebuilder:default="0/0"
	// +kubebuilder:validation:MaxLength=32
	CompleteNodes string `json:"completeNodes,omitempty"`

	// compartmentStatuses is the progress of each compartment when scope is Policy, by name; __default__ is the rest.
	// The operator computes the next batch from it.
	// +optional
	// +kubebuilder:validation:MaxProperties=101
	CompartmentStatuses map[string]CompartmentStatus `json:"compartmentStatuses,omitempty"`

	// profile is the profile that applies, and why. Unlike the rest of the status, the operator reads it back.
	// +optional
	Profile *ProfileStatus `json:"profile,omitempty"`

	// internal is what the operator remembers between its passes, for a policy with scope Policy. It is no interface: its
	// fields may change with any version.
	// +optional
	Internal Memory `json:"internal,omitzero"`
}
