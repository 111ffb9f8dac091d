// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxErrorText is the most bytes of an error in a problem.
const maxErrorText = 200

// FindProblems returns what is invalid in a policy and not rejected by the API server, as sentences without a full stop.
func FindProblems(p *v1alpha1.DeploymentPolicy, now time.Time) []string {
	var problems []string
	for _, c := range p.Spec.Compartments {
		if _, err := metav1.LabelSelectorAsSelector(c.Selector.Kubernetes()); err != nil {
			problems = append(problems, fmt.Sprintf("compartment %s of DeploymentPolicy %s has a selector that cannot be used: %s",
				c.Name, p.Name, rollout.Truncate(err.Error(), maxErrorText)))
		}
	}
	if err := checkWindows(p.Spec.Windows, now); err != nil {
		problems = append(problems, fmt.Sprintf("windows of DeploymentPolicy %s cannot be used: %s",
			p.Name, rollout.Truncate(err.Error(), maxErrorText)))
	}
	problems = append(problems, findAvoidProblems(p)...)
	problems = append(problems, findHandoverProblems(p)...)
	problems = append(problems, findWaveProblems(p)...)
	return append(problems, findObjectProblems(p)...)
}

func checkWindows(w *v1alpha1.Windows, now time.Time) error {
	calendar, err := NewCalendar(w)
	if err != nil || calendar == nil {
		return err
	}
	return calendar.CheckOpens(w, now)
}
