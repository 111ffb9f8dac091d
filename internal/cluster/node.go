// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/node"
	oprecord "github.com/skyhook-k8s/skyhook/internal/nodeop/record"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// nodeWriter carries out the work on nodes, in two parts.
type nodeWriter struct{ *pass }

// begin does everything on a node that others wait for.
//
// All that changes on the node itself is one patch, written before any object is created or evicted: a pod only runs
// when the node records it. An error of one rollout leaves out what that rollout does there, and nothing else.
func (w nodeWriter) begin(ctx context.Context, work *nodeWork) error {
	work.actions = w.possibleActions(work.actions)
	n := w.objects.Node(work.node)
	if n == nil { // its records went with it; what is left are objects
		work.deletions = work.actions
		return nil
	}
	work.withdrawn = withdraw(ctx, w.pass, n)
	edit, after := w.buildEdit(ctx, n, work)
	failed := len(work.failed)
	withoutMetadata := podWriter(w).applyNodeMetadata(ctx, after, work)
	if len(work.failed) > failed {
		edit, after = w.buildEdit(ctx, n, work)
	}
	work.actions = work.withoutFailed(work.actions)
	w.options.OnRequest(work.node, w.objects.observedAt)
	var err error
	if work.after, work.conditions, err = w.writeNode(ctx, n, edit, after, work); err != nil {
		return err
	}
	work.changed = edit.TouchesNode() && work.kind != workChecks
	for _, e := range work.adopted {
		work.done = append(work.done, e.Done...)
	}
	for _, a := range work.actions {
		switch {
		case work.failed[a.Rollout]:
		case a.Verb == rollout.VerbSweep:
			work.deletions = append(work.deletions, a)
		default:
			w.applyAction(ctx, work, a, withoutMetadata[a.Rollout])
		}
	}
	return nil
}

// applyAction does what an action asks for beyond the node itself, unless the metadata that a pod mounts was refused.
func (w nodeWriter) applyAction(ctx context.Context, work *nodeWork, a rollout.Action, metadataErr error) {
	pods := podWriter(w)
	err := metadataErr
	if err == nil || a.Verb != rollout.VerbRun {
		err = pods.apply(ctx, a, work.after)
	}
	if pods.rememberRefusal(a, err) {
		return
	}
	if err != nil {
		w.failRollout(ctx, work, a, err)
		return
	}
	changesObjects := slices.Contains([]rollout.Verb{rollout.VerbRun, rollout.VerbEvict, rollout.VerbRecall}, a.Verb)
	work.changed = work.changed || changesObjects
	work.done = append(work.done, a)
}

// rememberRefusal remembers a refused request, and reports whether this is one. A refused task is observed as a failed attempt;
// the other requests of the node are made all the same.
func (w podWriter) rememberRefusal(a rollout.Action, err error) bool {
	q := request{rollout: a.Rollout, node: a.Node}
	switch a.Verb {
	case rollout.VerbRun:
		q.task = a.Task
	case rollout.VerbVerify:
		q.task = node.TaskCheck
	case rollout.VerbPull:
		q.task = node.TaskPull
	default:
		q.object = string(a.Verb)
	}
	if !isRefused(err) {
		w.refused.remove(q)
		return false
	}
	w.inFlight.recordRefusal(a.Rollout, w.refused.add(q, err, w.now))
	if q.task != "" {
		w.inFlight.retry(w.now) // the next pass records it
	}
	return true
}

// finish writes the conditions of the node, and deletes objects whose outcome is recorded by now, if that is no work of its own.
func (w nodeWriter) finish(ctx context.Context, work *nodeWork) error {
	var err error
	if work.after != nil && work.conditions.TouchesStatus() {
		_, err = w.try(request{node: work.node, object: "status"}, func() error { return w.writeConditions(ctx, work) })
	}
	if err == nil && work.deletesItself() {
		w.deleteObjects(ctx, work)
	}
	return err
}

func (w nodeWriter) deleteObjects(ctx context.Context, work *nodeWork) {
	for _, a := range work.deletions {
		if a.Verb != rollout.VerbSweep {
			work.done = append(work.done, a)
			continue
		}
		isAccepted, isDeleted, err := podWriter(w).tryDelete(ctx, a)
		if err != nil {
			w.failRollout(ctx, work, a, err)
		}
		work.changed = work.changed || isDeleted && work.kind != workChecks && work.kind != workDeletions
		if isAccepted {
			work.done = append(work.done, a)
		}
	}
}

func (w nodeWriter) writeConditions(ctx context.Context, work *nodeWork) error {
	version, err := w.patchNodeStatus(ctx, work.after, work.conditions.StatusPatch(work.after.ResourceVersion))
	if err != nil {
		return fmt.Errorf("patching the status of the node: %w", err)
	}
	work.changed = true
	after := work.after.With(work.conditions)
	after.ResourceVersion = version
	w.writes.Nodes.Put(after)
	return nil
}

