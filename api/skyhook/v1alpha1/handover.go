// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MaxHandoverSteps limits the steps of a handover.
const MaxHandoverSteps = 4

// HandoverStep asks another program for a node: by an object that is created for it, or by what objects and the node itself say.
// +kubebuilder:validation:XValidation:rule="!has(self.object) || !has(self.objects)",message="handover entry has object and objects: keep one of them, or split it into two steps"
// +kubebuilder:validation:XValidation:rule="!has(self.object) || has(self.object.metadata) && has(self.object.metadata.name)",fieldPath=".object",message="object needs metadata.name: write one with $(NODE_NAME), such as skyhook-$(NODE_NAME)"
type HandoverStep struct {
	// name is the name of the step, unique in the policy, such as slurm. Status and events show it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// object is created for the node when the step begins, and deleted when the node is given back. $(NODE_NAME) in any of its strings
	// is the name of the node. It needs apiVersion, kind and metadata.name, and has at most 4 KiB as JSON. An administrator grants the
	// operator the right to create, get and delete it. It excludes objects.
	// +optional
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`

	// objects are existing ones of which the expression must be true. Of pods, only those on the node count. When the selector selects
	// none, nobody has to be asked. With neither object nor objects, the expression is about the node alone.
	// +optional
	Objects *ObjectSelector `json:"objects,omitempty"`

	// cel is an expression that is true when the node may be drained. Its variables are object and node; with neither object nor
	// objects, only node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	CEL string `json:"cel"`

	// timeout is how long the answer may take, up to 168h, such as 2h. 0s waits without a limit. Default 30m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('168h')",message="timeout is not a duration of at most 168h: use a number and a unit, such as 30m, or 0s to wait without a limit"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout says what happens then. Wait (the default) goes on waiting, and reports it. Proceed goes on as if the answer were
	// yes. GiveBack gives the node back unfinished: it counts as failed, and others go on.
	// +optional
	// +kubebuilder:default=Wait
	OnTimeout HandoverTimeout `json:"onTimeout,omitempty"`
}

// HandoverTimeout says what happens when a step has no answer in time.
// +kubebuilder:validation:Enum=Wait;Proceed;GiveBack
type HandoverTimeout string

// The choices.
const (
	HandoverWait     HandoverTimeout = "Wait"
	HandoverProceed  HandoverTimeout = "Proceed"
	HandoverGiveBack HandoverTimeout = "GiveBack"
)
