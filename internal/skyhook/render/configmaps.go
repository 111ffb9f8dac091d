// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// PackageConfigMap returns the documented ConfigMap that pods mount.
func (r Renderer) PackageConfigMap(d *plan.Definition) *corev1.ConfigMap {
	s, p := r.Facts.Skyhook, d.Package
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: plan.ConfigMapName(s.Name, p.Name, string(p.Version)), Namespace: r.Facts.Config.Namespace, OwnerReferences: plan.OwnerReferences(s),
			Labels: map[string]string{v1alpha1.LabelName: s.Name},
			Annotations: map[string]string{
				v1alpha1.LabelName: s.Name, v1alpha1.AnnotationPackageName: p.Name, v1alpha1.AnnotationPackageVersion: string(p.Version),
			},
		},
		Data: maps.Clone(d.Files),
	}
}

// metadataPackage is a package in packages.json.
type metadataPackage struct {
	Name               string                        `json:"name"`
	Version            string                        `json:"version"`
	Image              string                        `json:"image"`
	AgentImageOverride string                        `json:"agentImageOverride,omitempty"`
	Interrupt          *v1alpha1.Interrupt           `json:"interrupt,omitempty"`
	ConfigInterrupts   map[string]v1alpha1.Interrupt `json:"configInterrupts,omitempty"`
}

// NodeMetadataVersion identifies everything in NodeMetadata that is the same for all nodes.
func (r Renderer) NodeMetadataVersion() string {
	s := r.Facts.Skyhook
	return fmt.Sprintf("%s/%d %s", s.UID, s.Generation, r.Facts.Config.AgentImage)
}

// NodeMetadata returns the ConfigMap with a node's labels and annotations, written before the pods that mount it.
func (r Renderer) NodeMetadata(n *node.Node) *corev1.ConfigMap {
	s := r.Facts.Skyhook
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: plan.MetadataName(s.Name, n.Name), Namespace: r.Facts.Config.Namespace, OwnerReferences: plan.OwnerReferences(s),
			Labels:      map[string]string{v1alpha1.LabelNodeMeta: plan.LabelValue(s.Name)},
			Annotations: map[string]string{v1alpha1.LabelName: s.Name, v1alpha1.AnnotationNodeName: n.Name},
		},
		Data: r.metadataFiles(n),
	}
}

// metadataFiles returns the files that tell a package about its node.
func (r Renderer) metadataFiles(n *node.Node) map[string]string {
	packages := map[string]metadataPackage{}
	for name, d := range r.Facts.Packages {
		p := d.Package
		packages[name] = metadataPackage{name, string(p.Version), p.Image, p.AgentImageOverride, p.Interrupt, p.ConfigInterrupts}
	}
	return map[string]string{
		"annotations.json": node.EncodeJSON(nonNil(n.Annotations)),
		"labels.json":      node.EncodeJSON(nonNil(n.Labels)),
		"packages.json": node.EncodeJSON(struct {
			AgentVersion string                     `json:"agentVersion"`
			Packages     map[string]metadataPackage `json:"packages"`
		}{plan.ImageTag(r.Facts.Config.AgentImage), packages}),
	}
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
