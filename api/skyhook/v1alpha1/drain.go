// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DrainPodOptions say which pods leave a node that is drained, in which order, and how long protected ones are waited for. Skyhooks,
// NodeOps and NodeOpUpgrades have them.
// +kubebuilder:validation:XValidation:rule="has(self.waitTimeout) && !self.waitTimeout.matches('^(0+([.]0+)?(ns|us|µs|ms|s|m|h))+$') || !has(self.onWaitTimeout) || self.onWaitTimeout == 'Wait'",fieldPath=".waitTimeout",message="waitTimeout is missing: onWaitTimeout Skip and Force need it"
type DrainPodOptions struct {
	// wait says when protected pods are waited for: those of podNonInterruptLabels, and those with the annotation
	// skyhook.nvidia.com/do-not-interrupt: "true". AfterCordon cordons the node first, so that no further ones arrive.
	// BeforeCordon leaves the node schedulable and lets other nodes go first until they have ended there. Absent means
	// AfterCordon, with profile Recommended BeforeCordon.
	// +optional
	Wait DrainWaitMode `json:"wait,omitempty"`

	// waitTimeout is how long protected pods are waited for before onWaitTimeout applies, at least 1s, such as 2h. Absent or
	// 0s means no limit.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && (duration(self) >= duration('1s') || duration(self) == duration('0s'))",message="waitTimeout is not a duration of at least 1s: use a number and a unit, such as 2h, or 0s for no limit"
	WaitTimeout *metav1.Duration `json:"waitTimeout,omitempty"`

	// onWaitTimeout is what happens after waitTimeout: Wait keeps waiting, Skip goes on with other nodes, Force evicts the
	// protected pods like all others. After Skip a Skyhook retries the node when it changes, and a NodeOp has failed on it. Absent
	// means Wait. Skip and Force require waitTimeout.
	// +optional
	OnWaitTimeout DrainTimeout `json:"onWaitTimeout,omitempty"`

	// honorDoNotDisrupt protects pods with the annotation karpenter.sh/do-not-disrupt: "true" too. Absent means false.
	// +optional
	HonorDoNotDisrupt *bool `json:"honorDoNotDisrupt,omitempty"`

	// podSelector selects the pods that have to leave the node. All others stay and do not delay the drain, except protected
	// ones. An expression with NotIn or DoesNotExist lets some pods stay. Absent or empty means all pods.
	// +optional
	PodSelector *LabelSelector `json:"podSelector,omitempty"`

	// order says which pods leave first. Together evicts all at the same time. ByPriority evicts those of the lowest priority first,
	// and those of the next one when they are gone. Absent means Together, with profile Recommended ByPriority.
	// +optional
	Order DrainOrder `json:"order,omitempty"`
}

// DrainWaitMode says when protected pods are waited for.
// +kubebuilder:validation:Enum=BeforeCordon;AfterCordon
type DrainWaitMode string

// The choices when protected pods are waited for.
const (
	WaitBeforeCordon DrainWaitMode = "BeforeCordon"
	WaitAfterCordon  DrainWaitMode = "AfterCordon"
)

// DrainOrder says which pods leave first.
// +kubebuilder:validation:Enum=Together;ByPriority
type DrainOrder string

// The orders of a drain.
const (
	DrainTogether   DrainOrder = "Together"
	DrainByPriority DrainOrder = "ByPriority"
)

// DrainProgress is how far the drain of a node is.
type DrainProgress struct {
	// podsLeft is the number of pods that have not left the node yet.
	// +required
	PodsLeft int32 `json:"podsLeft"`

	// podsTotal is the number of pods that had to leave when the drain began.
	// +required
	PodsTotal int32 `json:"podsTotal"`

	// since is when the drain began to wait for them, as far as the present operator knows.
	// +optional
	Since metav1.Time `json:"since,omitzero"`

	// slowest are the pods that are expected to leave last, at most 3.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=3
	Slowest []DrainPod `json:"slowest,omitempty"`
}

// DrainPod is a pod that has not left its node.
type DrainPod struct {
	// pod is its namespace and name, such as web/frontend-0.
	// +required
	// +kubebuilder:validation:MaxLength=320
	Pod string `json:"pod"`

	// reason is why it has not left, such as PodDisruptionBudget.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// message says the same for people, and names the disruption budget or the finalizer.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// expectedEnd is when it should be gone: the end of its grace period, or of its activeDeadlineSeconds. Absent when nobody knows.
	// +optional
	ExpectedEnd *metav1.Time `json:"expectedEnd,omitempty"`
}

// NodeDrain is how far the drain of one of the nodes is.
type NodeDrain struct {
	// node is the name of the node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`

	DrainProgress `json:",inline"`
}
