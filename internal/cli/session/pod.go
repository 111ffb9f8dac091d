// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WithPod creates a pod of the plugin, and deletes it when a function has ended, which may take as long as the timeout.
func (f *Factory) WithPod(ctx context.Context, c client.Client, p *corev1.Pod, timeout time.Duration, do func(context.Context) error) error {
	if err := c.Create(ctx, p); err != nil {
		return fmt.Errorf("node %s: creating a pod in namespace %s: %w", p.Spec.NodeName, p.Namespace, err)
	}
	defer func() { // also after an interrupt, and while the kubelet does not answer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := client.IgnoreNotFound(c.Delete(ctx, p, client.GracePeriodSeconds(0))); err != nil {
			f.Warn("deleting pod %s/%s: %v", p.Namespace, p.Name, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("node %s: pod %s/%s: %w", p.Spec.NodeName, p.Namespace, p.Name, err)
	}
	return nil
}
