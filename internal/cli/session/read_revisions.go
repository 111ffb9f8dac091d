// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/view"
)

// ReadRevisions connects to the cluster and reads the ControllerRevisions of a Skyhook.
func ReadRevisions(ctx context.Context, f *Factory, name string) (client.Client, *view.Revisions, error) {
	c, err := f.Connect()
	if err != nil {
		return nil, nil, err
	}
	s, err := f.GetSkyhook(ctx, c, name)
	if err != nil {
		return nil, nil, err
	}
	f.Note("listing ControllerRevisions in namespace %s", f.Namespace())
	list := &appsv1.ControllerRevisionList{}
	if err := c.List(ctx, list, client.InNamespace(f.Namespace()), client.MatchingLabels{v1alpha1.LabelRevisionOf: name}); err != nil {
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
		return nil, nil, fmt.Errorf("there are no revisions of Skyhook %s in namespace %s: none has begun to roll out, its operator does not record them, or -n names another operator's namespace", name, f.Namespace())
	}
	slices.SortFunc(out.All, func(a, b view.Revision) int { return cmp.Compare(b.Revision, a.Revision) })
	return c, out, nil
}
