// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

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

	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// maxParallelEdits is how many nodes are written at the same time.
const maxParallelEdits = 16

// nodeChange computes the edit of a node.
type nodeChange func(*skyhook.Node) (skyhook.Edit, error)

// editNodes writes a change to each node, several at a time. A node that changed since it was read is read again, and its
// edit is computed again. An error does not stop the other nodes. With --dry-run nothing is written.
func editNodes(ctx context.Context, f *factory, c client.Client, nodes []*skyhook.Node, change nodeChange) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallelEdits)
	for i, n := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := editNode(ctx, f, c, n, change); err != nil {
				errs[i] = fmt.Errorf("node %s: %w", n.Name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func editNode(ctx context.Context, f *factory, c client.Client, n *skyhook.Node, change nodeChange) error {
	isRetry := false
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if isRetry {
			fresh := &corev1.Node{}
			if err := c.Get(ctx, client.ObjectKey{Name: n.Name}, fresh); err != nil {
				return err
			}
			n = skyhook.ParseNode(fresh, nil)
		}
		isRetry = true
		edit, err := change(n)
		if err != nil || edit.Empty() || f.DryRun {
			return err
		}
		err = patchNode(ctx, f, c, n, edit)
		if apierrors.IsNotFound(err) {
			return errors.New("it is gone")
		}
		return err
	})
}

func patchNode(ctx context.Context, f *factory, c client.Client, n *skyhook.Node, edit skyhook.Edit) error {
	patch := newNodePatch(n, edit)
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	f.Note("patching node %s: %s", n.Name, raw)
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if edit.TouchesNode() {
		if err := c.Patch(ctx, m, client.RawPatch(types.MergePatchType, raw)); err != nil {
			return err
		}
	}
	if edit.TouchesStatus() {
		return removeConditions(ctx, c, m, edit)
	}
	return nil
}

// removeConditions removes conditions by type, and keeps all others.
func removeConditions(ctx context.Context, c client.Client, m *metav1.PartialObjectMetadata, edit skyhook.Edit) error {
	conditions := []any{}
	for _, t := range edit.RemoveConditions {
		conditions = append(conditions, map[string]any{"$patch": "delete", "type": t})
	}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, m, client.RawPatch(types.StrategicMergePatchType, raw))
}

// newNodePatch returns a merge patch for this version of this node. It names only what changes, because null removes a
// whole map.
func newNodePatch(n *skyhook.Node, edit skyhook.Edit) map[string]any {
	meta := map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}
	if len(edit.Annotations) > 0 {
		meta["annotations"] = edit.Annotations
	}
	if len(edit.Labels) > 0 {
		meta["labels"] = edit.Labels
	}
	patch, spec := map[string]any{"metadata": meta}, map[string]any{}
	if edit.Unschedulable != nil {
		spec["unschedulable"] = *edit.Unschedulable
	}
	if len(edit.RemoveTaints) > 0 {
		spec["taints"] = n.With(skyhook.Edit{RemoveTaints: edit.RemoveTaints}).Taints
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}
