// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
)

// What is read of a command's output: so much, on so many nodes.
const (
	mostOutput  = 16 << 10
	mostOutputs = 50
)

// readOutput finds what each node's command printed. What is not there any more is left out.
func (a *factory) readOutput(ctx context.Context, c client.Client, o *nodeopv1.NodeOp, all []endedNode) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, client.InNamespace(o.Namespace), client.MatchingLabels{nodeopv1.LabelNodeOp: o.Name}); err != nil {
		a.Warn("listing the pods of nodeop/%s: %v", o.Name, err)
		return
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Labels[nodeopv1.LabelReboot] != "" || p.Labels[nodeopv1.LabelPreflight] != "" {
			continue
		}
		for j := range all[:min(len(all), mostOutputs)] {
			if all[j].Node != p.Spec.NodeName {
				continue
			}
			if text := a.printed(ctx, p); text != "" {
				all[j].Output = text
			}
		}
	}
}

// printed is what the first container of a pod printed last.
func (a *factory) printed(ctx context.Context, p *corev1.Pod) string {
	config, err := a.restConfig()
	if err != nil {
		return ""
	}
	core, err := coreclient.NewForConfig(config)
	if err != nil || len(p.Spec.Containers) == 0 {
		return ""
	}
	limit := int64(mostOutput)
	in, err := core.Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: p.Spec.Containers[0].Name, LimitBytes: &limit}).Stream(ctx)
	if err != nil {
		a.Note("reading the log of pod %s: %v", p.Name, err)
		return ""
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, mostOutput))
	if err != nil {
		a.Note("reading the log of pod %s: %v", p.Name, err)
	}
	return string(text)
}
