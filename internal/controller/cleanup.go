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
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

// maxNamed bounds how many Skyhooks a sentence about those that are left names.
const maxNamed = 10

// Cleanup deletes every Skyhook, and every NodeOp that is not finished or still holds a node, waits until the operator has
// let go of each, and then deletes the policies. It runs
// beside an operator that is about to be removed: whoever removes that first leaves nodes cordoned and Skyhooks that
// nobody finishes. What it waits for is said whenever that changes; when the context ends first it is the error.
func Cleanup(ctx context.Context, config *rest.Config, namespace string, say func(string)) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := waitUntilDeleted(ctx, c, namespace, say); err != nil {
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
	say(fmt.Sprintf("all Skyhooks are gone; %d DeploymentPolicies are deleted", len(policies.Items)))
	return nil
}

func waitUntilDeleted(ctx context.Context, c client.Client, namespace string, say func(string)) error {
	said := ""
	for {
		waiting, err := deleteRemaining(ctx, c)
		if err == nil && waiting == "" {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			waiting = err.Error() // it may pass
		}
		if waiting != "" && waiting != said {
			said = waiting
			say("waiting: " + waiting)
		}
		if !sleep(ctx, time.Second) {
			return fmt.Errorf("time is up, and this is not finished: %s%s", said, describeMissingLeader(c, namespace))
		}
	}
}

// deleteRemaining deletes the Skyhooks that nobody deleted yet, and says what those wait for that are still there.
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

// deleteNodeOps deletes the NodeOps that the operator has not let go of, and names them. The others are nothing but results.
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
		names = append(names, "NodeOp "+o.Namespace+"/"+o.Name)
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

// deleteSkyhooks deletes Skyhooks that nobody deleted yet.
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

// describeRemaining says what the deletion of each Skyhook waits for, in its own words.
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
				why = truncate(c.Message, 200)
			}
		}
		out = append(out, s.Name+" ("+why+")")
	}
	return strings.Join(out, ", ")
}

// describeMissingLeader says so when no operator leads: then nobody is there to finish anything.
func describeMissingLeader(c client.Client, namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: options.LeaseName}, lease)
	if client.IgnoreNotFound(err) != nil {
		return ""
	}
	renewed := lease.Spec.RenewTime
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && renewed != nil && time.Since(renewed.Time) < 2*leaseDuration {
		return ""
	}
	return "; no operator leads in namespace " + namespace + ", so nobody can finish them: see why its pods do not run"
}
