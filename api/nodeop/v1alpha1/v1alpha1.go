// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the wire types of the kinds NodeOp and NodeOpUpgrade, and the annotations and labels that
// other programs read.
//
// Every rule about a single object is a CEL rule in a marker here, so the API server rejects an invalid object. The
// rules use only functions of Kubernetes 1.30.
//
// +kubebuilder:object:generate=true
// +groupName=operator.kairos.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme registers the kinds of this package in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeOp{}, &NodeOpList{}, &NodeOpUpgrade{}, &NodeOpUpgradeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// LabelSelector selects objects by label; every entry must match. It has the wire format of LabelSelector in meta/v1,
// with bounds, so that the API server rejects an invalid one.
type LabelSelector struct {
	// matchLabels lists labels that an object must carry with exactly these values, at most 64.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))",message="matchLabels has a key that is not a label key: use a name of at most 63 letters, digits, -, _ and ., optionally after a domain and /, such as kubernetes.io/os"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions lists conditions on labels that must all hold, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label: empty, or at most 63 letters, digits, '-', '_' and '.', beginning and ending
// with a letter or digit.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')",message="not a label value: use at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit"
type LabelValue string

// LabelSelectorRequirement is one condition on a label.
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 : !has(self.values) || self.values.size() == 0",message="values go with operator: In and NotIn need at least one, Exists and DoesNotExist take none"
// +kubebuilder:validation:XValidation:rule="[self.key].all(k, k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))",fieldPath=".key",message="not a label key: use a name of at most 63 letters, digits, -, _ and ., optionally after a domain and /, such as kubernetes.io/os"
// +kubebuilder:validation:XValidation:rule="!has(self.values) || [self.values].all(l, l.all(v, v.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')))",fieldPath=".values",message="values has one that is not a label value: use at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit"
type LabelSelectorRequirement struct {
	// key is the label that the condition applies to, at most 317 characters.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// operator compares the label with values: In and NotIn need values, Exists and DoesNotExist take none.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are what In and NotIn compare with, at most 4096 label values.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// Kubernetes returns the selector as meta/v1 defines it.
func (s LabelSelector) Kubernetes() *metav1.LabelSelector {
	out := &metav1.LabelSelector{}
	for k, v := range s.MatchLabels {
		metav1.AddLabelToSelector(out, k, string(v))
	}
	for _, r := range s.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return out
}
