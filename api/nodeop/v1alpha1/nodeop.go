// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// NodeOp runs a command once on each selected node, with the file system of the host mounted, and can reboot the node
// afterwards.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=nop,categories=skyhook-all
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`
// +kubebuilder:printcolumn:name="Completed",type=integer,JSONPath=`.status.completed`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="In-Progress",type=integer,JSONPath=`.status.inProgress`
// +kubebuilder:printcolumn:name="Skipped",type=integer,priority=1,JSONPath=`.status.skipped`
// +kubebuilder:printcolumn:name="Policy",type=string,priority=1,JSONPath=`.spec.deploymentPolicy`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,message="metadata.name has more than 63 characters: choose a shorter name, because it becomes a label of jobs and pods"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || !(oldSelf.status.phase in ['Running', 'Completed', 'Failed']) || [dyn(self.spec.command), dyn(self.spec.?nodeSelector), dyn(self.spec.?hostMountPath), dyn(self.spec.?image), dyn(self.spec.?imagePullSecrets), dyn(self.spec.?cordon), dyn(self.spec.?uncordonOnFailure), dyn(self.spec.?drainOptions), dyn(self.spec.?rebootOnSuccess), dyn(self.spec.?backoffLimit), dyn(self.spec.?stopOnFailure), dyn(self.spec.?preflight), dyn(self.spec.?deploymentPolicy), dyn(self.spec.?activeDeadlineSeconds), dyn(self.spec.?env), dyn(self.spec.?resources), dyn(self.spec.?rebootTimeoutSeconds), dyn(self.spec.?shareReboots), dyn(self.spec.?profile)] == [dyn(oldSelf.spec.command), dyn(oldSelf.spec.?nodeSelector), dyn(oldSelf.spec.?hostMountPath), dyn(oldSelf.spec.?image), dyn(oldSelf.spec.?imagePullSecrets), dyn(oldSelf.spec.?cordon), dyn(oldSelf.spec.?uncordonOnFailure), dyn(oldSelf.spec.?drainOptions), dyn(oldSelf.spec.?rebootOnSuccess), dyn(oldSelf.spec.?backoffLimit), dyn(oldSelf.spec.?stopOnFailure), dyn(oldSelf.spec.?preflight), dyn(oldSelf.spec.?deploymentPolicy), dyn(oldSelf.spec.?activeDeadlineSeconds), dyn(oldSelf.spec.?env), dyn(oldSelf.spec.?resources), dyn(oldSelf.spec.?rebootTimeoutSeconds), dyn(oldSelf.spec.?shareReboots), dyn(oldSelf.spec.?profile)]",fieldPath=".spec",message="spec can change only suspend, concurrency, countUnavailable and ttlSecondsAfterFinished once the operation has started: create another NodeOp"
type NodeOp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec describes the operation.
	// +required
	Spec NodeOpSpec `json:"spec"`

	// status is the observed progress of the operation. Only the operator writes it. It is final once phase is
	// Completed or Failed.
	// +optional
	// +kubebuilder:default={}
	Status NodeOpStatus `json:"status,omitzero"`
}

// NodeOpList is a list of NodeOps.
// +kubebuilder:object:root=true
type NodeOpList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []NodeOp `json:"items"`
}

// NodeOpSpec describes the operation. Once it has started, only suspend, concurrency, countUnavailable and ttlSecondsAfterFinished can
// change.
// +kubebuilder:validation:XValidation:rule="!has(self.shareReboots) || !self.shareReboots || has(self.rebootOnSuccess) && self.rebootOnSuccess && has(self.cordon) && self.cordon",fieldPath=".shareReboots",message="shareReboots has no effect without rebootOnSuccess and cordon: set both to true, or remove shareReboots"
// +kubebuilder:validation:XValidation:rule="!has(self.countUnavailable) || !self.countUnavailable || has(self.concurrency) && self.concurrency > 0",fieldPath=".countUnavailable",message="countUnavailable has no effect without concurrency: set concurrency, or use countUnavailable in the budget of the deploymentPolicy"
type NodeOpSpec struct {
	// profile says which defaults apply where this NodeOp leaves a field out: Recommended, which limits, proves and reports, or
	// Compatible, those of earlier operators. Absent means the operator's, and Compatible for one that existed before.
	// +optional
	Profile skyhookv1.Profile `json:"profile,omitempty"`

	// nodeSelector selects the nodes by label. Absent or empty selects every node.
	// +optional
	NodeSelector LabelSelector `json:"nodeSelector,omitzero"`

	// command is what the privileged container runs, at most 256 words. An empty list runs the entrypoint of the image.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=131072
	Command []string `json:"command"`

	// hostMountPath is the path in the container at which the root of the host's file system is mounted. Default /host,
	// also for an empty string.
	// +optional
	// +kubebuilder:default="/host"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.startsWith('/') && self.matches('[^/]') && !self.contains(':')",message="hostMountPath is not usable: use an absolute path below / without a colon, such as /host"
	HostMountPath string `json:"hostMountPath,omitempty"`

	// image is the container image, at most 1024 characters. Absent means the operator's default image.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="image contains blanks: use an image reference such as busybox:1.36"
	Image string `json:"image,omitempty"`

	// imagePullSecrets name secrets in this namespace to pull image with, at most 32. Other images are pulled without
	// them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// cordon cordons a node before the operation, and uncordons it after the operation succeeded. Default false.
	// +optional
	// +kubebuilder:default=false
	Cordon *bool `json:"cordon,omitempty"`

	// uncordonOnFailure uncordons a node after a failure too. Default false. It requires cordon.
	// +optional
	// +kubebuilder:default=false
	UncordonOnFailure *bool `json:"uncordonOnFailure,omitempty"`

	// drainOptions configure the drain before the operation. They take effect only with cordon.
	// +optional
	DrainOptions *DrainOptions `json:"drainOptions,omitempty"`

	// rebootOnSuccess reboots a node after the command succeeded there. Default false.
	// +optional
	// +kubebuilder:default=false
	RebootOnSuccess *bool `json:"rebootOnSuccess,omitempty"`

	// shareReboots lets the reboot of a node, and those that Skyhooks and other NodeOps with shareReboots owe there, become one.
	// Each of them does what comes before its reboot, one after the other; then the node reboots once. It requires
	// rebootOnSuccess and cordon. Default false: the node reboots right after the command. Default true with profile Recommended.
	// +optional
	ShareReboots *bool `json:"shareReboots,omitempty"`

	// backoffLimit is how often a failed command is retried on its node, at least 0. Absent means 6.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// concurrency is how many nodes run the operation at the same time; 0 means all of them. Absent means all, or with the profile
	// Recommended 10 percent of the nodes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Concurrency *int32 `json:"concurrency,omitempty"`

	// countUnavailable counts nodes against concurrency that are not ready, that somebody else cordoned, or that this NodeOp left cordoned
	// after a failure. Default false, with profile Recommended true. It needs concurrency; the budget of a policy has its own field.
	// +optional
	CountUnavailable *bool `json:"countUnavailable,omitempty"`

	// stopOnFailure starts no further node once one has failed. Default false.
	// +optional
	// +kubebuilder:default=false
	StopOnFailure *bool `json:"stopOnFailure,omitempty"`

	// preflight is a check that runs on each node before anything else. It can skip or fail the node.
	// +optional
	Preflight *Preflight `json:"preflight,omitempty"`

	// deploymentPolicy names a DeploymentPolicy whose budget applies beside concurrency, at most 253 characters.
	// Default empty: concurrency alone decides.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DeploymentPolicy string `json:"deploymentPolicy,omitempty"`

	// suspend starts no further node while it is true. Nodes in progress finish. Default false.
	// +optional
	// +kubebuilder:default=false
	Suspend *bool `json:"suspend,omitempty"`

	// activeDeadlineSeconds is how long the command may take on one node, including retries, at least 1. Absent means
	// 3600 for each attempt.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long Jobs and pods are kept after the whole operation has finished, at least 0.
	// The results stay in status; with profile Recommended the NodeOp goes, too. Absent keeps them until the NodeOp is deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// env are environment variables for the command, at most 100. NODE_NAME and HOST_DIR are always set.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Env []EnvVar `json:"env,omitempty"`

	// resources are the requests and limits of the command's container. Absent means none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="[?self.?limits, ?self.?requests].all(m, m.all(k, k != ''))",message="resources has an amount without the name of a resource: use names such as cpu and memory"
	// +kubebuilder:validation:XValidation:rule="[?self.?limits, ?self.?requests].all(m, m.all(k, [m[k]].all(q, type(q) == int ? int(q) >= 0 : isQuantity(q) && !quantity(q).isLessThan(quantity('0')))))",message="resources has a value that is not a quantity or is negative: use quantities such as 500m and 256Mi"
	// +kubebuilder:validation:XValidation:rule="[?self.?requests].all(r, [?self.?limits].all(l, r.all(k, !(k in l) || [r[k]].all(a, [l[k]].all(b, type(a) == string && !isQuantity(a) || type(b) == string && !isQuantity(b) || !(type(b) == int ? quantity('0').add(int(b)) : quantity(b)).isLessThan(type(a) == int ? quantity('0').add(int(a)) : quantity(a)))))))",message="resources has a limit that is lower than its request: raise the limit or lower the request"
	Resources *Resources `json:"resources,omitempty"`

	// rebootTimeoutSeconds is how long the reboot of a node may take until the node is ready with a new boot ID, at
	// least 1. Absent means 1800. It requires rebootOnSuccess.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RebootTimeoutSeconds *int32 `json:"rebootTimeoutSeconds,omitempty"`
}

// Preflight is a check that runs unprivileged, with the host's file system read-only. If it succeeds without a
// termination message, the operation goes on. If it succeeds with one, the node is skipped and the message says why. If
// it fails, the node fails.
type Preflight struct {
	// command is what the check runs, at most 256 words.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=131072
	Command []string `json:"command"`

	// image is the container image of the check, at most 1024 characters. Absent means the image of the operation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="preflight.image contains blanks: use an image reference such as busybox:1.36"
	Image string `json:"image,omitempty"`

	// activeDeadlineSeconds is how long the check may take, at least 1. Default 120.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`
}

