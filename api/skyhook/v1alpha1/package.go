// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Package is one version of a container image with scripts, and how it is run on the nodes.
// +kubebuilder:validation:XValidation:rule="!self.image.contains('@')",fieldPath=".image",message="image carries a digest: move it to containerSHA and leave the repository in image"
// +kubebuilder:validation:XValidation:rule="!has(self.configInterrupts) || self.configInterrupts.all(k, k.contains('*') || has(self.configMap) && k in self.configMap)",fieldPath=".configInterrupts",messageExpression="'configInterrupts has keys that are not in configMap %s: use a key of configMap, or a pattern with *'.format([self.configInterrupts.filter(k, !k.contains('*') && !(has(self.configMap) && k in self.configMap))])",message="configInterrupts has a key that is not in configMap: use a key of configMap, or a pattern with *"
// +kubebuilder:validation:XValidation:rule=`!has(self.configInterrupts) || self.configInterrupts.all(k, !k.contains('*') || has(self.configMap) && (k in self.configMap || k.matches(r'^([-._a-zA-Z0-9*?]|\[\^?[-._a-zA-Z0-9]+\])+$') && self.configMap.exists(c, c.matches('^' + k.replace('.', r'\.').replace('*', '.*').replace('?', '.') + '$'))))`,fieldPath=".configInterrupts",messageExpression="'configInterrupts has a pattern that matches no key of configMap (its patterns are %s): correct the pattern, or remove it'.format([self.configInterrupts.filter(k, k.contains('*'))])",message="configInterrupts has a pattern that matches no key of configMap: correct the pattern, or remove it"
type Package struct {
	// name repeats the key of this package. It should be omitted; if set, it must equal the key.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	Name string `json:"name,omitempty"`

	// version is the semantic version to install, such as 1.2.3, and the tag of the image.
	// +required
	Version PackageVersion `json:"version"`

	// image is the repository of the package without a tag, such as ghcr.io/team/package, at most 512 characters. A
	// tag is accepted and ignored, because version is the tag.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9][-A-Za-z0-9.]*|[[][0-9a-fA-F:]+[]])(:[0-9]+)?/)?[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*)*(:[^/@]*)?(@.*)?$')",message="image is not a repository: use a name such as ghcr.io/team/package, in lower case and without a scheme"
	Image string `json:"image"`

	// containerSHA is the digest to pull instead of the tag, such as sha256: and 64 hexadecimal digits. Absent means
	// the tag.
	// +optional
	// +kubebuilder:validation:MaxLength=136
	// +kubebuilder:validation:XValidation:rule="self.matches('^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})?$')",message="containerSHA is not a digest: use sha256: and 64 hexadecimal digits in lower case, as registries and docker inspect show it"
	ContainerSHA string `json:"containerSHA,omitempty"`

	// agentImageOverride is the full reference of an agent image for this package, at most 1024 characters. Absent
	// means the agent image of the operator.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]')",message="agentImageOverride contains blanks: use an image reference such as ghcr.io/team/agent:v1.2.3"
	AgentImageOverride string `json:"agentImageOverride,omitempty"`

	// interrupt is the interrupt that the node needs after an install or upgrade of this package. Absent means none.
	// +optional
	Interrupt *Interrupt `json:"interrupt,omitempty"`

	// dependsOn lists packages that must be complete on a node before this one starts there, at most 32, each with
	// exactly the version it has in packages.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	DependsOn map[string]PackageVersion `json:"dependsOn,omitempty"`

	// configInterrupts are the interrupts that the node needs when keys of configMap change, at most 32. A key here is
	// a key of configMap or a pattern with * that matches at least one. Changed keys that none matches need no
	// interrupt.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	ConfigInterrupts map[string]Interrupt `json:"configInterrupts,omitempty"`

	// configMap holds files for the package, at most 256, by file name: letters, digits, '-', '_' and '.', at most
	// 253 characters. A change runs the config stage again.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 253 && k.matches('^[-._a-zA-Z0-9]+$') && k != '.' && !k.startsWith('..'))",messageExpression="'configMap has keys that are not file names %s: use at most 253 letters, digits, -, _ and ., not beginning with ..'.format([self.filter(k, !(k.size() <= 253 && k.matches('^[-._a-zA-Z0-9]+$') && k != '.' && !k.startsWith('..')))])",message="configMap has a key that is not a file name: use at most 253 letters, digits, -, _ and ., not beginning with .."
	ConfigMap map[string]ConfigData `json:"configMap,omitempty"`

	// env are environment variables for the stages and checks of this package, at most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Env []EnvVar `json:"env,omitempty"`

	// privileges are what the pods of this package may do, in place of what its config.json declares: sysctl, services, reboot, full,
	// and directories of the host that its steps may write, at most 16. Absent means what config.json declares, if the node has said
	// it in a preflight, and otherwise full.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.all(p, p in ['sysctl', 'services', 'reboot', 'full'] || p.matches('^(/[^/:,[:space:][:cntrl:]]+)+$') && !p.matches('/[.][.]?(/|$)') && !p.matches('^/(proc|sys|dev|run|var/run|tmp)(/|$)'))",message="privileges has an entry that is none: use sysctl, services, reboot, full, or a directory that steps may write, such as /etc/sysctl.d, outside of /proc, /sys, /dev, /run and /tmp"
	// +kubebuilder:validation:XValidation:rule="!('full' in self) || self.size() == 1",message="privileges has full beside others: remove the others, because full includes them"
	// +kubebuilder:validation:XValidation:rule="self.map(p, p.size() + 1).sum() <= 401",message="privileges has more than 400 characters: name a directory above several of them"
	Privileges []string `json:"privileges,omitempty"`

	// resources override the default requests and limits of the namespace for the containers of this package: all four
	// or none.
	// +optional
	Resources Resources `json:"resources,omitzero"`

	// gracefulShutdown is the termination grace period of a stage, at least 1s, in whole seconds. Absent means 30s. It
	// does not apply to interrupts.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s')",message="gracefulShutdown is not a duration of at least 1s: use a number and a unit, such as 90s, or leave it out for 30s"
	GracefulShutdown *metav1.Duration `json:"gracefulShutdown,omitempty"`

	// uninstall says what happens when the package is removed from packages, when its version is lowered and when the
	// Skyhook is deleted. If absent, removal and a lower version run its uninstall stage, and deletion does not.
	// +optional
	Uninstall *Uninstall `json:"uninstall,omitempty"`

	// stageTimeout is how long one attempt of a stage may take, 1s to 168h, or 0s for no limit. Absent means the operator's
	// setting: 1h, and 30m for an interrupt. An attempt that takes longer is stopped and counts as failed.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && (duration(self) >= duration('1s') && duration(self) <= duration('168h') || duration(self) == duration('0s'))",message="stageTimeout is not a duration of 1s to 168h: use a number and a unit, such as 90m, or 0s for no limit"
	StageTimeout *metav1.Duration `json:"stageTimeout,omitempty"`

	// retries is how often a failed stage is retried before its failure is final, 0 to 100. Absent means that it is
	// retried without a limit, and that its batch counts it as failed after three attempts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Retries *int32 `json:"retries,omitempty"`
}

