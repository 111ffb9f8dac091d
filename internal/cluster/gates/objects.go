// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/expression"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// An answer about objects counts for a time that begins with shortestAnswer and doubles up to AnswerLifetime while a node waits.
const shortestAnswer = 2 * time.Second

// What one pass reads at most. The remaining questions wait for the next pass.
const (
	maxReads    = 100 // lists and objects, and queries
	maxReadTime = time.Second
	maxObjects  = 500     // of one selector
	maxHeld     = 8 << 20 // bytes of objects, about
	pageSize    = 50      // objects
)

// maxQuoted is the most bytes of an expression or an error in a sentence.
const maxQuoted = 160

// Question asks whether objects allow that a node is given back.
type Question struct {
	Rollout rollout.Ref
	Proof   int // which of the proofs of the rollout
	Node    string
	Checks  []v1alpha1.ObjectCheck
	Asked   Asked // of a step of a handover, which has one check
}

// Answer is what was found about a question.
type Answer struct {
	Missing string // what is not true, as a sentence without a full stop; empty for nothing
	Absent  bool   // the object that was created for the question does not exist
}

// ObjectChecker answers questions about objects. An answer counts for a while, so that not each pass reads the objects.
type ObjectChecker struct{ answers map[questionKey]objectAnswer }

type questionKey struct {
	rollout rollout.Ref
	proof   int
	node    string
	step    string
	since   int64
}

func (q Question) key() questionKey {
	return questionKey{q.Rollout, q.Proof, q.Node, q.Asked.Step, q.Asked.Since.Unix()}
}

type objectAnswer struct {
	Answer
	checks   []v1alpha1.ObjectCheck
	at       time.Time
	lifetime time.Duration
}

func (a objectAnswer) expires() time.Time { return a.at.Add(a.lifetime) }

// Ask returns the answers by the position of the question: none for a question that has no answer yet. It also returns when to ask again;
// zero for never.
func (c *ObjectChecker) Ask(ctx context.Context, live client.Reader, questions []Question, now time.Time) (answers map[int]Answer, retryAt time.Time) {
	known := make(map[questionKey]objectAnswer, len(questions))
	var due []int
	for i, q := range questions {
		a, isKnown := c.answers[q.key()]
		if isKnown && !reflect.DeepEqual(a.checks, q.Checks) {
			a, isKnown = objectAnswer{}, false
		}
		if isKnown {
			known[q.key()] = a
		}
		if !isKnown || !now.Before(a.expires()) {
			due = append(due, i)
		}
	}
	slices.SortStableFunc(due, func(a, b int) int { return known[questions[a].key()].at.Compare(known[questions[b].key()].at) })
	r := newObjectReader(live)
	for _, i := range due {
		if r.isExhausted() {
			retryAt = now
			break
		}
		q := questions[i]
		before := known[q.key()]
		a := objectAnswer{checks: q.Checks, at: now, lifetime: min(max(2*before.lifetime, shortestAnswer), AnswerLifetime)}
		if q.Asked.Step == "" {
			a.Missing = r.findMissing(ctx, q.Checks, q.Node)
		} else {
			a.Answer = r.ask(ctx, q)
		}
		if a.Absent { // it is created now
			a.lifetime = shortestAnswer
		}
		known[q.key()] = a
	}
	c.answers = known
	answers = make(map[int]Answer, len(questions))
	for i, q := range questions {
		a, isKnown := known[q.key()]
		if !isKnown {
			continue
		}
		answers[i] = a.Answer
		if a.Missing != "" && (retryAt.IsZero() || a.expires().Before(retryAt)) {
			retryAt = a.expires()
		}
	}
	return answers, retryAt
}

// checkObjects returns the first gates on objects that do not pass. What is known of the other gates decides which are checked:
// none if the rollout stops, and if nothing starts anyway only those that stop it.
func (r *objectReader) checkObjects(ctx context.Context, p *v1alpha1.DeploymentPolicy, known findings) (found findings) {
	for _, g := range p.Spec.Health.Objects {
		isClosed := known.closed != nil || found.closed != nil
		isNeeded := !isClosed || g.OnFailure == v1alpha1.GateStop
		if known.failed == nil && found.failed == nil && isNeeded {
			found.add(r.check(ctx, g.ObjectCheck, "").classify(p, g.OnFailure))
		}
	}
	return found
}

