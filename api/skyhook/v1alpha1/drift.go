// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Drift says how often complete nodes are checked for changes that no package made.
type Drift struct {
	// every is how much time passes between two checks of a node, from 1m to 168h, such as 6h. The checks of the nodes are spread
	// over it. Default 6h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="every is not a duration from 1m to 168h: use a number and a unit, such as 6h"
	Every *metav1.Duration `json:"every,omitempty"`

	// mode says what happens to a package that drifted. Report (the default) reports it. Repair also runs its stages again, as any
	// other work: within the budget and the windows, with its interrupt, and at most three times a day on a node. None checks nothing,
	// whatever the profile.
	// +optional
	// +kubebuilder:default=Report
	Mode DriftMode `json:"mode,omitempty"`
}

// DriftMode says what happens to a package that drifted.
// +kubebuilder:validation:Enum=None;Report;Repair
type DriftMode string

// The modes.
const (
	DriftNone   DriftMode = "None"
	DriftReport DriftMode = "Report"
	DriftRepair DriftMode = "Repair"
)
