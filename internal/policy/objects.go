// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

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
		findSelectorProblems(c.ObjectSelector, add)
		if !hasNode && strings.Contains(c.Name, v1alpha1.NodeNameVariable) {
			add("name", "has %s, and a health gate is not about one node: name one object, or use proof", v1alpha1.NodeNameVariable)
		}
		if _, err := expression.Compile(c.CEL, hasNode); err != nil {
			add("cel", "cannot be used: %s", rollout.Truncate(err.Error(), maxErrorText))
		}
	}
	return problems
}

// findSelectorProblems adds what is invalid in a selector of objects.
func findSelectorProblems(s v1alpha1.ObjectSelector, add func(name, format string, args ...any)) {
	if _, err := schema.ParseGroupVersion(s.APIVersion); err != nil {
		add("apiVersion", "%q is not a group and version: write one such as ceph.rook.io/v1", s.APIVersion)
	}
	if _, err := labels.Parse(s.Selector); err != nil {
		add("selector", "cannot be used: %s", rollout.Truncate(err.Error(), maxErrorText))
	}
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

// FindMarkProblems says which labels of nodeMarks cannot be set on nodes, or not without taking the nodes away from who selects them.
func FindMarkProblems(marks v1alpha1.NodeMarks, selector *metav1.LabelSelector) (problems []string) {
	selects := func(key string) bool {
		_, isMatched := selector.MatchLabels[key]
		return isMatched || slices.ContainsFunc(selector.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == key })
	}
	for _, key := range slices.Sorted(maps.Keys(marks.Labels)) {
		title := rollout.Truncate(key+"="+string(marks.Labels[key]), maxErrorText)
		add := func(text string) { problems = append(problems, "labels of nodeMarks have "+title+", "+text) }
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			add("which is no label: write a key such as example.com/deploy")
		case strings.Contains(key, v1alpha1.Group+"/"), key == corev1.LabelHostname, key == v1alpha1.LabelExcludeBalancers:
			add("which is not for others to set: use another label")
		case selects(key):
			add("by which nodes are selected: select them by another label")
		}
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
