// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Skyhook declares packages for the nodes it selects. The operator runs their stages on the nodes within a budget, and
// reports progress in status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sky,categories=skyhook-all
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.status`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Nodes In-Progress",type=integer,JSONPath=`.status.nodesInProgress`
// +kubebuilder:printcolumn:name="Complete Nodes",type=string,JSONPath=`.status.completeNodes`
// +kubebuilder:printcolumn:name="Packages",type=string,JSONPath=`.status.packageList`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.deploymentPolicy`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 53",optionalOldSelf=true,message="metadata.name has more than 53 characters: choose a shorter name, because it becomes part of annotations on nodes"
type Skyhook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state. Without it every node is selected and nothing is installed.
	// +optional
	Spec SkyhookSpec `json:"spec,omitzero"`

	// status is the observed state. Only the operator writes it.
	// +optional
	// +kubebuilder:default={}
	Status SkyhookStatus `json:"status,omitzero"`
}

// SkyhookList is a list of Skyhooks.
// +kubebuilder:object:root=true
type SkyhookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Skyhook `json:"items"`
}

// PreflightMode says whether packages are asked what a node needs.
// +kubebuilder:validation:Enum=Ask;None
type PreflightMode string

// The modes.
const (
	PreflightAsk  PreflightMode = "Ask"
	PreflightNone PreflightMode = "None"
)

