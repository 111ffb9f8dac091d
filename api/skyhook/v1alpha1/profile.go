// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Profile names the defaults that apply where a spec leaves a field out.
// +kubebuilder:validation:Enum=Recommended;Compatible
type Profile string

// The profiles.
const (
	// ProfileRecommended limits, proves and reports by default.
	ProfileRecommended Profile = "Recommended"
	// ProfileCompatible has the defaults of earlier operators.
	ProfileCompatible Profile = "Compatible"
)

// ProfileReason says why a profile applies.
// +kubebuilder:validation:Enum=Spec;Operator;ExistedBefore
type ProfileReason string

// The reasons.
const (
	ProfileOfSpec        ProfileReason = "Spec"          // the object says so
	ProfileOfOperator    ProfileReason = "Operator"      // it is the operator's setting
	ProfileExistedBefore ProfileReason = "ExistedBefore" // the object was carried out with the defaults of earlier operators
)

// ProfileStatus says which profile applies to an object, and why.
type ProfileStatus struct {
	// name is the profile.
	// +required
	Name Profile `json:"name"`

	// reason is why it applies: Spec, Operator, or ExistedBefore for an object that was carried out as Compatible before.
	// +required
	Reason ProfileReason `json:"reason"`
}
