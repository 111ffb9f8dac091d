// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// GivenApproval is what a person approved.
type GivenApproval struct {
	Revision rollout.Versions `json:"revision"` // what may begin, and nothing else
	By       string           `json:"by"`
	At       time.Time        `json:"at"`
}

// maxBy is the most bytes of the name of a person in a sentence.
const maxBy = 100

// ReadApprovals reads the approvals in the annotations of the object that owns the groups, by compartment. What cannot be read approves
// nothing.
func ReadApprovals(annotations map[string]string) (map[string]GivenApproval, error) {
	text := annotations[v1alpha1.AnnotationApprovals]
	if text == "" {
		return nil, nil
	}
	var all map[string]GivenApproval
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("annotation %s cannot be read: %s", v1alpha1.AnnotationApprovals, rollout.Truncate(err.Error(), maxErrorText))
	}
	return all, nil
}

// FormatApprovals is the inverse of ReadApprovals: the value of the annotation, empty for none.
func FormatApprovals(all map[string]GivenApproval) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encoding approvals: %w", err)
	}
	return string(text), nil
}

// approval returns whether a compartment may begin what is rolled out now.
func (g *Grouping) approval(c *compartment) rollout.Approval {
	if c.wave.Approval != v1alpha1.ApprovalRequired {
		return rollout.Approval{}
	}
	out := rollout.Approval{Required: true, Of: g.revision}
	if g.approvalsProblem != nil {
		out.Problem = g.approvalsProblem.Error()
		return out
	}
	given := g.approvals[c.name]
	out.Given, out.By = given.Revision, rollout.Truncate(given.By, maxBy)
	return out
}