// PackageVersion is a semantic version. Short forms such as 1 and 1.2, leading zeros such as 2024.05.10 and a leading
// v are accepted; versions are compared as numbers, and kept as written in tags, keys and names.
// +kubebuilder:validation:MaxLength=60
// +kubebuilder:validation:XValidation:rule="self.matches('^v?[0-9]{1,18}([.][0-9]{1,18}){0,2}(-(0|[1-9][0-9]*|[0-9]*[-A-Za-z][-0-9A-Za-z]*)([.](0|[1-9][0-9]*|[0-9]*[-A-Za-z][-0-9A-Za-z]*))*)?([+][-0-9A-Za-z]+([.][-0-9A-Za-z]+)*)?$')",message="not a semantic version: use one to three numbers with an optional suffix, such as 1.2.3, v1.2 or 1.2.3-rc1"
type PackageVersion string

// ConfigData is the content of one file, at most 1 MiB.
// +kubebuilder:validation:MaxLength=1048576
type ConfigData string

// Interrupt is what a node needs for a change to take effect.
// +kubebuilder:validation:XValidation:rule="self.type != 'service' || has(self.services) && self.services.size() > 0",fieldPath=".services",message="services is missing: an interrupt of type service needs the systemd units to restart"
// +kubebuilder:validation:XValidation:rule=`!has(self.services) || [self.services].all(l, l.all(s, s.matches(r'^[A-Za-z0-9:_.@\\][-A-Za-z0-9:_.@\\]*$')))`,fieldPath=".services",message="services has a name that is not a systemd unit: use names such as cron or containerd.service"
type Interrupt struct {
	// type is service (restart services), reboot, restartAllServices or noop. Interrupts of one node are merged:
	// reboot covers restartAllServices, which covers service, which covers noop.
	// +required
	Type InterruptType `json:"type"`

	// services are the systemd units to restart, at most 64. Required for type service, ignored for the others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=255
	Services []string `json:"services,omitempty"`
}