// EnvVar is an environment variable. It has the wire format of EnvVar in core/v1, with bounds.
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && self.value.size() > 0 && has(self.valueFrom))",message="env has both value and valueFrom: keep one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || has(self.valueFrom.configMapKeyRef) != has(self.valueFrom.secretKeyRef)",fieldPath=".valueFrom",message="env has a valueFrom that names no source, or more than one: set one of configMapKeyRef and secretKeyRef"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || (!has(self.valueFrom.configMapKeyRef) || has(self.valueFrom.configMapKeyRef.name) && self.valueFrom.configMapKeyRef.name.size() > 0 && self.valueFrom.configMapKeyRef.key.size() > 0) && (!has(self.valueFrom.secretKeyRef) || has(self.valueFrom.secretKeyRef.name) && self.valueFrom.secretKeyRef.name.size() > 0 && self.valueFrom.secretKeyRef.key.size() > 0)",fieldPath=".valueFrom",message="env has a configMapKeyRef or secretKeyRef without name or key: set both"
type EnvVar struct {
	// name is the name of the variable: letters, digits, '-', '_' and '.', not beginning with a digit or with two dots,
	// at most 128 characters.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z][-._a-zA-Z0-9]*$')",message="env has a name that is not allowed: use letters, digits, -, _ and ., not beginning with a digit"
	// +kubebuilder:validation:XValidation:rule="self != '.' && !self.startsWith('..')",message="env has a name that is a path: use a name that is not . and does not begin with .."
	Name string `json:"name"`

	// value is the value of the variable, at most 131072 characters. It excludes valueFrom.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Value string `json:"value,omitempty"`

	// valueFrom takes the value from a ConfigMap or a Secret of this namespace. It excludes value.
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvVarSource is where the value of a variable comes from: exactly one of the two.
type EnvVarSource struct {
	// configMapKeyRef is a key of a ConfigMap.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`

	// secretKeyRef is a key of a Secret.
	// +optional
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`
}

// Kubernetes returns the source as pods have it; nil for none.
func (s *EnvVarSource) Kubernetes() *corev1.EnvVarSource {
	if s == nil {
		return nil
	}
	return &corev1.EnvVarSource{ConfigMapKeyRef: s.ConfigMapKeyRef.DeepCopy(), SecretKeyRef: s.SecretKeyRef.DeepCopy()}
}

// Resources are the requests and limits of a container, as in core/v1.
type Resources struct {
	// limits are the most that the container may use, such as {memory: 256Mi}.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`

	// requests are what is reserved for it.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}
