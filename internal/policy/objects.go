// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/expression"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// FindObjectProblems returns what is invalid in checks on objects and not rejected by the API server, as sentences without a full stop
// that begin with the field. Only the checks of a proof have a node.
func FindObjectProblems(field string, checks []v1alpha1.ObjectCheck, hasNode bool) []string {
	var problems []string
	for i, c := range checks {
		add := func(name, format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s[%d].%s ", field, i, name)+fmt.Sprintf(format, args...))
		}
		if _, err := schema.ParseGroupVersion(c.APIVersion); err != nil {
			add("apiVersion", "%q is not a group and version: write one such as ceph.rook.io/v1", c.APIVersion)
		}
		if _, err := labels.Parse(c.Selector); err != nil {
			add("selector", "cannot be used: %s", rollout.Truncate(err.Error(), maxErrorText))
		}
		if !hasNode && strings.Contains(c.Name, v1alpha1.NodeNameVariable) {
			add("name", "has %s, and a health gate is not about one node: name one object, or use proof", v1alpha1.NodeNameVariable)
		}
		if _, err := expression.Compile(c.CEL, hasNode); err != nil {
			add("cel", "cannot be used: %s", rollout.Truncate(err.Error(), maxErrorText))
		}
	}
	return problems
}

// findAvoidProblems returns what is invalid in avoid of a policy.
func findAvoidProblems(p *v1alpha1.DeploymentPolicy) (problems []string) {
	add := func(field string, err error) {
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s of DeploymentPolicy %s cannot be used: %s", field, p.Name, rollout.Truncate(err.Error(), maxErrorText)))
		}
	}
	if p.Spec.Avoid == nil {
		return nil
	}
	for i, text := range p.Spec.Avoid.Labels {
		_, err := labels.Parse(text)
		add(fmt.Sprintf("avoid.labels[%d]", i), err)
	}
	if text := p.Spec.Avoid.CEL; text != "" {
		_, err := expression.Compile(text, true)
		add("avoid.cel", err)
	}
	return problems
}

// findObjectProblems returns what is invalid in the checks on objects of a policy.
func findObjectProblems(p *v1alpha1.DeploymentPolicy) []string {
	var problems []string
	if p.Spec.Health != nil {
		checks := make([]v1alpha1.ObjectCheck, 0, len(p.Spec.Health.Objects))
		for _, g := range p.Spec.Health.Objects {
			checks = append(checks, g.ObjectCheck)
		}
		problems = append(problems, FindObjectProblems("health.objects", checks, false)...)
	}
	if p.Spec.Proof != nil {
		problems = append(problems, FindObjectProblems("proof.objects", p.Spec.Proof.Objects, true)...)
	}
	for i, text := range problems {
		field, rest, _ := strings.Cut(text, " ")
		problems[i] = fmt.Sprintf("%s of DeploymentPolicy %s %s", field, p.Name, rest)
	}
	return problems
}