// SkyhookSpec is the desired state of the selected nodes.
// +kubebuilder:validation:XValidation:rule="!has(self.deploymentPolicy) || self.deploymentPolicy.size() == 0 || !has(self.interruptionBudget) || !(has(self.interruptionBudget.percent) && dyn(self.interruptionBudget.percent) != null || has(self.interruptionBudget.count) && dyn(self.interruptionBudget.count) != null)",fieldPath=".interruptionBudget",message="interruptionBudget and deploymentPolicy exclude each other: remove interruptionBudget, because the policy brings its own budget"
type SkyhookSpec struct {
	// profile says which defaults apply where this Skyhook leaves a field out: Recommended, which limits, proves and reports, or
	// Compatible, those of earlier operators. Absent means the operator's, and Compatible for one that existed before.
	// +optional
	Profile Profile `json:"profile,omitempty"`

	// serial runs one package at a time on each node. Default false: packages that do not depend on each other run in
	// parallel.
	// +optional
	// +kubebuilder:default=false
	Serial bool `json:"serial,omitempty"`

	// shareReboots lets a reboot that this Skyhook owes on a node, and those that other Skyhooks and NodeOps with shareReboots
	// owe there, become one. Each of them does what comes before its reboot, one after the other; then the node reboots once.
	// Default false: each reboots the node for itself. Default true with profile Recommended.
	// +optional
	ShareReboots *bool `json:"shareReboots,omitempty"`

	// preflight says whether each package that has a preflight is asked before a node's turn how much of its work the node needs:
	// Ask, or None, with which all stages and interrupts run. A node that needs nothing is neither cordoned nor drained, and the
	// weakest interrupt that suffices is used: never a stronger one than that of the package. Default None. Default Ask with
	// profile Recommended.
	// +optional
	Preflight PreflightMode `json:"preflight,omitempty"`

	// podNonInterruptLabels selects pods, in any namespace, that are never evicted: a package with an interrupt waits
	// until none of them is running or pending on the node. Default empty, which selects no pod.
	// +optional
	PodNonInterruptLabels LabelSelector `json:"podNonInterruptLabels,omitzero"`

	// nodeSelectors selects the nodes by label. Default empty, which selects every node.
	// +optional
	NodeSelectors LabelSelector `json:"nodeSelectors,omitzero"`

	// deploymentPolicy names the DeploymentPolicy that sets budgets and batches, at most 253 characters. Default empty:
	// interruptionBudget applies. The two exclude each other. A policy that does not exist blocks the Skyhook.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeploymentPolicy string `json:"deploymentPolicy,omitempty"`

	// deploymentPolicyOptions override fields of the policy for this Skyhook. Absent overrides nothing.
	// +optional
	DeploymentPolicyOptions *DeploymentPolicyOptions `json:"deploymentPolicyOptions,omitempty"`

	// interruptionBudget limits how many nodes are in progress at the same time when no deploymentPolicy is named.
	// Default empty, which is 100 percent, with profile Recommended 10 percent of the nodes, in one zone at a time.
	// +optional
	InterruptionBudget InterruptionBudget `json:"interruptionBudget,omitzero"`

	// packages are installed on the nodes, at most 100, by name. A name has 2 to 43 lower-case letters, digits and '-',
	// and begins and ends with a letter. Name, '-' and version have at most 63 characters together.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.matches('^[a-z][-a-z0-9]{0,41}[a-z]$'))",messageExpression="'packages has names that are not allowed %s: use 2 to 43 lower-case letters, digits and -, beginning and ending with a letter'.format([self.filter(p, !(p.matches('^[a-z][-a-z0-9]{0,41}[a-z]$')))])",message="packages has names that are not allowed: use 2 to 43 lower-case letters, digits and -, beginning and ending with a letter"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(self[p].name) || self[p].name in ['', p])",messageExpression="'packages has keys that differ from the name given below them %s: remove name, the key is the name'.format([self.filter(p, !(!has(self[p].name) || self[p].name in ['', p]))])",message="packages has keys that differ from the name given below them: remove name, the key is the name"
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.size() + self[p].version.size() < 63)",messageExpression="'packages has names that are too long together with their version %s: name, - and version may have 63 characters, because they become a label of pods'.format([self.filter(p, !(p.size() + self[p].version.size() < 63))])",message="packages has names that are too long together with their version: name, - and version may have 63 characters, because they become a label of pods"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(self[p].dependsOn) || !(p in self[p].dependsOn))",messageExpression="'packages has packages that depend on themselves %s: remove that entry from their dependsOn'.format([self.filter(p, !(!has(self[p].dependsOn) || !(p in self[p].dependsOn)))])",message="packages has packages that depend on themselves: remove that entry from their dependsOn"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(self[p].dependsOn) || self[p].dependsOn.all(d, d in self))",messageExpression="self.filter(p, has(self[p].dependsOn)).map(p, self[p].dependsOn.exists(d, !(d in self)), '%s depends on %s, which is not in packages: add it, or remove the entry from dependsOn'.format([p, self[p].dependsOn.filter(d, !(d in self))[0]]))[0]",message="packages has a dependsOn entry without a package: add it, or remove the entry from dependsOn"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(self[p].dependsOn) || self[p].dependsOn.all(d, !(d in self) || self[p].dependsOn[d] == self[d].version))",messageExpression="self.filter(p, has(self[p].dependsOn)).map(p, self[p].dependsOn.exists(d, d in self && self[p].dependsOn[d] != self[d].version), self[p].dependsOn.filter(d, d in self && self[p].dependsOn[d] != self[d].version).map(d, '%s depends on version %s of %s, but packages has %s: repeat the version exactly as it is there'.format([p, self[p].dependsOn[d], d, self[d].version]))[0])[0]",message="packages has a dependsOn entry with a version that is not the declared one: repeat the version exactly as it is there"
	Packages map[string]Package `json:"packages,omitempty"`

	// additionalTolerations are added to every pod of this Skyhook, at most 64. A node with a taint that neither they
	// nor the operator's own tolerations tolerate is blocked.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, (!has(t.operator) || t.operator in ['', 'Equal', 'Exists', 'Lt', 'Gt']) && (!has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']))",message="additionalTolerations has an operator or effect that does not exist: operator is Exists or Equal, effect is NoSchedule, PreferNoSchedule or NoExecute"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.operator) && t.operator == 'Exists' ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')",message="additionalTolerations has an entry that tolerates nothing: operator Exists takes no value, and every other operator needs a key"
	// +kubebuilder:validation:XValidation:rule="self.all(t, [?t.?key, ?t.?value].all(v, !v.contains(' ')))",message="additionalTolerations has a key or value with a blank: use the key and value of the taint"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",message="additionalTolerations has tolerationSeconds without the effect that it belongs to: set effect to NoExecute, or remove tolerationSeconds"
	AdditionalTolerations []corev1.Toleration `json:"additionalTolerations,omitempty"`

	// runtimeRequired keeps the runtime-required taint on each selected node until this Skyhook is complete there.
	// Default false.
	// +optional
	// +kubebuilder:default=false
	RuntimeRequired bool `json:"runtimeRequired,omitempty"`

	// autoTaintNewNodes adds the runtime-required taint to nodes that the operator sees for the first time. Default
	// false. It takes effect only with runtimeRequired.
	// +optional
	// +kubebuilder:default=false
	AutoTaintNewNodes bool `json:"autoTaintNewNodes,omitempty"`

	// runtimeRequiredCordonAfter cordons each node in the moment its runtime-required taint is removed, and marks it with the
	// annotation skyhook.nvidia.com/runtimeRequiredCordon. The node stays cordoned, also when this Skyhook is deleted, until
	// somebody makes it schedulable, for example an external validator. Default false. It takes effect only with
	// runtimeRequired.
	// +optional
	// +kubebuilder:default=false
	RuntimeRequiredCordonAfter bool `json:"runtimeRequiredCordonAfter,omitempty"`

	// priority orders Skyhooks: on a node the lower number goes first, and equal numbers are ordered by name. Default
	// 200, at least 1.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=1
	Priority int64 `json:"priority,omitempty"`

	// sequencing says what later Skyhooks wait for: node (the default) until this one is complete on that node, all
	// until it is complete on all of its nodes.
	// +optional
	// +kubebuilder:default=node
	Sequencing Sequencing `json:"sequencing,omitempty"`

	// revisionHistoryLimit is how many earlier revisions, which are sets of packages, are kept as ControllerRevisions for kubectl
	// skyhook history, diff and undo. A revision that nodes still have is kept beyond that. Absent means 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// rollback lets a node go back to the packages that were complete there before, when those of the spec fail on it.
	// Absent means that it stays as it is, with profile Recommended that it goes back.
	// +optional
	Rollback *Rollback `json:"rollback,omitempty"`

	// proof is what must be true of a node before it is given back. It is asked for together with that of the
	// deploymentPolicy. Absent means nothing, with profile Recommended asBefore: true.
	// +optional
	Proof *Proof `json:"proof,omitempty"`

	// drift has complete nodes checked again and again: the checks of their packages, and the files that these delivered. Absent
	// means that they are not, with profile Recommended mode: Report.
	// +optional
	Drift *Drift `json:"drift,omitempty"`

	// drainConfig configures the drain before an interrupt. Absent means the defaults: evict, and wait without a limit.
	// +optional
	DrainConfig *DrainConfig `json:"drainConfig,omitempty"`

	// nodeMarks show other programs that a node is held for maintenance. They are added to those of the deploymentPolicy. Absent
	// means none, with profile Recommended those for load balancers and autoscalers.
	// +optional
	NodeMarks *NodeMarks `json:"nodeMarks,omitempty"`
}