// objectReader reads each object once for all checks of a pass, as long as what it holds is not too large.
type objectReader struct {
	live  client.Reader
	known map[objectKey]objectsRead
	held  int // bytes of the known objects, about
	reads int
	began time.Time
}

type objectKey struct {
	apiVersion, kind, namespace, name, selector string
	node                                        string // of pods: only those on it
}

type objectsRead struct {
	objects []unstructured.Unstructured
	size    int // bytes, about
	problem string
	isNone  bool // the problem is that none exists
}

func newObjectReader(live client.Reader) *objectReader {
	return &objectReader{live: live, known: map[objectKey]objectsRead{}, began: time.Now()}
}

func (r *objectReader) isExhausted() bool {
	return r.reads >= maxReads || time.Since(r.began) > maxReadTime
}

// findMissing returns the first check that does not pass, as a sentence without a full stop; empty when all pass. Without a node the
// checks are about the cluster.
func (r *objectReader) findMissing(ctx context.Context, checks []v1alpha1.ObjectCheck, node string) string {
	for _, check := range checks {
		if found := r.check(ctx, check, node); found.text != "" {
			return found.text
		}
	}
	return ""
}

// check checks the objects of one check. An object that does not meet it comes before one for which there is no answer.
func (r *objectReader) check(ctx context.Context, check v1alpha1.ObjectCheck, node string) finding {
	e, err := expression.Compile(check.CEL, node != "")
	if err != nil { // the object was checked when it was compiled, by the same rules
		return finding{text: fmt.Sprintf("cel %q cannot be used: %s", rollout.Truncate(check.CEL, maxQuoted), rollout.Truncate(err.Error(), maxQuoted))}
	}
	found := r.read(ctx, newObjectKey(check.ObjectSelector, node))
	if found.problem != "" {
		return finding{text: found.problem}
	}
	return r.evaluate(ctx, e, check, node, found.objects)
}

func newObjectKey(s v1alpha1.ObjectSelector, node string) objectKey {
	key := objectKey{apiVersion: s.APIVersion, kind: s.Kind, namespace: s.Namespace, name: strings.ReplaceAll(s.Name, v1alpha1.NodeNameVariable, node)}
	if selector, err := labels.Parse(s.Selector); err == nil && s.Selector != "" { // it was checked when it was compiled, by the same rules
		key.selector = selector.String()
	}
	return key
}

// evaluate evaluates the expression of a check about each of some objects.
func (r *objectReader) evaluate(ctx context.Context, e *expression.Expression, check v1alpha1.ObjectCheck, node string, objects []unstructured.Unstructured) (first finding) {
	var of map[string]any
	if e.UsesNode() {
		nodes := r.read(ctx, objectKey{apiVersion: "v1", kind: "Node", name: node})
		if nodes.problem != "" {
			return finding{text: nodes.problem}
		}
		of = nodes.objects[0].Object
	}
	for _, o := range objects {
		switch isTrue, err := e.IsTrue(ctx, o.Object, of); {
		case err != nil && first.text == "":
			first.object, first.text = &o, fmt.Sprintf("cel %q gives no answer for %s: %s", rollout.Truncate(check.CEL, maxQuoted), titleOf(check.Kind, &o), rollout.Truncate(err.Error(), maxQuoted))
		case err == nil && !isTrue:
			return finding{fmt.Sprintf("%s does not meet %s", titleOf(check.Kind, &o), rollout.Truncate(check.CEL, maxQuoted)), true, &o}
		}
	}
	return first
}