// possibleActions leaves out what is not done in this pass: actions of a rollout that is not ready, and everything from the
// first action on whose ledger was not written.
func (w nodeWriter) possibleActions(actions []rollout.Action) []rollout.Action {
	isDenied := func(a rollout.Action) bool { return !a.Ledger.IsZero() && w.denied[a.Ledger] }
	isLeftOut := func(a rollout.Action) bool { return isDenied(a) || w.isWithheld(a) }
	if !slices.ContainsFunc(actions, isLeftOut) {
		return actions
	}
	var out []rollout.Action
	for _, a := range actions {
		if isDenied(a) {
			break
		}
		if !w.isWithheld(a) {
			out = append(out, a)
		}
	}
	return out
}

// buildEdit makes one edit of everything that changes on the node. A rollout with an action that has no edit is left out.
func (w nodeWriter) buildEdit(ctx context.Context, n *node.Node, work *nodeWork) (node.Edit, *node.Node) {
	for {
		edit, after, failed, err := w.tryBuildEdit(n, work)
		if err == nil {
			return edit, after
		}
		w.failRollout(ctx, work, failed, err)
	}
}

// tryBuildEdit makes that edit, or returns the first action that has none.
func (w nodeWriter) tryBuildEdit(n *node.Node, work *nodeWork) (edit node.Edit, after *node.Node, failed rollout.Action, err error) {
	was := n
	add := func(e node.Edit) {
		if !e.Empty() {
			edit, n = edit.Plus(e), n.With(e)
		}
	}
	if n.HasEndedHandovers() {
		add(n.ForgetHandovers(work.withdrawn))
	}
	add(work.adoptedEdit())
	for _, a := range work.withoutFailed(work.actions) {
		e, err := w.editOf(a, n)
		if err != nil {
			return edit, n, a, err
		}
		add(e)
	}
	for _, u := range work.updates {
		add(u.by.Words(n, u.verdict))
	}
	add(w.announced.editOf(n))
	return edit.WithoutUnchanged(was), n, rollout.Action{}, nil
}

// editOf is what an action changes on its node.
func (w nodeWriter) editOf(a rollout.Action, n *node.Node) (node.Edit, error) {
	if a.Verb == rollout.VerbAsk {
		return w.objects.Handovers[a.Rollout].Edit(a.Object, n, w.now)
	}
	if op := w.nodeOp(a); op != nil {
		return oprecord.Change(a, &oprecord.Input{Operation: op.Operation, Node: n, Holds: w.objects.holds(n), Known: op.Node(a.Node), Now: op.Now})
	}
	by := w.compiled.Skyhooks[a.Rollout]
	if by == nil && (w.objects.Orphans[a.Rollout] || a.Rollout.IsZero()) {
		by = w.objects.compileDeleted(a.Rollout, n)
	}
	if by == nil {
		return node.Edit{}, errors.New("there is no such object")
	}
	return by.Change(a, n, w.objects.holds(n))
}

// writeNode patches a node, and returns it with the conditions that are still to be written. The node must still be the observed version:
// only then the write cache may have what the node is afterwards, and what somebody else wrote meanwhile is neither overwritten nor hidden.
func (w nodeWriter) writeNode(ctx context.Context, was *node.Node, edit node.Edit, after *node.Node, work *nodeWork) (*node.Node, node.Edit, error) {
	conditions := node.Edit{SetConditions: edit.SetConditions, RemoveConditions: edit.RemoveConditions}
	if !edit.TouchesNode() {
		return was, conditions, nil
	}
	written := *after
	var version string
	var err error
	hasConditions := w.mayHaveConditions(edit, work)
	if hasConditions {
		version, err = w.patchNodeStatus(ctx, was, edit.PatchWithStatus(was))
		hasConditions = !isRefused(err) // for one of them; the other may be written
	}
	if hasConditions {
		conditions = node.Edit{}
	} else {
		version, err = w.patchNode(ctx, was, edit.MergePatch(was))
		written.Conditions = was.Conditions
	}
	if err != nil {
		return nil, node.Edit{}, fmt.Errorf("patching the node: %w", err)
	}
	written.ResourceVersion = version
	w.writes.Nodes.Put(&written)
	return &written, conditions, nil
}

// mayHaveConditions reports whether metadata and conditions are one patch, of the status.
func (w nodeWriter) mayHaveConditions(edit node.Edit, work *nodeWork) bool {
	if !edit.TouchesStatus() || edit.TouchesSpec() || work.kind == workAdmission {
		return false
	}
	_, waits := w.refused.isWaiting(request{node: work.node, object: "status"}, w.now)
	return !waits
}

// patchNode patches a node, and returns its new version. The answer is its metadata only: a whole node is large.
func (a apiWriter) patchNode(ctx context.Context, n *node.Node, patch any) (version string, err error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return "", err
	}
	answer := newNodeMetadata(n)
	err = a.options.Client.Patch(ctx, answer, client.RawPatch(types.MergePatchType, raw))
	return answer.ResourceVersion, err
}

// patchNodeStatus patches the status of a node, and perhaps its metadata. It changes conditions by their type and leaves all others alone.
func (a apiWriter) patchNodeStatus(ctx context.Context, n *node.Node, patch any) (version string, err error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return "", err
	}
	answer := newNodeMetadata(n)
	err = a.options.Client.Status().Patch(ctx, answer, client.RawPatch(types.StrategicMergePatchType, raw))
	return answer.ResourceVersion, err
}

func newNodeMetadata(n *node.Node) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return m
}