// Sequencing says what later Skyhooks wait for.
// +kubebuilder:validation:Enum=all;node
type Sequencing string

// The sequencings.
const (
	SequencingNode Sequencing = "node"
	SequencingAll  Sequencing = "all"
)

// DeploymentPolicyOptions override fields of the DeploymentPolicy for one Skyhook.
type DeploymentPolicyOptions struct {
	// resetBatchStateOnCompletion overrides the field of the same name in the policy. Default true once
	// deploymentPolicyOptions is given.
	// +optional
	// +kubebuilder:default=true
	ResetBatchStateOnCompletion *bool `json:"resetBatchStateOnCompletion,omitempty"`
}

// InterruptionBudget limits how many nodes are in progress at the same time, by percent or by count.
// +kubebuilder:validation:XValidation:rule="!(has(self.percent) && dyn(self.percent) != null && has(self.count) && dyn(self.count) != null)",message="interruptionBudget has both percent and count: keep one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.countUnavailable) || !self.countUnavailable || has(self.percent) && dyn(self.percent) != null || has(self.count) && dyn(self.count) != null",fieldPath=".countUnavailable",message="interruptionBudget has countUnavailable without a budget: set percent or count too"
type InterruptionBudget struct {
	// percent is a share of the selected nodes, 0 to 100, rounded down but at least one node. 0 starts no node. It
	// excludes count.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`

	// count is a number of nodes, at least 0. 0 starts no node. It excludes percent.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	Count *int64 `json:"count,omitempty"`

	// countUnavailable counts nodes against the budget that are not ready, or that somebody else cordoned. Default false: only
	// nodes in progress count. Default true with profile Recommended. It needs percent or count.
	// +optional
	CountUnavailable *bool `json:"countUnavailable,omitempty"`
}

