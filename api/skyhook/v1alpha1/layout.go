// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PodLayoutStatus counts the selected nodes by the layout that they get.
type PodLayoutStatus struct {
	// compact is the number of nodes that get Compact.
	// +optional
	Compact int32 `json:"compact,omitempty"`

	// compatible is the number of nodes that get Compatible because they cannot mount images.
	// +optional
	Compatible int32 `json:"compatible,omitempty"`

	// message says for the first of these why.
	// +optional
	// +kubebuilder:validation:MaxLength=400
	Message string `json:"message,omitempty"`
}
