// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// affect does to other objects what an action asks for. What it changes on the node is written already.
func (r *round) affect(ctx context.Context, a rollout.Action, n *skyhook.Node) error {
	switch a.Verb {
	case rollout.VerbRun:
		return r.run(ctx, a, n)
	case rollout.VerbEvict:
		return r.evict(ctx, a)
	case rollout.VerbRetire:
		if a.Wipe || a.Why.Reason == rollout.ReasonLeft {
			return r.undescribe(ctx, a, n)
		}
	}
	return nil
}

// run creates a task's pod. A pod of that name that is ours and was made from the same content is success.
func (r *round) run(ctx context.Context, a rollout.Action, n *skyhook.Node) error {
	if op := r.op(a.Rollout); op != nil {
		return r.runOp(ctx, op, a, n)
	}
	by := r.o.compiled[a.Rollout]
	pod, err := by.Object(a.Task, n)
	if err != nil {
		return fmt.Errorf("making the pod of %s: %w", a.Task, err)
	}
	want := maps.Clone(pod.Annotations)
	r.options.Creating(a.Node)
	err = r.createPod(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return r.recognise(ctx, a, pod, want)
	}
	if err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	r.writes.Pods.PutCreated(StripPod(pod))
	return nil
}

// recognise accepts a pod that exists when it is the one that was to be created.
func (r *round) recognise(ctx context.Context, a rollout.Action, pod *corev1.Pod, want map[string]string) error {
	found := &corev1.Pod{}
	if err := r.options.Live.Get(ctx, client.ObjectKeyFromObject(pod), found); err != nil {
		return fmt.Errorf("reading pod %s, which exists already: %w", pod.Name, err)
	}
	owner := metav1.GetControllerOf(found)
	if owner == nil || string(owner.UID) != r.o.compiled[a.Rollout].Rollout.UID {
		return fmt.Errorf("pod %s/%s exists and belongs to somebody else: delete it", pod.Namespace, pod.Name)
	}
	r.writes.Pods.PutCreated(StripPod(found))
	for key, value := range want {
		if found.Annotations[key] != value || found.DeletionTimestamp != nil {
			return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("an earlier pod of this name has not gone yet"))
		}
	}
	return nil
}

// sweep deletes a pod of ours, the one that was observed and no later one of its name.
func (r *round) sweep(ctx context.Context, a rollout.Action) error {
	if op := r.op(a.Rollout); op != nil {
		return r.sweepOp(ctx, op, a)
	}
	for _, p := range r.o.Pods {
		if p.Name != a.Object || p.DeletionTimestamp != nil {
			continue
		}
		if err := r.deletePod(ctx, p); err != nil {
			return err
		}
		writecache.PutDeleting(r.writes.Pods, p)
	}
	return nil
}

// describe writes the node's labels and annotations for the pods of an admission to read.
func (r *round) describe(ctx context.Context, n *skyhook.Node, actions []rollout.Action) error {
	for _, a := range actions {
		if a.Verb != rollout.VerbAdmit || r.o.compiled[a.Rollout] == nil {
			continue
		}
		m := r.o.compiled[a.Rollout].NodeMetadata(n)
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		m.ManagedFields = nil
		if err := r.upsert(ctx, m); err != nil {
			return fmt.Errorf("writing ConfigMap %s: %w", m.Name, err)
		}
	}
	return nil
}

// upsert creates or replaces a ConfigMap in one request.
func (r *round) upsert(ctx context.Context, m *corev1.ConfigMap) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	answer := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	return r.options.Client.Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, raw), client.ForceOwnership, client.FieldOwner("skyhook-operator"))
}

// undescribe deletes the node's metadata once nothing of the rollout is left on the node.
func (r *round) undescribe(ctx context.Context, a rollout.Action, n *skyhook.Node) error {
	by := r.o.compiled[a.Rollout]
	if by == nil { // an orphan's: it went with its Skyhook
		return nil
	}
	return r.deleteConfigMap(ctx, by.NodeMetadata(n).Name)
}
