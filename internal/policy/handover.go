// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/expression"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxTemplateBytes is the most bytes of an object of a handover.
const maxTemplateBytes = 4 << 10

// defaultHandoverTimeout is how long a step without a timeout may take.
const defaultHandoverTimeout = 30 * time.Minute

// handoverChoices are what happens after the timeout of a step.
var handoverChoices = map[v1alpha1.HandoverTimeout]rollout.DrainTimeout{
	v1alpha1.HandoverProceed: rollout.DrainForce, v1alpha1.HandoverGiveBack: rollout.DrainSkip,
}

// HandoverSteps returns the steps of a handover as the engine knows them.
func HandoverSteps(steps []v1alpha1.HandoverStep) []rollout.HandoverStep {
	out := make([]rollout.HandoverStep, len(steps))
	for i, s := range steps {
		out[i] = rollout.HandoverStep{Name: s.Name, Timeout: defaultHandoverTimeout, OnTimeout: handoverChoices[s.OnTimeout]}
		if s.Timeout != nil {
			out[i].Timeout = s.Timeout.Duration
		}
	}
	return out
}

// RenderObject returns the object that a step creates for a node; nil if it creates none.
func RenderObject(step *v1alpha1.HandoverStep, node string) (*unstructured.Unstructured, error) {
	if step.Object == nil {
		return nil, nil
	}
	var content map[string]any
	if err := json.Unmarshal(step.Object.Raw, &content); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: insertNodeName(content, node).(map[string]any)}
	if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetName() == "" {
		return nil, errors.New("it needs apiVersion, kind and metadata.name")
	}
	return object, nil
}

// insertNodeName returns a part of an object with the name of a node in its strings.
func insertNodeName(part any, node string) any {
	switch v := part.(type) {
	case string:
		return strings.ReplaceAll(v, v1alpha1.NodeNameVariable, node)
	case []any:
		for i := range v {
			v[i] = insertNodeName(v[i], node)
		}
	case map[string]any:
		for key := range v {
			v[key] = insertNodeName(v[key], node)
		}
	}
	return part
}

// findHandoverProblems returns what is invalid in handover of a policy.
func findHandoverProblems(p *v1alpha1.DeploymentPolicy) (problems []string) {
	for i := range p.Spec.Handover {
		step := &p.Spec.Handover[i]
		add := func(name, format string, args ...any) {
			problems = append(problems, fmt.Sprintf("handover[%d].%s of DeploymentPolicy %s ", i, name, p.Name)+fmt.Sprintf(format, args...))
		}
		compile := expression.CompileForNode
		switch {
		case step.Objects != nil:
			compile = compileForObject
			findSelectorProblems(*step.Objects, func(name, format string, args ...any) { add("objects."+name, format, args...) })
		case step.Object != nil:
			compile = compileForObject
			if size := len(step.Object.Raw); size > maxTemplateBytes {
				add("object", "has %d bytes: leave out what is not needed, %d are the most", size, maxTemplateBytes)
			} else if _, err := RenderObject(step, "node"); err != nil {
				add("object", "cannot be used: %s", rollout.Truncate(err.Error(), maxErrorText))
			}
		}
		if _, err := compile(step.CEL); err != nil {
			add("cel", "cannot be used: %s", rollout.Truncate(err.Error(), maxErrorText))
		}
	}
	return problems
}

func compileForObject(text string) (*expression.Expression, error) {
	return expression.Compile(text, true)
}
