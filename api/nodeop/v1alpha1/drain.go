// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"

// DrainOptions configure how a node is drained. Mirror pods and finished pods are never evicted.
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerDelaySeconds) || !has(self.timeoutSeconds) || self.timeoutSeconds <= 0 || self.loadBalancerDelaySeconds < self.timeoutSeconds",fieldPath=".loadBalancerDelaySeconds",message="loadBalancerDelaySeconds is not shorter than timeoutSeconds, which it is a part of: shorten it, or raise timeoutSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.onTimeout) || has(self.timeoutSeconds) && self.timeoutSeconds > 0 || self.onTimeout == 'Wait'",fieldPath=".timeoutSeconds",message="timeoutSeconds is missing: onTimeout Skip and Force need it"
type DrainOptions struct {
	// enabled drains the node. Default false.
	// +optional
	// +kubebuilder:default=false
	Enabled *bool `json:"enabled,omitempty"`

	// force evicts pods without a controller too. Default false: they stay, and a warning event names them.
	// +optional
	// +kubebuilder:default=false
	Force *bool `json:"force,omitempty"`

	// ignoreDaemonSets leaves DaemonSet pods on the node. Default true. With false the drain of a node with such pods
	// waits, because their controller would recreate them, until onTimeout applies.
	// +optional
	// +kubebuilder:default=true
	IgnoreDaemonSets *bool `json:"ignoreDaemonSets,omitempty"`

	// deleteEmptyDirData evicts pods with an emptyDir volume, whose content is lost. Default false: the drain of a node
	// with such pods waits, until onTimeout applies.
	// +optional
	// +kubebuilder:default=false
	DeleteEmptyDirData *bool `json:"deleteEmptyDirData,omitempty"`

	// timeoutSeconds is how long the drain may take before onTimeout applies. Absent, 0 or negative means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// onTimeout is what happens after timeoutSeconds: Skip fails the node, Wait keeps waiting, Force deletes the remaining pods.
	// Absent means Skip. Skip and Force require timeoutSeconds.
	// +optional
	OnTimeout skyhookv1.DrainTimeout `json:"onTimeout,omitempty"`

	// loadBalancerDelaySeconds is how long a node is cordoned before its first pod is evicted, 0 to 3600, so that load balancers
	// stop sending requests to it. They do so with the mark ExcludeFromLoadBalancers. It is a part of timeoutSeconds. Absent
	// means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	LoadBalancerDelaySeconds *int32 `json:"loadBalancerDelaySeconds,omitempty"`

	// gracePeriodSeconds overrides the grace period of the evicted pods. Absent or negative means that of each pod.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// podNonInterruptLabels selects pods, in any namespace, that are never evicted: the operation waits until none of them is
	// running or pending on the node. Absent or empty selects no pod.
	// +optional
	PodNonInterruptLabels *LabelSelector `json:"podNonInterruptLabels,omitempty"`

	// disableEviction deletes pods instead of evicting them, without regard to PodDisruptionBudgets. Absent means false.
	// +optional
	DisableEviction *bool `json:"disableEviction,omitempty"`

	skyhookv1.DrainPodOptions `json:",inline"`
}
