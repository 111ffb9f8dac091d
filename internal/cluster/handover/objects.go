// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// Create creates the object of a step, which the node records already. One that was created before is success; one of an earlier hold is
// deleted, and created when it is gone.
func (a Asker) Create(ctx context.Context, c client.Client, name string, n *node.Node) error {
	step := a.find(name)
	if step == nil {
		return nil
	}
	object, recorded, err := a.render(step, n)
	if object == nil || err != nil {
		return err
	}
	err = c.Create(ctx, object)
	switch {
	case err == nil:
		return nil
	case !apierrors.IsAlreadyExists(err):
		text := gates.DescribeError(object, err, "create")
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) { // its namespace
			return apierrors.NewBadRequest(text)
		}
		return fmt.Errorf("%s: %w", text, err)
	}
	found, err := get(ctx, c, *recorded)
	if found == nil || err != nil {
		return err
	}
	switch problem, isAbsent := checkAnswers(found, n, *recorded); {
	case isAbsent:
		return remove(ctx, c, found)
	case problem != "":
		return apierrors.NewBadRequest(fmt.Sprintf("%s %s %s", found.GetKind(), client.ObjectKeyFromObject(found), problem))
	}
	return nil
}

// get reads an object that was created to ask for a node; nil if it does not exist.
func get(ctx context.Context, c client.Reader, recorded node.HandoverObject) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(recorded.APIVersion)
	o.SetKind(recorded.Kind)
	err := c.Get(ctx, client.ObjectKey{Namespace: recorded.Namespace, Name: recorded.Name}, o)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		o.SetNamespace(recorded.Namespace)
		o.SetName(recorded.Name)
		return nil, fmt.Errorf("%s: %w", gates.DescribeError(o, err, "get"), err)
	}
	return o, nil
}

// Find returns those of some objects that exist and were created to ask for a node.
func Find(ctx context.Context, c client.Reader, n *node.Node, objects []node.HandoverObject) (found []*unstructured.Unstructured, err error) {
	for _, recorded := range objects {
		o, err := get(ctx, c, recorded)
		if err != nil {
			return nil, err
		}
		if o != nil && isOurs(o, n) {
			found = append(found, o)
		}
	}
	return found, nil
}

// Withdraw deletes objects that were created to ask for a node.
func Withdraw(ctx context.Context, c client.Client, n *node.Node, objects []node.HandoverObject) error {
	found, err := Find(ctx, c, n, objects)
	for _, o := range found {
		if err := remove(ctx, c, o); err != nil {
			return err
		}
	}
	return err
}

// remove deletes an object, the one that was read and no later one of its name.
func remove(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})); err != nil {
		return fmt.Errorf("%s: %w", gates.DescribeError(o, err, "delete"), err)
	}
	return nil
}
