// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package profile

import "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"

// Choose returns the profile of an object: that of its spec, or else the operator's, or where that is unknown the one that its status
// records. What was carried out with the defaults of earlier operators keeps them: hasStatus says that an operator has worked on it.
func Choose(spec v1alpha1.Profile, recorded *v1alpha1.ProfileStatus, hasStatus bool, operator v1alpha1.Profile) v1alpha1.ProfileStatus {
	wasCompatible := recorded != nil && recorded.Name == v1alpha1.ProfileCompatible && recorded.Reason != v1alpha1.ProfileOfSpec
	switch {
	case spec != "":
		return v1alpha1.ProfileStatus{Name: spec, Reason: v1alpha1.ProfileOfSpec}
	case operator == "" && recorded != nil:
		return *recorded
	case operator != v1alpha1.ProfileRecommended:
		return v1alpha1.ProfileStatus{Name: v1alpha1.ProfileCompatible, Reason: v1alpha1.ProfileOfOperator}
	case wasCompatible, recorded == nil && hasStatus:
		return v1alpha1.ProfileStatus{Name: v1alpha1.ProfileCompatible, Reason: v1alpha1.ProfileExistedBefore}
	}
	return v1alpha1.ProfileStatus{Name: v1alpha1.ProfileRecommended, Reason: v1alpha1.ProfileOfOperator}
}
