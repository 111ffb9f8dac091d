// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

// reportInterval is how often what is waited for is printed although it has not changed.
const reportInterval = 30 * time.Second

// maxNamed bounds how many remaining objects a message names.
const maxNamed = 10

// Cleanup deletes every Skyhook, and every NodeOp that has not finished or still holds a node, waits until the operator has
// removed its finalizer from each, and then deletes the policies. It runs before an operator is removed: without one, nodes
// would stay cordoned and the finalizers would never go. It prints what it waits for whenever that changes and every
// reportInterval, and returns it as an error when the context ends first.
func Cleanup(ctx context.Context, config *rest.Config, namespace string, report func(string)) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := waitUntilDeleted(ctx, c, namespace, report); err != nil {
		return err
	}
	policies := &v1alpha1.DeploymentPolicyList{}
	if err := c.List(ctx, policies); err != nil {
		return fmt.Errorf("listing DeploymentPolicies: %w", err)
	}
	for i := range policies.Items {
		if err := client.IgnoreNotFound(c.Delete(ctx, &policies.Items[i])); err != nil {
			return fmt.Errorf("deleting DeploymentPolicy %s: %w", policies.Items[i].Name, err)
		}
	}
	report(fmt.Sprintf("all Skyhooks are gone; %d DeploymentPolicies are deleted", len(policies.Items)))
	return nil
}

func waitUntilDeleted(ctx context.Context, c client.Client, namespace string, report func(string)) error {
	last, reportedAt, started := "", time.Time{}, time.Now()
	for {
		waiting, err := deleteRemaining(ctx, c)
		if err == nil && waiting == "" {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			waiting = err.Error() // it may be temporary
		}
		isDue := waiting != last || time.Since(reportedAt) >= reportInterval
		if waiting != "" && isDue {
			last, reportedAt = waiting, time.Now()
			report(fmt.Sprintf("waiting for %s: %s", time.Since(started).Round(time.Second), waiting))
		}
		if !sleep(ctx, time.Second) {
			return fmt.Errorf("time is up, and this is not finished: %s%s", last, describeMissingLeader(c, namespace))
		}
	}
}

// deleteRemaining deletes what is not being deleted yet, and describes what the remaining objects wait for.
func deleteRemaining(ctx context.Context, c client.Client) (waiting string, err error) {
	hooks := &v1alpha1.SkyhookList{}
	if err := c.List(ctx, hooks); err != nil {
		return "", fmt.Errorf("listing Skyhooks: %w", err)
	}
	if err := deleteSkyhooks(ctx, c, hooks.Items); err != nil {
		return "", err
	}
	ops, err := deleteNodeOps(ctx, c)
	if err != nil {
		return "", err
	}
	return strings.Join(slices.DeleteFunc([]string{describeRemaining(hooks.Items), ops}, func(s string) bool { return s == "" }), ", "), nil
}

// deleteNodeOps deletes the NodeOps that still have our finalizer, and describes what they wait for. All others are only results.
func deleteNodeOps(ctx context.Context, c client.Client) (waiting string, err error) {
	ops := &opv1.NodeOpList{}
	if err := c.List(ctx, ops); err != nil {
		return "", fmt.Errorf("listing NodeOps: %w", err)
	}
	var names []string
	for i := range ops.Items {
		o := &ops.Items[i]
		if !slices.Contains(o.Finalizers, opv1.FinalizerNodeOp) {
			continue
		}
		names = append(names, describeNodeOp(o))
		if o.DeletionTimestamp != nil {
			continue
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &o.UID})); err != nil {
			return "", fmt.Errorf("deleting NodeOp %s/%s: %w", o.Namespace, o.Name, err)
		}
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", "), nil
}

// describeNodeOp names a NodeOp and what its deletion waits for, from its conditions.
func describeNodeOp(o *opv1.NodeOp) string {
	why := "its deletion has begun"
	c := meta.FindStatusCondition(o.Status.Conditions, opv1.ConditionReady)
	if c != nil && c.Message != "" && o.DeletionTimestamp != nil {
		why = node.Truncate(c.Message, 400)
	}
	return "NodeOp " + o.Namespace + "/" + o.Name + " (" + why + ")"
}

// deleteSkyhooks deletes the Skyhooks that are not being deleted yet.
func deleteSkyhooks(ctx context.Context, c client.Client, hooks []v1alpha1.Skyhook) error {
	for i := range hooks {
		s := &hooks[i]
		if s.DeletionTimestamp != nil {
			continue
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, s, client.Preconditions{UID: &s.UID})); err != nil {
			return fmt.Errorf("deleting Skyhook %s: %w", s.Name, err)
		}
	}
	return nil
}

// describeRemaining describes what the deletion of each Skyhook waits for, from its conditions.
func describeRemaining(hooks []v1alpha1.Skyhook) string {
	slices.SortFunc(hooks, func(a, b v1alpha1.Skyhook) int { return strings.Compare(a.Name, b.Name) })
	var out []string
	for i, s := range hooks {
		if i == maxNamed {
			out = append(out, fmt.Sprintf("and %d more", len(hooks)-i))
			break
		}
		why := "its deletion has begun"
		for _, t := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionUninstallInProgress, v1alpha1.ConditionUninstallFailed, v1alpha1.ConditionDeletionBlocked} {
			c := meta.FindStatusCondition(s.Status.Conditions, t)
			if c != nil && c.Message != "" && (t == v1alpha1.ConditionReady || c.Status == "True") {
				why = node.Truncate(c.Message, 200)
			}
		}
		out = append(out, s.Name+" ("+why+")")
	}
	return strings.Join(out, ", ")
}

// describeMissingLeader is a hint for the case that no operator leads, so that nothing will be finished.
func describeMissingLeader(c client.Client, namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: options.LeaseName}, lease)
	if client.IgnoreNotFound(err) != nil {
		return ""
	}
	isHeld := err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != ""
	isFresh := lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) < 2*leaseDuration
	if isHeld && isFresh {
		return ""
	}
	return "; no operator leads in namespace " + namespace + ", so nobody can finish them: see why its pods do not run"
}
