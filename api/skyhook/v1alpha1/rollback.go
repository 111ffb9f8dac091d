// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Rollback says when a node goes back to the packages that were complete there before: once for each set of packages, and in the
// place that it has in the budget.
type Rollback struct {
	// when lists what makes a node go back: StageFailed is a stage whose failure is final, ProofFailed a proof that is late.
	// Absent means both.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	When []RollbackCause `json:"when,omitempty"`
}

// RollbackCause is what makes a node go back.
// +kubebuilder:validation:Enum=StageFailed;ProofFailed
type RollbackCause string

// The causes.
const (
	RollbackStageFailed RollbackCause = "StageFailed"
	RollbackProofFailed RollbackCause = "ProofFailed"
)
