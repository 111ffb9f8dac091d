// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// podWriter creates, evicts and deletes the objects that actions ask for. What they change on the node is written before.
type podWriter struct{ *pass }

// apply does what an action asks for beyond the node itself.
func (w podWriter) apply(ctx context.Context, a rollout.Action, n *node.Node) error {
	switch a.Verb {
	case rollout.VerbRun:
		return w.runTask(ctx, a, n)
	case rollout.VerbVerify:
		return w.startCheck(ctx, a, n)
	case rollout.VerbRecall:
		return w.recallPod(ctx, a)
	case rollout.VerbPull:
		return w.startPull(ctx, a, n)
	case rollout.VerbEvict:
		return w.evictPod(ctx, a)
	case rollout.VerbAsk:
		return w.objects.Handovers[a.Rollout].Create(ctx, w.options.Client, a.Object, n)
	case rollout.VerbRetire:
		if a.Wipe || a.Why.Reason == rollout.ReasonLeft {
			return w.deleteNodeMetadata(ctx, a, n)
		}
	}
	return nil
}

// runTask creates a task's pod. A pod of that name that is ours and was made from the same content is success.
func (w podWriter) runTask(ctx context.Context, a rollout.Action, n *node.Node) error {
	if op := w.nodeOp(a); op != nil {
		return w.runOpTask(ctx, op, a, n)
	}
	by := w.compiled.Skyhooks[a.Rollout]
	pod, err := by.Object(a.Task, a.Then, n)
	if err != nil {
		return fmt.Errorf("making the pod of %s: %w", a.Task, err)
	}
	expected := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(pod.Annotations)}}
	podstate.TrimFiles(expected) // they have what the node was when the pod was made
	want := expected.Annotations
	w.options.OnPodCreate(a.Node)
	err = w.options.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return w.acceptExisting(ctx, by, pod, want)
	}
	if err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	w.writes.Pods.PutCreated(StripPod(pod))
	return nil
}

// recallPod tells a pod to end before its next stage. It is the observed version that is changed: how far the pod was then counts.
func (w podWriter) recallPod(ctx context.Context, a rollout.Action) error {
	p := w.objects.pod(a.Object)
	if p == nil || p.DeletionTimestamp != nil {
		return nil
	}
	changed := p.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[podstate.AnnotationStop] = a.Why.Text
	err := w.patchPodAnnotation(ctx, changed, podstate.AnnotationStop)
	if err != nil && !isGone(err) {
		return fmt.Errorf("telling pod %s to end before its next stage: %w", p.Name, err)
	}
	if err == nil {
		w.writes.Pods.Put(changed)
	}
	return nil
}

// startCheck creates the pod that checks a node.
func (w podWriter) startCheck(ctx context.Context, a rollout.Action, n *node.Node) error {
	by := w.compiled.Skyhooks[a.Rollout]
	if pod := by.CheckPod(n); pod != nil {
		return w.createCheckPod(ctx, by, pod)
	}
	return nil
}

func (w podWriter) createCheckPod(ctx context.Context, by *skyhook.Compiled, pod *corev1.Pod) error {
	err := w.options.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		err = w.acceptExisting(ctx, by, pod, nil)
	} else if err == nil {
		w.writes.Pods.PutCreated(StripPod(pod))
	}
	if err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}

// acceptExisting accepts an existing pod if it is the one that was to be created.
func (w podWriter) acceptExisting(ctx context.Context, by *skyhook.Compiled, pod *corev1.Pod, want map[string]string) error {
	found := &corev1.Pod{}
	if err := w.options.Live.Get(ctx, client.ObjectKeyFromObject(pod), found); err != nil {
		return fmt.Errorf("reading pod %s, which exists already: %w", pod.Name, err)
	}
	if !isControlledBy(found, by.Rollout.UID) {
		return fmt.Errorf("pod %s/%s exists, and %w: delete it", pod.Namespace, pod.Name, errForeign)
	}
	w.writes.Pods.PutCreated(StripPod(found))
	if found.DeletionTimestamp != nil || !containsAll(found.Annotations, want) {
		return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("an earlier pod of this name has not gone yet"))
	}
	return nil
}

// tryDelete deletes the object of an action, unless that was refused a moment ago. It reports whether that was accepted, and
// whether there was anything to delete.
func (w podWriter) tryDelete(ctx context.Context, a rollout.Action) (isAccepted, isDeleted bool, err error) {
	isAccepted, err = w.try(request{rollout: a.Rollout, node: a.Node, object: a.Object}, func() error {
		var err error
		isDeleted, err = w.deleteObject(ctx, a)
		return err
	})
	return isAccepted, isDeleted, err
}

// deleteObject deletes a pod or Job of ours, the one that was observed and no later one of its name. It reports whether
// there was anything to delete.
func (w podWriter) deleteObject(ctx context.Context, a rollout.Action) (isDeleted bool, err error) {
	if op := w.nodeOp(a); op != nil {
		return w.deleteOpObject(ctx, op, a)
	}
	p := w.objects.pod(a.Object)
	if p == nil || p.DeletionTimestamp != nil {
		return false, nil
	}
	if err := w.deletePod(ctx, p); err != nil {
		return false, err
	}
	writecache.PutDeleting(w.writes.Pods, p)
	return true, nil
}

func isControlledBy(o metav1.Object, uid string) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && string(owner.UID) == uid
}

func containsAll(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}
