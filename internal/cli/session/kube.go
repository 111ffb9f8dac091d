// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/view"
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
	if err := c.Patch(ctx, s, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("writing Skyhook %s: %w", s.Name, err)
	}
	return nil
}

// FindUser returns the name that the API server knows the user by, or the one in the kubeconfig if it does not say.
func (f *Factory) FindUser(ctx context.Context) string {
	user, err := f.askUser(ctx)
	if user != "" {
		return user
	}
	f.Note("the API server does not say who you are: %v", err)
	raw, err := f.KubeFlags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "unknown"
	}
	name := cmp.Or(*f.KubeFlags.Context, raw.CurrentContext)
	if current := raw.Contexts[name]; current != nil {
		return cmp.Or(*f.KubeFlags.AuthInfoName, current.AuthInfo, "unknown")
	}
	return cmp.Or(*f.KubeFlags.AuthInfoName, "unknown")
}

// askUser asks the API server, as kubectl auth whoami does.
func (f *Factory) askUser(ctx context.Context) (string, error) {
	config, err := f.RestConfig()
	if err != nil {
		return "", err
	}
	c, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return "", err
	}
	review, err := c.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// ReadRevisions connects to the cluster and reads the ControllerRevisions of a Skyhook.
func ReadRevisions(ctx context.Context, f *Factory, name string) (client.Client, *view.Revisions, error) {
	c, err := f.NewClient()
	if err != nil {
		return nil, nil, err
	}
	s, err := f.GetSkyhook(ctx, c, name)
	if err != nil {
		return nil, nil, err
	}
	f.Note("listing ControllerRevisions in namespace %s", f.Namespace(ctx))
	list := &appsv1.ControllerRevisionList{}
	if err := c.List(ctx, list, client.InNamespace(f.Namespace(ctx)), client.MatchingLabels{v1alpha1.LabelRevisionOf: name}); err != nil {
		return nil, nil, fmt.Errorf("listing the ControllerRevisions of Skyhook %s: %w", name, err)
	}
	out := &view.Revisions{Skyhook: s}
	for i := range list.Items {
		if !metav1.IsControlledBy(&list.Items[i], s) {
			continue
		}
		one, err := out.NewRevision(&list.Items[i])
		if err != nil {
			return nil, nil, err
		}
		out.All = append(out.All, one)
	}
	if len(out.All) == 0 {
		return nil, nil, fmt.Errorf("there are no revisions of Skyhook %s in namespace %s: none has begun to roll out, its operator does not record them, or another operator does: name its namespace with --operator-namespace", name, f.Namespace(ctx))
	}
	slices.SortFunc(out.All, func(a, b view.Revision) int { return cmp.Compare(b.Revision, a.Revision) })
	out.CompareAll()
	return c, out, nil
}
