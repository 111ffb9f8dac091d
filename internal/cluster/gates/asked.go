// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skyhook-k8s/skyhook/internal/expression"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Asked is a step of a handover. Its check has no kind when it is about the node alone.
type Asked struct {
	Step  string    // empty for a question of a proof
	Since time.Time // an answer to an earlier question does not count
	// of the object that was created for it: why it does not count, or that it is as if there were none; nil for objects of others
	Accept func(*unstructured.Unstructured) (problem string, isAbsent bool)
}

// ask answers the question of a step. What was asked about and does not exist asks nobody, unless it was created for that or is named.
func (r *objectReader) ask(ctx context.Context, q Question) Answer {
	check := q.Checks[0]
	compile := func(text string) (*expression.Expression, error) { return expression.Compile(text, true) }
	key := newObjectKey(check.ObjectSelector, q.Node)
	isNode := check.Kind == ""
	if isNode {
		compile = expression.CompileForNode
		check.Kind, key = "Node", objectKey{apiVersion: "v1", kind: "Node", name: q.Node}
	} else if schema.FromAPIVersionAndKind(check.APIVersion, check.Kind) == (schema.GroupVersionKind{Version: "v1", Kind: "Pod"}) {
		key.node = q.Node
	}
	e, err := compile(check.CEL)
	if err != nil { // it was checked when it was compiled, by the same rules
		return Answer{Missing: fmt.Sprintf("cel %q cannot be used: %s", rollout.Truncate(check.CEL, maxQuoted), rollout.Truncate(err.Error(), maxQuoted))}
	}
	found := r.read(ctx, key)
	switch {
	case found.isNone && check.Selector != "":
		return Answer{}
	case found.problem != "":
		return Answer{Missing: found.problem, Absent: found.isNone && q.Asked.Accept != nil}
	case q.Asked.Accept != nil:
		if problem, isAbsent := q.Asked.Accept(&found.objects[0]); problem != "" {
			return Answer{Missing: titleOf(check.Kind, &found.objects[0]) + " " + problem, Absent: isAbsent}
		}
	}
	missing := r.evaluate(ctx, e, check, q.Node, found.objects)
	if said := describeState(missing.object); said != "" && !isNode {
		missing.text += "; it says " + said
	}
	return Answer{Missing: missing.text}
}

// describeState returns what an object says about itself: its condition that changed last, or else its phase or state; empty for nothing.
func describeState(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	said, last := "", ""
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		text := func(key string) string { value, _ := c[key].(string); return value }
		if at := text("lastTransitionTime"); text("type") != "" && (said == "" || at > last) { // RFC 3339, in UTC
			last = at
			said = text("type") + "=" + text("status")
			if reason := text("reason"); reason != "" {
				said += " (" + reason + ")"
			}
			if message := text("message"); message != "" {
				said += ": " + message
			}
		}
	}
	for _, key := range []string{"phase", "state"} {
		if value, _ := status[key].(string); said == "" && value != "" {
			said = key + " " + value
		}
	}
	return rollout.Truncate(said, maxQuoted)
}
