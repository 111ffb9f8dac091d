// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// Operator holds the settings that decisions are made with, and says where they were read.
type Operator struct {
	Source          string `json:"source,omitempty"` // empty in dumps of earlier plugins
	options.Options `json:",inline"`
}

// ErrNoOperator is returned when no operator was found, so that the defaults are used.
var ErrNoOperator = errors.New("no operator")

// FindOperator reads the operator's settings from its Deployment. With an error, the defaults replace what could not be read.
func (c *Cluster) FindOperator(ctx context.Context, namespace string, isOperator func(*appsv1.Deployment) bool) error {
	c.Operator = Operator{Source: "defaults", Options: *options.Defaults()}
	c.Operator.Namespace = namespace
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing deployments in namespace %s: %w", namespace, err)
	}
	i := slices.IndexFunc(list.Items, func(d appsv1.Deployment) bool { return isOperator(&d) })
	if i < 0 {
		return fmt.Errorf("%w in namespace %s", ErrNoOperator, namespace)
	}
	d := &list.Items[i]
	var unread []error
	settings, err := options.FromDeployment(d, c.leaderNode(ctx, d), func(name string) map[string]string {
		found := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found); err != nil {
			unread = append(unread, fmt.Errorf("ConfigMap %s: %w", name, err))
		}
		return found.Data
	})
	c.Operator = Operator{Source: "Deployment " + d.Namespace + "/" + d.Name, Options: *settings}
	if err := errors.Join(append(unread, err)...); err != nil {
		return fmt.Errorf("settings of the operator in %s: %w", c.Operator.Source, err)
	}
	return nil
}

// leaderNode is the node that the leading operator runs on; empty when that cannot be told.
func (c *Cluster) leaderNode(ctx context.Context, d *appsv1.Deployment) string {
	if c.live == nil || d.Spec.Selector == nil {
		return ""
	}
	pods := &corev1.PodList{}
	if err := c.live.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return ""
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning })
	if len(pods.Items) == 1 {
		return pods.Items[0].Spec.NodeName
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: d.Namespace, Name: options.LeaseName}
	if err := c.live.Get(ctx, key, lease); err != nil {
		return ""
	}
	for i := range pods.Items {
		if options.HasHostname(&pods.Items[i], options.LeaseHost(lease.Spec)) {
			return pods.Items[i].Spec.NodeName
		}
	}
	return ""
}
