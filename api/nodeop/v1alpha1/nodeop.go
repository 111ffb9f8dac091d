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
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`
// +kubebuilder:printcolumn:name="Completed",type=integer,JSONPath=`.status.completed`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="In-Progress",type=integer,JSONPath=`.status.inProgress`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Skipped",type=integer,priority=1,JSONPath=`.status.skipped`
// +kubebuilder:printcolumn:name="Policy",type=string,priority=1,JSONPath=`.spec.deploymentPolicy`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",optionalOldSelf=true,message="metadata.name has more than 63 characters: choose a shorter name, because it becomes a label of jobs and pods"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || !(oldSelf.status.phase in ['Running', 'Completed', 'Failed']) || [dyn(self.spec.command), dyn(self.spec.?nodeSelector), dyn(self.spec.?hostMountPath), dyn(self.spec.?image), dyn(self.spec.?imagePullSecrets), dyn(self.spec.?cordon), dyn(self.spec.?uncordonOnFailure), dyn(self.spec.?drainOptions), dyn(self.spec.?rebootOnSuccess), dyn(self.spec.?backoffLimit), dyn(self.spec.?stopOnFailure), dyn(self.spec.?preflight), dyn(self.spec.?deploymentPolicy), dyn(self.spec.?activeDeadlineSeconds), dyn(self.spec.?tolerations), dyn(self.spec.?env), dyn(self.spec.?resources), dyn(self.spec.?rebootTimeoutSeconds), dyn(self.spec.?targets), dyn(self.spec.?nodeMarks), dyn(self.spec.?shareReboots), dyn(self.spec.?profile)] == [dyn(oldSelf.spec.command), dyn(oldSelf.spec.?nodeSelector), dyn(oldSelf.spec.?hostMountPath), dyn(oldSelf.spec.?image), dyn(oldSelf.spec.?imagePullSecrets), dyn(oldSelf.spec.?cordon), dyn(oldSelf.spec.?uncordonOnFailure), dyn(oldSelf.spec.?drainOptions), dyn(oldSelf.spec.?rebootOnSuccess), dyn(oldSelf.spec.?backoffLimit), dyn(oldSelf.spec.?stopOnFailure), dyn(oldSelf.spec.?preflight), dyn(oldSelf.spec.?deploymentPolicy), dyn(oldSelf.spec.?activeDeadlineSeconds), dyn(oldSelf.spec.?tolerations), dyn(oldSelf.spec.?env), dyn(oldSelf.spec.?resources), dyn(oldSelf.spec.?rebootTimeoutSeconds), dyn(oldSelf.spec.?targets), dyn(oldSelf.spec.?nodeMarks), dyn(oldSelf.spec.?shareReboots), dyn(oldSelf.spec.?profile)]",fieldPath=".spec",message="spec can change only suspend, concurrency, countUnavailable, proof, ttlSecondsAfterFinished and ttlIncludesNodeOp once the operation has started: create another NodeOp"
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

// NodeOpSpec describes the operation. Once it has started, only suspend, concurrency, countUnavailable, proof,
// ttlSecondsAfterFinished and ttlIncludesNodeOp can change.
// +kubebuilder:validation:XValidation:rule="!has(self.ttlIncludesNodeOp) || !self.ttlIncludesNodeOp || has(self.ttlSecondsAfterFinished)",fieldPath=".ttlIncludesNodeOp",message="ttlIncludesNodeOp has no effect without ttlSecondsAfterFinished: set ttlSecondsAfterFinished, or remove ttlIncludesNodeOp"
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

	// targets says which of the selected nodes belong to the operation. Current (the default) are all, including those that are
	// created or labelled while it runs. AtStart are those that nodeSelector selects when the operation starts; nodes that
	// are created or labelled later are no part of it. Absent means Current.
	// +optional
	Targets Targets `json:"targets,omitempty"`

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

	// nodeMarks show other programs that a node is held for maintenance. They take effect only with cordon, and are added to
	// those of the deploymentPolicy. Absent means none.
	// +optional
	NodeMarks *skyhookv1.NodeMarks `json:"nodeMarks,omitempty"`

	// proof is what must be true of a node before it is given back, after a successful command and reboot. It is asked for
	// together with that of the deploymentPolicy. Absent means nothing.
	// +optional
	Proof *skyhookv1.Proof `json:"proof,omitempty"`

	// rebootOnSuccess reboots a node after the command succeeded there. Default false.
	// +optional
	// +kubebuilder:default=false
	RebootOnSuccess *bool `json:"rebootOnSuccess,omitempty"`

	// shareReboots lets the reboot of a node, and those that Skyhooks and other NodeOps with shareReboots owe there, become one.
	// Each of them does what comes before its reboot, one after the other; then the node reboots once. It requires
	// rebootOnSuccess and cordon. Default false: the node reboots right after the command.
	// +optional
	ShareReboots *bool `json:"shareReboots,omitempty"`

	// backoffLimit is how often a failed command is retried on its node, at least 0. Absent means 6.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// concurrency is how many nodes run the operation at the same time. Default 0, which means all of them, or with the profile
	// Recommended 10 percent of the nodes.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Concurrency int32 `json:"concurrency,omitempty"`

	// countUnavailable counts nodes against concurrency that are not ready, that somebody else cordoned, or that this NodeOp left
	// cordoned after a failure. Default false. It needs concurrency; the budget of a deploymentPolicy has its own field.
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
	// The results stay in status. Absent keeps them until the NodeOp is deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// ttlIncludesNodeOp deletes the NodeOp itself, too, after ttlSecondsAfterFinished, and with it the results in status. It stays while
	// it keeps a node cordoned after a failure. Default false. It needs ttlSecondsAfterFinished.
	// +optional
	TTLIncludesNodeOp bool `json:"ttlIncludesNodeOp,omitempty"`

	// tolerations are added to the pods of the operation, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, (!has(t.operator) || t.operator in ['', 'Equal', 'Exists', 'Lt', 'Gt']) && (!has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']))",message="tolerations has an operator or effect that does not exist: operator is Exists or Equal, effect is NoSchedule, PreferNoSchedule or NoExecute"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.operator) && t.operator == 'Exists' ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')",message="tolerations has an entry that tolerates nothing: operator Exists takes no value, and every other operator needs a key"
	// +kubebuilder:validation:XValidation:rule="self.all(t, [?t.?key, ?t.?value].all(v, !v.contains(' ')))",message="tolerations has a key or value with a blank: use the key and value of the taint"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",message="tolerations has tolerationSeconds without the effect that it belongs to: set effect to NoExecute, or remove tolerationSeconds"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// env are environment variables for the command, at most 100. NODE_NAME and HOST_DIR are always set.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Env []EnvVar `json:"env,omitempty"`

	// resources are the requests and limits of the command's container. Absent means none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="[?self.?limits, ?self.?requests].all(m, m.all(k, k != ''))",message="resources has an amount without the name of a resource: use names such as cpu and memory"
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || self.claims.size() == 0",fieldPath=".claims",message="resources has claims, which need a pod with resourceClaims: remove them"
	// +kubebuilder:validation:XValidation:rule="[?self.?limits, ?self.?requests].all(m, m.all(k, [m[k]].all(q, type(q) == int ? int(q) >= 0 : isQuantity(q) && !quantity(q).isLessThan(quantity('0')))))",message="resources has a value that is not a quantity or is negative: use quantities such as 500m and 256Mi"
	// +kubebuilder:validation:XValidation:rule="[?self.?requests].all(r, [?self.?limits].all(l, r.all(k, !(k in l) || [r[k]].all(a, [l[k]].all(b, type(a) == string && !isQuantity(a) || type(b) == string && !isQuantity(b) || !(type(b) == int ? quantity('0').add(int(b)) : quantity(b)).isLessThan(type(a) == int ? quantity('0').add(int(a)) : quantity(a)))))))",message="resources has a limit that is lower than its request: raise the limit or lower the request"
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// rebootTimeoutSeconds is how long the reboot of a node may take until the node is ready with a new boot ID, at
	// least 1. Absent means 1800. It requires rebootOnSuccess.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RebootTimeoutSeconds *int32 `json:"rebootTimeoutSeconds,omitempty"`
}

// Targets says which of the selected nodes belong to an operation.
// +kubebuilder:validation:Enum=Current;AtStart
type Targets string

// The choices.
const (
	TargetsCurrent Targets = "Current"
	TargetsAtStart Targets = "AtStart"
)

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
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.resourceFieldRef) || [?self.valueFrom.resourceFieldRef.?divisor].all(q, type(q) == int || isQuantity(q))",message="env has a divisor that is not a quantity: use one such as 1m or 1Mi"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.resourceFieldRef) || [?self.valueFrom.resourceFieldRef.?divisor].all(q, type(q) == int ? int(q) in [0, 1] : !isQuantity(q) || q in ['0', '1'] || (self.valueFrom.resourceFieldRef.resource in ['limits.cpu', 'requests.cpu'] ? q == '1m' : q in ['1k', '1M', '1G', '1T', '1P', '1E', '1Ki', '1Mi', '1Gi', '1Ti', '1Pi', '1Ei']))",fieldPath=".valueFrom.resourceFieldRef",message="env has a divisor that the resource does not have: use 1 or 1m for CPU, and 1, 1k, 1Ki, 1M, 1Mi, 1G, 1Gi and so on for everything else"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.resourceFieldRef) || self.valueFrom.resourceFieldRef.resource in ['limits.cpu', 'limits.memory', 'limits.ephemeral-storage', 'requests.cpu', 'requests.memory', 'requests.ephemeral-storage'] || self.valueFrom.resourceFieldRef.resource.startsWith('limits.hugepages-') || self.valueFrom.resourceFieldRef.resource.startsWith('requests.hugepages-')",fieldPath=".valueFrom.resourceFieldRef",message="env takes a resource that containers do not have: use limits or requests of cpu, memory or ephemeral-storage, such as limits.cpu"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || [has(self.valueFrom.fieldRef), has(self.valueFrom.resourceFieldRef), has(self.valueFrom.configMapKeyRef), has(self.valueFrom.secretKeyRef)].filter(x, x).size() == 1 && !has(self.valueFrom.fileKeyRef)",fieldPath=".valueFrom",message="env has a valueFrom that names no source, or more than one: set one of fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef"
// +kubebuilder:validation:XValidation:rule=`!has(self.valueFrom) || !has(self.valueFrom.fieldRef) || self.valueFrom.fieldRef.fieldPath in ['metadata.name', 'metadata.namespace', 'metadata.uid', 'spec.nodeName', 'spec.serviceAccountName', 'status.hostIP', 'status.hostIPs', 'status.podIP', 'status.podIPs'] || (self.valueFrom.fieldRef.fieldPath.startsWith("metadata.labels['") || self.valueFrom.fieldRef.fieldPath.startsWith("metadata.annotations['")) && self.valueFrom.fieldRef.fieldPath.endsWith("']")`,fieldPath=".valueFrom.fieldRef",message="env takes a field that pods do not offer: use one such as spec.nodeName, status.hostIP or metadata.labels['key']"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.fieldRef) || !has(self.valueFrom.fieldRef.apiVersion) || self.valueFrom.fieldRef.apiVersion.size() == 0 || self.valueFrom.fieldRef.apiVersion == 'v1'",fieldPath=".valueFrom.fieldRef",message="env has a fieldRef with another apiVersion than v1: remove apiVersion"
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

	// valueFrom takes the value from a ConfigMap, a Secret or a field of the pod. It excludes value.
	// +optional
	ValueFrom *corev1.EnvVarSource `json:"valueFrom,omitempty"`
}
