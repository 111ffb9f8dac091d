// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// errNotInstalled is returned when the API server lacks the CRD of Skyhooks.
var errNotInstalled = errors.New("this cluster does not know Skyhooks: install the operator with its CRDs first, or choose another --context")

// ErrNoNodeOps is returned when the API server lacks the CRD of NodeOps.
var ErrNoNodeOps = errors.New("this cluster does not know NodeOps, which this command needs: install the CRDs of the chart, or choose another --context")

// IsUnknownKind reports whether the server lacks the CRD, not only the object.
func IsUnknownKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// GetSkyhook reads a Skyhook. The error satisfies IsNotFound when it does not exist.
func (f *Factory) GetSkyhook(ctx context.Context, c client.Client, name string) (*v1alpha1.Skyhook, error) {
	s := &v1alpha1.Skyhook{}
	f.Note("reading Skyhook %s", name)
	err := c.Get(ctx, client.ObjectKey{Name: name}, s)
	switch {
	case err == nil:
		return s, nil
	case IsUnknownKind(err):
		return nil, errNotInstalled
	}
	return nil, fmt.Errorf("reading Skyhook %s: %w", name, err)
}

// PatchAnnotation sets an annotation of a Skyhook, or removes it when value is nil. Nobody else writes these annotations,
// so the patch has no precondition.
func (f *Factory) PatchAnnotation(ctx context.Context, c client.Client, s *v1alpha1.Skyhook, key string, value *string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{key: value}}})
	if err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	f.Note("patching Skyhook %s: %s", s.Name, raw)
	if err := c.Patch(ctx, s, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	return nil
}
