// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cli/session"
	"github.com/skyhook-k8s/skyhook/internal/migrate"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// nodesPerStep is after how many nodes the progress is printed.
const nodesPerStep = 500

// write carries out the plan. Each step can be repeated; the targets are paused until all others are done, so that an
// operator that is started too early begins nothing.
func (m *migration) write(ctx context.Context) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"removing webhook configurations", m.deleteWebhooks},
		{"writing objects", m.writeTargets},
		{"writing nodes", m.writeNodes},
		{"recording jobs", m.markJobs},
		{"handing over ConfigMaps", m.adoptConfigMaps},
		{"ending the migration", m.finish},
	} {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (m *migration) deleteWebhooks(ctx context.Context) error {
	for _, w := range m.webhooks {
		uid := w.GetUID()
		if err := client.IgnoreNotFound(m.client.Delete(ctx, w, client.Preconditions{UID: &uid})); err != nil {
			return err
		}
	}
	return nil
}

// writeTargets creates and updates the objects of the other side, policies first.
func (m *migration) writeTargets(ctx context.Context) error {
	strict := client.WithFieldValidation(m.client, metav1.FieldValidationStrict)
	for _, move := range m.moves {
		if move.action == actionSkip {
			continue
		}
		if err := retryWebhooks(ctx, func() error { return m.writeTarget(ctx, strict, move) }); err != nil {
			return fmt.Errorf("%s: %w; are the CRDs those of this release? See docs/upgrading.md", kindAndName(move.wanted), err)
		}
		fmt.Fprintf(m.ErrOut, "%s is there\n", kindAndName(move.wanted))
	}
	return nil
}

// webhookLag is how long API servers may call a webhook whose configuration was deleted.
const webhookLag = 30 * time.Second

// retryWebhooks repeats a write while a webhook without a server refuses it: its configuration has just been deleted, and API
// servers notice that a moment later.
func retryWebhooks(ctx context.Context, write func() error) error {
	for deadline := time.Now().Add(webhookLag); ; {
		err := write()
		isRefused := apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
		if !isRefused || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func (m *migration) writeTarget(ctx context.Context, c client.Client, move *objectMove) error {
	wanted := move.wanted.DeepCopy()
	if move.target == nil {
		if !move.isPolicy() {
			wanted.SetAnnotations(m.direction.MarkMigrating(wanted.GetAnnotations()))
		}
		if err := c.Create(ctx, wanted); err != nil {
			return err
		}
		move.target = wanted
		return m.copyBatches(ctx, move)
	}
	changed := move.target.DeepCopy()
	changed.Object["spec"] = wanted.Object["spec"]
	changed.SetLabels(mergeStrings(changed.GetLabels(), wanted.GetLabels()))
	annotations := wanted.GetAnnotations()
	if !move.isPolicy() && !m.direction.IsMigrating(move.target) {
		annotations = m.direction.MarkMigrating(annotations)
	} else if !move.isPolicy() {
		annotations = m.direction.KeepMarks(annotations, move.target.GetAnnotations())
	}
	changed.SetAnnotations(mergeStrings(m.direction.DropStale(changed.GetAnnotations(), annotations), annotations))
	if err := c.Update(ctx, changed); err != nil {
		return err
	}
	move.target = changed
	return m.copyBatches(ctx, move)
}

// copyBatches copies the progress of batches to a target that has none: a rollout that stopped stays stopped.
func (m *migration) copyBatches(ctx context.Context, move *objectMove) error {
	batches, ok, _ := unstructured.NestedMap(move.original.Object, "status", "compartmentStatuses")
	if _, has, _ := unstructured.NestedMap(move.target.Object, "status", "compartmentStatuses"); !ok || has {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"compartmentStatuses": batches}})
	if err != nil {
		return err
	}
	return m.client.Status().Patch(ctx, move.target, client.RawPatch(types.MergePatchType, raw))
}

func mergeStrings(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// writeNodes writes each node with one patch. A node that changed meanwhile is read and computed again.
func (m *migration) writeNodes(ctx context.Context) error {
	done := 0
	var errs []error
	for chunk := range slices.Chunk(m.edited, nodesPerStep) {
		err := session.EditNodes(ctx, m.Factory, m.client, chunk, func(n *node.Node) (node.Edit, error) { return m.rules.Edit(n) })
		errs = append(errs, err)
		done += len(chunk)
		fmt.Fprintf(m.ErrOut, "nodes: %d of %d\n", done, len(m.edited))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// markJobs marks the Jobs whose outcome nodes have now.
func (m *migration) markJobs(ctx context.Context) error {
	for _, j := range m.record {
		if !m.hasNode(j.Node) {
			continue
		}
		o := m.jobObjects[j.Namespace+"/"+j.Name]
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.UID, "annotations": map[string]string{migrate.AnnotationStateRecorded: "true"},
		}})
		if err != nil {
			return err
		}
		if err := client.IgnoreNotFound(m.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))); err != nil {
			return err
		}
	}
	return nil
}

