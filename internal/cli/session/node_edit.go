// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/node"
)

// maxParallelEdits is how many nodes are written at the same time.
const maxParallelEdits = 16

// nodeChange computes the edit of a node.
type nodeChange func(*node.Node) (node.Edit, error)

// EditNodes writes a change to each node, several at a time. A node that changed since it was read is read again, and its
// edit is computed again. An error does not stop the other nodes. A dry run is printed in the order of the nodes.
func EditNodes(ctx context.Context, f *Factory, c client.Client, nodes []*node.Node, change nodeChange) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallelEdits)
	if f.DryRun {
		slots = make(chan struct{}, 1)
	}
	for i, n := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := editNode(ctx, c, n, change); err != nil {
				errs[i] = fmt.Errorf("node %s: %w", n.Name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func editNode(ctx context.Context, c client.Client, n *node.Node, change nodeChange) error {
	isRetry := false
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if isRetry {
			fresh := &corev1.Node{}
			if err := c.Get(ctx, client.ObjectKey{Name: n.Name}, fresh); err != nil {
				return err
			}
			n = node.Parse(fresh, nil)
		}
		isRetry = true
		edit, err := change(n)
		if err != nil || edit.Empty() {
			return err
		}
		err = patchNode(ctx, c, n, edit)
		if apierrors.IsNotFound(err) {
			return errors.New("it is gone")
		}
		return err
	})
}

func patchNode(ctx context.Context, c client.Client, n *node.Node, edit node.Edit) error {
	raw, err := json.Marshal(edit.MergePatch(n))
	if err != nil {
		return err
	}
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if edit.TouchesNode() {
		if err := c.Patch(ctx, m, client.RawPatch(types.MergePatchType, raw)); err != nil {
			return err
		}
	}
	if edit.TouchesStatus() {
		status, err := json.Marshal(edit.StatusPatch(""))
		if err != nil {
			return err
		}
		return c.Status().Patch(ctx, m, client.RawPatch(types.StrategicMergePatchType, status))
	}
	return nil
}
