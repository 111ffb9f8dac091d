// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package handover asks other programs for nodes, before the first pod leaves them. The engine decides when: see rollout.Handover.
package handover

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Asker is whom a rollout asks for its nodes.
type Asker struct {
	Rollout rollout.Ref
	Holder  string // the rollout, as records on nodes name it
	Steps   []v1alpha1.HandoverStep
}

// find returns a step by its name; nil if there is none.
func (a Asker) find(name string) *v1alpha1.HandoverStep {
	at := slices.IndexFunc(a.Steps, func(s v1alpha1.HandoverStep) bool { return s.Name == name })
	if at < 0 {
		return nil
	}
	return &a.Steps[at]
}

// render returns the object that a step creates for a node, and how the node records it; nil if it creates none.
func (a Asker) render(step *v1alpha1.HandoverStep, n *node.Node) (*unstructured.Unstructured, *node.HandoverObject, error) {
	o, err := policy.RenderObject(step, n.Name)
	if o == nil || err != nil {
		return nil, nil, err
	}
	recorded := &node.HandoverObject{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
	o.SetLabels(labels.Merge(o.GetLabels(), labels.Set{v1alpha1.LabelHandover: toLabel(a.Rollout.Title())}))
	o.SetAnnotations(labels.Merge(o.GetAnnotations(), labels.Set{v1alpha1.AnnotationHandover: formatCreated(n, *recorded)}))
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)} // so that it goes with the node
	o.SetOwnerReferences(append(o.GetOwnerReferences(), owner))
	return o, recorded, nil
}

// formatCreated returns when an object was created for the present holders of a node, as its annotation says it.
func formatCreated(n *node.Node, o node.HandoverObject) string {
	return n.CreatedAt(o).UTC().Format(time.RFC3339)
}

var noLabelCharacters = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// toLabel returns a text as the value of a label.
func toLabel(text string) string {
	text = noLabelCharacters.ReplaceAllString(text, "-")
	return strings.Trim(text[:min(len(text), 63)], "._-")
}

// isOurs reports whether an object was created to ask for a node.
func isOurs(o *unstructured.Unstructured, n *node.Node) bool {
	_, isLabelled := o.GetLabels()[v1alpha1.LabelHandover]
	return isLabelled && slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return string(r.UID) == n.UID })
}

// checkAnswers says why an object with the name of one that is to answer does not: it answers somebody else, or an earlier hold.
func checkAnswers(o *unstructured.Unstructured, n *node.Node, recorded node.HandoverObject) (problem string, isAbsent bool) {
	switch {
	case !isOurs(o, n):
		return "exists and is not ours: change metadata.name of object, or delete it", false
	case o.GetDeletionTimestamp() != nil:
		return "is being deleted; it is created again when it is gone", true
	case o.GetAnnotations()[v1alpha1.AnnotationHandover] != formatCreated(n, recorded):
		return "was created for an earlier hold; it is created again", true
	}
	return "", false
}

// Question returns the question of the step that is asked for a node, and whether one is.
func (a Asker) Question(n *node.Node) (q gates.Question, isAsked bool) {
	recorded := n.HandoverTo(a.Holder)
	step := a.find(recorded.Step)
	if recorded.Done || recorded.Since == nil || step == nil {
		return q, false
	}
	q = gates.Question{Rollout: a.Rollout, Node: n.Name, Asked: gates.Asked{Step: step.Name, Since: *recorded.Since}}
	check := v1alpha1.ObjectCheck{CEL: step.CEL}
	if step.Objects != nil {
		check.ObjectSelector = *step.Objects
	}
	if _, object, _ := a.render(step, n); object != nil {
		check.ObjectSelector = v1alpha1.ObjectSelector{APIVersion: object.APIVersion, Kind: object.Kind, Namespace: object.Namespace, Name: object.Name}
		q.Asked.Accept = func(o *unstructured.Unstructured) (problem string, isAbsent bool) { return checkAnswers(o, n, *object) }
	}
	q.Checks = []v1alpha1.ObjectCheck{check}
	return q, true
}

// Compile returns how far the handover of a node is; nil while nobody is asked. Without an answer it is nil. Refused says why its object could
// not be created a moment ago; empty if it could.
func (a Asker) Compile(n *node.Node, answer *gates.Answer, refused string) *rollout.Handover {
	recorded := n.HandoverTo(a.Holder)
	if recorded.Since == nil {
		return nil
	}
	out := &rollout.Handover{Step: recorded.Step, Since: *recorded.Since, Done: recorded.Done}
	missing := func(text string) *rollout.Why {
		return &rollout.Why{Reason: rollout.ReasonHandover, About: "Node " + n.Name, Text: text}
	}
	switch {
	case out.Done:
	case answer == nil:
		out.Missing = missing("its answer is read next")
	case answer.Absent && refused != "":
		out.Missing = missing(refused)
	case answer.Missing != "":
		out.Missing, out.Absent = missing(answer.Missing), answer.Absent
	}
	return out
}

// Edit returns the edit of a node that records that a step is asked, or with an empty name that all have answered.
func (a Asker) Edit(name string, n *node.Node, now time.Time) (node.Edit, error) {
	if name == "" {
		return n.AskHandover(a.Holder, "", nil, now), nil
	}
	step := a.find(name)
	if step == nil {
		return node.Edit{}, fmt.Errorf("the policy of %s has no step %s", a.Rollout.Title(), name)
	}
	_, object, err := a.render(step, n)
	if err != nil {
		return node.Edit{}, fmt.Errorf("rendering the object of step %s: %w", step.Name, err)
	}
	return n.AskHandover(a.Holder, step.Name, object, now), nil
}