func (m *migration) hasNode(name string) bool {
	return slices.ContainsFunc(m.nodes, func(n *node.Node) bool { return n.Name == name })
}

// adoptConfigMaps makes the targets the owners of the ConfigMaps of packages and nodes.
func (m *migration) adoptConfigMaps(ctx context.Context) error {
	from, to := m.direction.From.Key("name"), m.direction.To.Key("name")
	for _, cm := range m.configMaps {
		move := m.moveOf(metav1.GetControllerOf(cm).Name)
		if move == nil {
			continue
		}
		yes := true
		changed := cm.DeepCopy()
		changed.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: move.target.GetAPIVersion(), Kind: move.target.GetKind(), Name: move.target.GetName(), UID: move.target.GetUID(),
			Controller: &yes, BlockOwnerDeletion: &yes,
		}}
		changed.Labels = m.direction.AddKeys(changed.Labels)
		changed.Annotations = m.direction.AddKeys(changed.Annotations)
		changed.Labels[to] = cm.Labels[from]
		if err := client.IgnoreNotFound(m.client.Patch(ctx, changed, client.MergeFromWithOptions(cm, client.MergeFromWithOptimisticLock{}))); err != nil {
			return fmt.Errorf("ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
		}
	}
	return nil
}

func (m *migration) moveOf(name string) *objectMove {
	for _, move := range m.moves {
		if !move.isPolicy() && move.original.GetName() == name && move.action != actionSkip {
			return move
		}
	}
	return nil
}

// finish resumes the targets and notes that they are complete. On the way back it deletes the originals: NodeWright waits
// as long as a Skyhook is in progress.
func (m *migration) finish(ctx context.Context) error {
	for _, move := range m.moves {
		if move.action == actionSkip {
			continue
		}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": m.direction.FinishAnnotations(move.target, move.original)}})
		if err != nil {
			return err
		}
		if err := m.client.Patch(ctx, move.target, client.RawPatch(types.MergePatchType, raw)); err != nil {
			return fmt.Errorf("%s: %w", kindAndName(move.target), err)
		}
	}
	if !m.back {
		return nil
	}
	for _, move := range slices.Backward(m.moves) { // users of a policy before the policy
		if err := m.deleteOriginal(ctx, move.original); err != nil {
			return fmt.Errorf("deleting %s: %w", kindAndName(move.original), err)
		}
	}
	return nil
}

// deleteOriginal deletes an object whose operator is stopped, so that nothing would remove its finalizers.
func (m *migration) deleteOriginal(ctx context.Context, o *unstructured.Unstructured) error {
	uid := o.GetUID()
	if len(o.GetFinalizers()) > 0 {
		raw := []byte(fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, uid))
		if err := client.IgnoreNotFound(m.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))); err != nil {
			return err
		}
	}
	return client.IgnoreNotFound(m.client.Delete(ctx, o, client.Preconditions{UID: &uid}))
}
