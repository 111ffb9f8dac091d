// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// startPull creates the pod that pulls images before their turn.
func (w podWriter) startPull(ctx context.Context, a rollout.Action, n *node.Node) error {
	by := w.compiled.Skyhooks[a.Rollout]
	if pod := by.PullPod(n); pod != nil {
		return w.createCheckPod(ctx, by, pod)
	}
	return nil
}

// keepPulls keeps in a stripped pod what its containers pull, and what the node says that it is, if it pulls images before their turn.
func keepPulls(stripped *corev1.Pod, containers []corev1.Container, statuses []corev1.ContainerStatus) {
	if stripped.Labels[v1alpha1.LabelPrepull] == "" {
		return
	}
	for _, c := range containers {
		stripped.Spec.Containers = append(stripped.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	stripped.Status.ContainerStatuses = summariseContainers(statuses)
	for i := range statuses {
		stripped.Status.ContainerStatuses[i].ImageID = statuses[i].ImageID
	}
}