// InterruptType is the kind of an interrupt.
// +kubebuilder:validation:Enum=service;reboot;noop;restartAllServices
type InterruptType string

// The kinds of interrupts, weakest first.
const (
	InterruptNoop               InterruptType = "noop"
	InterruptService            InterruptType = "service"
	InterruptRestartAllServices InterruptType = "restartAllServices"
	InterruptReboot             InterruptType = "reboot"
)

// Resources are the requests and limits of a package's containers. A zero counts as absent.
// +kubebuilder:validation:XValidation:rule="[?self.?cpuRequest, ?self.?cpuLimit, ?self.?memoryRequest, ?self.?memoryLimit].all(x, type(x) == int ? int(x) >= 0 : isQuantity(x) && !quantity(x).isLessThan(quantity('0')))",message="resources has a value that is not a quantity or is negative: use quantities such as 500m and 256Mi"
// +kubebuilder:validation:XValidation:rule="[?self.?cpuRequest, ?self.?cpuLimit, ?self.?memoryRequest, ?self.?memoryLimit].filter(x, type(x) == int ? int(x) != 0 : !isQuantity(x) || quantity(x).compareTo(quantity('0')) != 0).size() in [0, 4]",message="resources is incomplete: set all of cpuRequest, cpuLimit, memoryRequest and memoryLimit, or none of them"
// +kubebuilder:validation:XValidation:rule="[?self.?cpuLimit].all(l, [?self.?cpuRequest].all(r, type(l) == string && !isQuantity(l) || type(r) == string && !isQuantity(r) || !(type(l) == int ? quantity('0').add(int(l)) : quantity(l)).isLessThan(type(r) == int ? quantity('0').add(int(r)) : quantity(r))))",fieldPath=".cpuLimit",message="cpuLimit is lower than cpuRequest: raise the limit or lower the request"
// +kubebuilder:validation:XValidation:rule="[?self.?memoryLimit].all(l, [?self.?memoryRequest].all(r, type(l) == string && !isQuantity(l) || type(r) == string && !isQuantity(r) || !(type(l) == int ? quantity('0').add(int(l)) : quantity(l)).isLessThan(type(r) == int ? quantity('0').add(int(r)) : quantity(r))))",fieldPath=".memoryLimit",message="memoryLimit is lower than memoryRequest: raise the limit or lower the request"
type Resources struct {
	// cpuRequest is the CPU that each container is guaranteed, such as 250m. It requires the other three.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	CPURequest resource.Quantity `json:"cpuRequest,omitzero"`

	// cpuLimit is the CPU that each container may use, at least cpuRequest. It requires the other three.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	CPULimit resource.Quantity `json:"cpuLimit,omitzero"`

	// memoryRequest is the memory that each container is guaranteed, such as 256Mi. It requires the other three.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	MemoryRequest resource.Quantity `json:"memoryRequest,omitzero"`

	// memoryLimit is the memory that each container may use, at least memoryRequest. It requires the other three.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	MemoryLimit resource.Quantity `json:"memoryLimit,omitzero"`
}