func titleOf(kind string, o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// read reads the objects of a key, unless they were read before.
func (r *objectReader) read(ctx context.Context, key objectKey) objectsRead {
	found, isKnown := r.known[key]
	if !isKnown {
		if r.held > maxHeld/2 {
			clear(r.known)
			r.held = 0
		}
		found = r.fetch(ctx, key)
		r.held += found.size
		r.known[key] = found
		r.reads++
	}
	return found
}

// fetch reads objects of any kind. Nodes may only be listed.
func (r *objectReader) fetch(ctx context.Context, key objectKey) objectsRead {
	if r.live == nil {
		return objectsRead{problem: key.title() + " cannot be read without a cluster"}
	}
	gvk := schema.FromAPIVersionAndKind(key.apiVersion, key.kind)
	isNode := gvk == schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	if key.name != "" && !isNode {
		one := unstructured.Unstructured{}
		one.SetGroupVersionKind(gvk)
		if err := r.live.Get(ctx, client.ObjectKey{Namespace: key.namespace, Name: key.name}, &one); err != nil {
			return objectsRead{problem: key.describe(err, "get"), isNone: apierrors.IsNotFound(err)}
		}
		return objectsRead{objects: []unstructured.Unstructured{one}, size: sizeOf(one.Object)}
	}
	options := []client.ListOption{client.InNamespace(key.namespace), client.Limit(pageSize)}
	if key.node != "" {
		options = append(options, client.MatchingFields{"spec.nodeName": key.node})
	}
	if key.name != "" {
		options = append(options, client.MatchingFields{"metadata.name": key.name})
	} else if selector, err := labels.Parse(key.selector); err == nil {
		options = append(options, client.MatchingLabelsSelector{Selector: selector})
	}
	var found objectsRead
	for next := ""; ; {
		list := unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := r.live.List(ctx, &list, append(options, client.Continue(next))...); err != nil {
			return objectsRead{problem: key.describe(err, "list")}
		}
		for i := range list.Items {
			found.size += sizeOf(list.Items[i].Object)
		}
		found.objects, next = append(found.objects, list.Items...), list.GetContinue()
		switch {
		case found.size > maxHeld:
			return objectsRead{problem: fmt.Sprintf("the objects %s have more than %d MiB together: narrow the selector", key.title(), maxHeld>>20)}
		case next != "" && len(found.objects) >= maxObjects:
			return objectsRead{problem: fmt.Sprintf("there are more than %d of %s: narrow the selector", maxObjects, key.title())}
		case next != "":
		case len(found.objects) > 0:
			return found
		case key.name != "":
			return objectsRead{problem: key.title() + " does not exist"}
		default:
			return objectsRead{problem: "there is no " + key.title(), isNone: true}
		}
	}
}

// sizeOf is about how many bytes a part of an object has as JSON.
func sizeOf(part any) int {
	size := 8
	switch v := part.(type) {
	case string:
		size += len(v)
	case []any:
		for _, item := range v {
			size += sizeOf(item)
		}
	case map[string]any:
		for key, item := range v {
			size += len(key) + sizeOf(item)
		}
	}
	return size
}

func (k objectKey) title() string {
	switch {
	case k.name == "" && k.namespace == "":
		return k.kind + " with " + k.selector
	case k.name == "":
		return k.kind + " with " + k.selector + " in " + k.namespace
	case k.namespace == "":
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

// DescribeError says why an object could not be read, created or deleted, and what to do about it.
func DescribeError(o *unstructured.Unstructured, err error, verb string) string {
	return objectKey{apiVersion: o.GetAPIVersion(), kind: o.GetKind(), namespace: o.GetNamespace(), name: o.GetName()}.describe(err, verb)
}

// done are verbs as what was done.
var done = map[string]string{"get": "read", "list": "read", "create": "created", "delete": "deleted"}

// describe says why objects could not be read, created or deleted, and what to do about it.
func (k objectKey) describe(err error, verb string) string {
	var status apierrors.APIStatus
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Sprintf("the API server does not know %s of %s: install it, or correct apiVersion and kind", k.kind, k.apiVersion)
	case apierrors.IsForbidden(err) && errors.As(err, &status) && status.Status().Details != nil:
		of := status.Status().Details
		resource := schema.GroupResource{Group: of.Group, Resource: of.Kind}
		return fmt.Sprintf("%s may not be %s: grant %q on %s in a ClusterRole with the label %s=true", k.title(), done[verb], verb, resource, v1alpha1.LabelAggregate)
	case apierrors.IsNotFound(err) && verb != "create":
		return k.title() + " does not exist"
	}
	return fmt.Sprintf("%s cannot be %s: %s", k.title(), done[verb], cmp.Or(rollout.Truncate(err.Error(), maxQuoted), "unknown error"))
}