// DrainConfig configures how a node is drained before an interrupt. DaemonSet pods, mirror pods, finished pods, pods in
// kube-system and pods that tolerate an unschedulable node are never evicted.
// +kubebuilder:validation:XValidation:rule="has(self.timeout) && !self.timeout.matches('^(0+([.]0+)?(ns|us|µs|ms|s|m|h))+$') || !has(self.onTimeout) || self.onTimeout == 'Wait'",fieldPath=".timeout",message="drainConfig.timeout is missing: onTimeout Skip and Force need it"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerDelay) || !has(self.timeout) || !self.loadBalancerDelay.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') || !self.timeout.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') || duration(self.timeout) == duration('0s') || duration(self.loadBalancerDelay) < duration(self.timeout)",fieldPath=".loadBalancerDelay",message="drainConfig.loadBalancerDelay is not shorter than timeout, which it is a part of: shorten it, or raise timeout"
type DrainConfig struct {
	// timeout is how long a drain may take before onTimeout applies, at least 1s, such as 30m. Absent or 0s means no limit.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && (duration(self) >= duration('1s') || duration(self) == duration('0s'))",message="drainConfig.timeout is not a duration of at least 1s: use a number and a unit, such as 30m, or 0s for no limit"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout is what happens after timeout: Wait (the default) keeps waiting, Skip releases the node and goes on
	// with others, Force deletes the remaining pods. Skip and Force require timeout.
	// +optional
	// +kubebuilder:default=Wait
	OnTimeout DrainTimeout `json:"onTimeout,omitempty"`

	// loadBalancerDelay is how long a node is held before its first pod is evicted, up to 1h, such as 30s, so that load balancers stop
	// sending requests to it. They do so with the mark ExcludeFromLoadBalancers. It is a part of timeout. Absent means 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('1h')",message="drainConfig.loadBalancerDelay is not a duration of 0s to 1h: use a number and a unit, such as 30s"
	LoadBalancerDelay *metav1.Duration `json:"loadBalancerDelay,omitempty"`

	DrainPodOptions `json:",inline"`

	// gracePeriod overrides the grace period of the evicted pods, 0s to 24h, in full seconds. Absent means that of each
	// pod.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('24h')",message="drainConfig.gracePeriod is not a duration of 0s to 24h: use a number and a unit, such as 2m"
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`

	// disableEviction deletes pods instead of evicting them, without regard to PodDisruptionBudgets. Default false.
	// +optional
	// +kubebuilder:default=false
	DisableEviction *bool `json:"disableEviction,omitempty"`

	// ignoreDaemonSets leaves DaemonSet pods on the node. Default true. With false the drain waits until their DaemonSets
	// remove them.
	// +optional
	// +kubebuilder:default=true
	IgnoreDaemonSets *bool `json:"ignoreDaemonSets,omitempty"`

	// deleteEmptyDirData allows eviction of pods with an emptyDir volume, whose content is lost. Default true. With
	// false the drain waits for such pods.
	// +optional
	// +kubebuilder:default=true
	DeleteEmptyDirData *bool `json:"deleteEmptyDirData,omitempty"`

	// force allows eviction of pods without a controller. Default true. With false the drain waits for such pods.
	// +optional
	// +kubebuilder:default=true
	Force *bool `json:"force,omitempty"`
}

// DrainTimeout is what happens when a drain takes too long.
// +kubebuilder:validation:Enum=Wait;Skip;Force
type DrainTimeout string

// The choices when a drain takes too long.
const (
	DrainWait  DrainTimeout = "Wait"
	DrainSkip  DrainTimeout = "Skip"
	DrainForce DrainTimeout = "Force"
)
