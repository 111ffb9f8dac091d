// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// begin does everything on a node that others wait for.
//
// All that changes on the node itself is one patch, written before any object is created or evicted: a pod only runs
// when the node records it.
func (r *round) begin(ctx context.Context, w *work) error {
	w.actions = r.possible(w.actions)
	n := r.o.nodes[w.node]
	if n == nil { // its records went with it; what is left are objects
		w.sweeps = w.actions
		return nil
	}
	edit, after, err := r.fold(n, w)
	if err != nil {
		return err
	}
	if err := r.describe(ctx, after, w.actions); err != nil {
		return err
	}
	if w.after, err = r.write(ctx, n, edit, after, w.exact || len(w.actions) > 0); err != nil {
		return err
	}
	w.status = skyhook.Edit{SetConditions: edit.SetConditions, RemoveConditions: edit.RemoveConditions}
	for _, a := range w.actions {
		if a.Verb == rollout.VerbSweep {
			w.sweeps = append(w.sweeps, a)
			continue
		}
		if err := r.affect(ctx, a, w.after); err != nil {
			return fmt.Errorf("%s %s: %w", a.Verb, a.Rollout, err)
		}
		w.done = append(w.done, a)
	}
	return nil
}

// end deletes objects whose outcome is recorded by now, and writes the node's conditions.
func (r *round) end(ctx context.Context, w *work) error {
	for _, a := range w.sweeps {
		if a.Verb == rollout.VerbSweep {
			if err := r.sweep(ctx, a); err != nil {
				return fmt.Errorf("%s %s: %w", a.Verb, a.Rollout, err)
			}
		}
		w.done = append(w.done, a)
	}
	if w.after == nil || !w.status.TouchesStatus() {
		return nil
	}
	version, err := r.patchNodeStatus(ctx, w.after, w.status)
	if err != nil {
		return fmt.Errorf("patching the status of the node: %w", err)
	}
	after := w.after.With(w.status)
	after.ResourceVersion = version
	r.writes.Nodes.Put(after)
	return nil
}

// possible leaves out what does not happen in this round: actions of a rollout that is not ready for work, and everything
// from the first action on whose ledger could not be written.
func (r *round) possible(actions []rollout.Action) []rollout.Action {
	var out []rollout.Action
	for _, a := range actions {
		if !a.Ledger.IsZero() && r.denied[a.Ledger] {
			break
		}
		if !r.stuck[a.Rollout] {
			out = append(out, a)
		}
	}
	return out
}

// fold makes one edit of everything that changes on the node.
func (r *round) fold(n *skyhook.Node, w *work) (skyhook.Edit, *skyhook.Node, error) {
	edit := w.extra
	if !edit.Empty() {
		n = n.With(edit)
	}
	add := func(e skyhook.Edit) {
		if !e.Empty() {
			edit, n = edit.Plus(e), n.With(e)
		}
	}
	for _, a := range w.actions {
		if op := r.op(a.Rollout); op != nil {
			e, err := r.changeOp(op, a, n)
			if err != nil {
				return edit, n, fmt.Errorf("%s %s: %w", a.Verb, a.Rollout, err)
			}
			add(e)
			continue
		}
		by := r.o.compiled[a.Rollout]
		if by == nil && r.o.Orphans[a.Rollout] {
			by = r.o.ghost(a.Rollout)
		}
		if by == nil {
			return edit, n, fmt.Errorf("%s: nobody knows %s", a.Verb, a.Rollout)
		}
		e, err := by.Change(a, n, r.o.allHolds(n))
		if err != nil {
			return edit, n, fmt.Errorf("%s %s: %w", a.Verb, a.Rollout, err)
		}
		if a.Verb == rollout.VerbHold && !n.Unschedulable { // nobody's cordon is older than ours now
			e = e.Plus(fromOp(nodeop.ClearFound(r.o.look(n))))
		}
		add(e)
	}
	for _, s := range w.say {
		add(s.by.Words(n, s.verdict))
	}
	return edit, n, nil
}

// write brings an edit to the node, but for its conditions. With exact, the node must still be the version that was
// observed; words alone are written whatever else changed, because they touch only keys that nobody else writes.
func (r *round) write(ctx context.Context, was *skyhook.Node, edit skyhook.Edit, after *skyhook.Node, exact bool) (*skyhook.Node, error) {
	if !edit.TouchesNode() {
		return was, nil
	}
	version, err := r.patchNode(ctx, was, nodePatch(r.newest(was), edit, exact))
	if err != nil {
		return nil, fmt.Errorf("patching the node: %w", err)
	}
	written := *after
	written.ResourceVersion, written.Conditions = version, was.Conditions
	r.writes.Nodes.Put(&written)
	return &written, nil
}

// nodePatch is a merge patch of the node without its status.
func nodePatch(was *skyhook.Node, e skyhook.Edit, exact bool) map[string]any {
	meta := map[string]any{"uid": was.UID}
	if exact || len(e.AddTaints)+len(e.RemoveTaints) > 0 {
		meta["resourceVersion"] = was.ResourceVersion
	}
	if len(e.Annotations) > 0 {
		meta["annotations"] = e.Annotations
	}
	if len(e.Labels) > 0 {
		meta["labels"] = e.Labels
	}
	patch := map[string]any{"metadata": meta}
	spec := map[string]any{}
	if e.Unschedulable != nil {
		spec["unschedulable"] = *e.Unschedulable
	}
	if len(e.AddTaints)+len(e.RemoveTaints) > 0 {
		spec["taints"] = was.With(skyhook.Edit{AddTaints: e.AddTaints, RemoveTaints: e.RemoveTaints}).Taints
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}

func (r *round) patchNode(ctx context.Context, n *skyhook.Node, patch any) (version string, err error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return "", err
	}
	m := nodeMeta(n)
	if err := r.options.Client.Patch(ctx, m, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return "", err
	}
	return m.ResourceVersion, nil
}

// patchNodeStatus changes conditions by their type and leaves all others alone.
func (r *round) patchNodeStatus(ctx context.Context, n *skyhook.Node, e skyhook.Edit) (version string, err error) {
	conditions := []any{}
	for _, t := range e.RemoveConditions {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": t})
	}
	for _, c := range e.SetConditions {
		conditions = append(conditions, c)
	}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return "", err
	}
	m := nodeMeta(n)
	if err := r.options.Client.Status().Patch(ctx, m, client.RawPatch(types.StrategicMergePatchType, raw)); err != nil {
		return "", err
	}
	return m.ResourceVersion, nil
}

// nodeMeta names a node so that the answer is its metadata only: a whole node is large.
func nodeMeta(n *skyhook.Node) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return m
}
