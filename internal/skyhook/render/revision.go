// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// revisionContent is the content of a ControllerRevision, in the shape of a Skyhook.
type revisionContent struct {
	Spec struct {
		Packages map[string]v1alpha1.Package `json:"packages"`
	} `json:"spec"`
}

// PackagesOf returns the packages of a ControllerRevision.
func PackagesOf(r *appsv1.ControllerRevision) (map[string]v1alpha1.Package, error) {
	var content revisionContent
	if err := json.Unmarshal(r.Data.Raw, &content); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s/%s does not contain packages: %w", r.Namespace, r.Name, err)
	}
	return content.Spec.Packages, nil
}

// NewRevision returns the ControllerRevision of the packages of the spec.
func (r Renderer) NewRevision(number int64) (*appsv1.ControllerRevision, error) {
	s := r.Facts.Skyhook
	var content revisionContent
	content.Spec.Packages = WithoutUninstallRequests(s.Spec.Packages)
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding the packages of a revision: %w", err)
	}
	key := r.Facts.Key
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: revisionName(s.Name, key), Namespace: r.Facts.Config.Namespace, OwnerReferences: plan.OwnerReferences(s),
			Labels:      map[string]string{v1alpha1.LabelRevisionOf: s.Name},
			Annotations: revisionAnnotations(s, number, key),
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: number,
	}, nil
}

// revisionAnnotations returns the annotations of a revision: its number, because the field itself is not metadata, and its cause.
func revisionAnnotations(s *v1alpha1.Skyhook, number int64, key string) map[string]string {
	out := map[string]string{v1alpha1.AnnotationRevision: strconv.FormatInt(number, 10), v1alpha1.AnnotationRevisionKey: key}
	if cause := s.Annotations[plan.AnnotationChangeCause]; cause != "" {
		out[plan.AnnotationChangeCause] = node.Truncate(cause, 1024)
	}
	return out
}

func revisionName(skyhook, key string) string {
	most := 253 - 1 - len(key)
	return strings.TrimRight(skyhook[:min(len(skyhook), most)], "-.") + "-" + key
}

// WithoutUninstallRequests returns packages as a revision keeps them: going back must not uninstall again.
func WithoutUninstallRequests(packages map[string]v1alpha1.Package) map[string]v1alpha1.Package {
	out := make(map[string]v1alpha1.Package, len(packages))
	for name, p := range packages {
		if p.Uninstall != nil && p.Uninstall.Apply {
			p.Uninstall = &v1alpha1.Uninstall{Enabled: p.Uninstall.Enabled}
		}
		out[name] = p
	}
	return out
}
