// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// applyNodeMetadata writes the ConfigMaps with the labels and annotations of the node before the pods that mount them are
// created: at the admission, and again when they changed since, so that a stage sees what an earlier stage set. It returns by
// rollout what was refused; another error fails its rollout.
func (w podWriter) applyNodeMetadata(ctx context.Context, n *node.Node, work *nodeWork) (refused map[rollout.Ref]error) {
	refused = map[rollout.Ref]error{}
	hash := ""
	for _, a := range work.withoutFailed(work.actions) {
		by := w.compiled.Skyhooks[a.Rollout]
		isNeeded := by != nil && (a.Verb == rollout.VerbAdmit || a.Verb == rollout.VerbRun && by.IsStage(n.Name, a.Task)) && by.MountsMetadata(n, a.Task)
		if !isNeeded || refused[a.Rollout] != nil || work.failed[a.Rollout] {
			continue
		}
		if hash == "" {
			hash = hashMetadata(n)
		}
		name, content := by.NodeMetadataName(n.Name), by.NodeMetadataVersion()+" "+hash
		if written, _ := w.metadata.Load(name); written == content && a.Verb != rollout.VerbAdmit {
			continue
		}
		if err := w.applyConfigMap(ctx, by.NodeMetadata(n)); isRefused(err) {
			refused[a.Rollout] = err
			continue
		} else if err != nil {
			w.failRollout(ctx, work, a, err)
			continue
		}
		w.metadata.Store(name, content)
	}
	return refused
}

func (w podWriter) applyConfigMap(ctx context.Context, m *corev1.ConfigMap) error {
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	m.ManagedFields = nil
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding ConfigMap %s: %w", m.Name, err)
	}
	answer := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err = w.options.Client.Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, raw), client.ForceOwnership, client.FieldOwner("skyhook-operator"))
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", m.Name, err)
	}
	return nil
}

// hashMetadata hashes the labels and annotations of a node. Of the marks of Skyhooks only their keys count: the values change with every stage
// and would cost a write each.
func hashMetadata(n *node.Node) string {
	h := fnv.New128a()
	for _, keys := range []map[string]string{n.Labels, n.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			value := keys[key]
			if isMark(key) {
				value = ""
			}
			_, _ = fmt.Fprintf(h, "%d %s %d %s ", len(key), key, len(value), value) // a hash returns no error
		}
		_, _ = io.WriteString(h, "\n")
	}
	return hex.EncodeToString(h.Sum(nil))
}

func isMark(key string) bool {
	for _, prefix := range []string{v1alpha1.PrefixNodeState, v1alpha1.PrefixRecord, v1alpha1.PrefixStatus, v1alpha1.PrefixVersion, v1alpha1.PrefixCordon} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return key == v1alpha1.AnnotationKnown
}

// deleteNodeMetadata deletes that ConfigMap once nothing of the rollout is left on the node.
func (w podWriter) deleteNodeMetadata(ctx context.Context, a rollout.Action, n *node.Node) error {
	by := w.compiled.Skyhooks[a.Rollout]
	if by == nil { // the Skyhook is gone, and took the ConfigMap with it
		return nil
	}
	m := by.NodeMetadata(n)
	w.metadata.Delete(m.Name)
	return w.deleteConfigMap(ctx, m.ObjectMeta)
}
