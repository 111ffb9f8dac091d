// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// FindProblems finds what is wrong with a policy that the API server cannot see, as sentences without a full stop.
func FindProblems(p *v1alpha1.DeploymentPolicy, now time.Time) []string {
	var out []string
	for _, c := range p.Spec.Compartments {
		if _, err := metav1.LabelSelectorAsSelector(c.Selector.Kubernetes()); err != nil {
			out = append(out, fmt.Sprintf("compartment %s of DeploymentPolicy %s has a selector that cannot be used: %s", c.Name, p.Name, describeError(err)))
		}
	}
	calendar, err := NewCalendar(p.Spec.Windows)
	if err == nil && calendar != nil {
		err = calendar.CheckOpens(p.Spec.Windows, now)
	}
	if err != nil {
		out = append(out, fmt.Sprintf("windows of DeploymentPolicy %s cannot be used: %s", p.Name, describeError(err)))
	}
	return out
}

func describeError(err error) string {
	text := err.Error()
	return text[:min(len(text), 200)]
}