// Uninstall says whether and when the uninstall stage of a package runs. Absent is not the same as enabled: false:
// absent runs the stage on removal and on a lower version, enabled: false never runs it.
// +kubebuilder:validation:XValidation:rule="!(has(self.apply) && self.apply) || has(self.enabled) && self.enabled",fieldPath=".apply",message="uninstall.apply requires uninstall.enabled: set enabled to true, or remove apply"
type Uninstall struct {
	// enabled runs the uninstall stage of the package, also when the Skyhook is deleted. Default false, which never
	// runs it: the records of a removed package are deleted and its files stay on the node.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled"`

	// apply uninstalls the package from every node while it stays in packages. Default false. It requires enabled.
	// +optional
	// +kubebuilder:default=false
	Apply bool `json:"apply"`
}

// EnvVar is an environment variable. It has the wire format of EnvVar in core/v1, with bounds.
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && self.value.size() > 0 && has(self.valueFrom))",message="env has both value and valueFrom: keep one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.resourceFieldRef) || [?self.valueFrom.resourceFieldRef.?divisor].all(q, type(q) == int || isQuantity(q))",message="env has a divisor that is not a quantity: use one such as 1m or 1Mi"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.resourceFieldRef) || [?self.valueFrom.resourceFieldRef.?divisor].all(q, type(q) == int ? int(q) in [0, 1] : !isQuantity(q) || q in ['0', '1'] || (self.valueFrom.resourceFieldRef.resource in ['limits.cpu', 'requests.cpu'] ? q == '1m' : q in ['1k', '1M', '1G', '1T', '1P', '1E', '1Ki', '1Mi', '1Gi', '1Ti', '1Pi', '1Ei']))",fieldPath=".valueFrom.resourceFieldRef",message="env has a divisor that the resource does not have: use 1 or 1m for CPU, and 1, 1k, 1Ki, 1M, 1Mi, 1G, 1Gi and so on for everything else"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.valueFrom.resourceFieldRef) || self.valueFrom.resourceFieldRef.resource in ['limits.cpu', 'limits.memory', 'limits.ephemeral-storage', 'requests.cpu', 'requests.memory', 'requests.ephemeral-storage'] || self.valueFrom.resourceFieldRef.resource.startsWith('limits.hugepages-') || self.valueFrom.resourceFieldRef.resource.startsWith('requests.hugepages-')",fieldPath=".valueFrom.resourceFieldRef",message="env takes a resource that containers do not have: use limits or requests of cpu, memory or ephemeral-storage, such as limits.cpu"
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || [has(self.valueFrom.fieldRef), has(self.valueFrom.resourceFieldRef), has(self.valueFrom.configMapKeyRef), has(self.valueFrom.secretKeyRef)].filter(x, x).size() == 1",fieldPath=".valueFrom",message="env has a valueFrom that names no source, or more than one: set one of fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef"
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

	// valueFrom takes the value from a ConfigMap, a Secret or a field of the pod, in the operator's namespace. It
	// excludes value.
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvVarSource is where the value of a variable comes from: exactly one of the four.
type EnvVarSource struct {
	// fieldRef is a field of the pod.
	// +optional
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`

	// resourceFieldRef is a request or limit of the container.
	// +optional
	ResourceFieldRef *corev1.ResourceFieldSelector `json:"resourceFieldRef,omitempty"`

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
	c := s.DeepCopy()
	return &corev1.EnvVarSource{
		FieldRef: c.FieldRef, ResourceFieldRef: c.ResourceFieldRef, ConfigMapKeyRef: c.ConfigMapKeyRef, SecretKeyRef: c.SecretKeyRef,
	}
}
