// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Outcome sums a status up. It is the same for all four kinds, and the conditions Ready, Reconciling and Stalled agree with it.
type Outcome struct {
	// verdict is Ready when everything is done for the observed generation, Progressing while work is under way or begins by itself,
	// Suspended while it waits for a person or for a window, Failed when it does not become ready unless somebody changes
	// something, and Deleting while it is being deleted.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`

	// reason is why, as one word: that of the condition Ready, or of the node or group that decided.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
}

// Verdict is the state of an object in one word, for programs.
// +kubebuilder:validation:Enum=Ready;Progressing;Suspended;Failed;Deleting
type Verdict string

// The verdicts.
const (
	VerdictReady       Verdict = "Ready"
	VerdictProgressing Verdict = "Progressing"
	VerdictSuspended   Verdict = "Suspended"
	VerdictFailed      Verdict = "Failed"
	VerdictDeleting    Verdict = "Deleting"
)
