// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// ConfigMaps returns the package ConfigMaps and frozen definitions that must exist before the plan is applied.
// Definitions are immutable: create them when missing, leave them otherwise.
func (c *Compiled) ConfigMaps() []*corev1.ConfigMap {
	s := c.facts.Skyhook
	var out []*corev1.ConfigMap
	for _, name := range sortedNames(c.facts.Packages) {
		d := c.facts.Packages[name]
		if c.Rollout.Broken != nil || c.facts.Deleting && !d.isUninstallEnabled() {
			continue
		}
		if len(d.config) > 0 {
			out = append(out, c.renderer().packageConfigMap(d))
		}
		out = append(out, d.toConfigMap(s, c.facts.Config))
	}
	for _, hash := range sortedNames(c.extra) {
		out = append(out, c.extra[hash].toConfigMap(s, c.facts.Config))
	}
	return out
}

// packageConfigMap returns the documented ConfigMap that pods mount.
func (r renderer) packageConfigMap(d *Definition) *corev1.ConfigMap {
	s, p := r.facts.Skyhook, d.Package
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: configMapName(s.Name, p.Name, string(p.Version)), Namespace: r.facts.Config.Namespace, OwnerReferences: ownerReferences(s),
			Labels: map[string]string{v1alpha1.LabelName: s.Name},
			Annotations: map[string]string{
				v1alpha1.LabelName: s.Name, v1alpha1.AnnotationPackageName: p.Name, v1alpha1.AnnotationPackageVersion: string(p.Version),
			},
		},
		Data: maps.Clone(d.config),
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

// nodeMetadataVersion identifies everything in NodeMetadata that is the same for all nodes.
func (r renderer) nodeMetadataVersion() string {
	s := r.facts.Skyhook
	return fmt.Sprintf("%s/%d %s", s.UID, s.Generation, r.facts.Config.AgentImage)
}

// nodeMetadata returns the ConfigMap with a node's labels and annotations, written before the pods that mount it.
func (r renderer) nodeMetadata(n *node.Node) *corev1.ConfigMap {
	s := r.facts.Skyhook
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: metadataName(s.Name, n.Name), Namespace: r.facts.Config.Namespace, OwnerReferences: ownerReferences(s),
			Labels:      map[string]string{v1alpha1.LabelNodeMeta: labelValue(s.Name)},
			Annotations: map[string]string{v1alpha1.LabelName: s.Name, v1alpha1.AnnotationNodeName: n.Name},
		},
		Data: r.metadataFiles(n),
	}
}

// metadataFiles returns the files that tell a package about its node.
func (r renderer) metadataFiles(n *node.Node) map[string]string {
	packages := map[string]metadataPackage{}
	for name, d := range r.facts.Packages {
		p := d.Package
		packages[name] = metadataPackage{name, string(p.Version), p.Image, p.AgentImageOverride, p.Interrupt, p.ConfigInterrupts}
	}
	return map[string]string{
		"annotations.json": node.EncodeJSON(nonNil(n.Annotations)),
		"labels.json":      node.EncodeJSON(nonNil(n.Labels)),
		"packages.json": node.EncodeJSON(struct {
			AgentVersion string                     `json:"agentVersion"`
			Packages     map[string]metadataPackage `json:"packages"`
		}{imageTag(r.facts.Config.AgentImage), packages}),
	}
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// Superfluous returns the names of this Skyhook's ConfigMaps that are no longer needed.
func (c *Compiled) Superfluous(existing []*corev1.ConfigMap) []string {
	if c.facts.Deleting || c.Rollout.Broken != nil {
		return nil // the garbage collector removes them with their owner; an invalid spec removes nothing
	}
	s := c.facts.Skyhook
	needed := map[string]bool{}
	for _, cm := range c.ConfigMaps() {
		needed[cm.Name] = true
	}
	var out []string
	var hashes map[string]bool
	for _, cm := range existing {
		if owner := metav1.GetControllerOf(cm); owner == nil || owner.UID != s.UID || needed[cm.Name] {
			continue
		}
		switch {
		case cm.Labels[v1alpha1.LabelNodeMeta] != "":
			if c.target(cm.Annotations[v1alpha1.AnnotationNodeName]) != nil {
				continue
			}
		case cm.Labels[labelDefinition] != "":
			if hashes == nil {
				hashes = c.recordedHashes()
			}
			if hashes[cm.Annotations[annotationDefinition]] {
				continue
			}
		case cm.Labels[v1alpha1.LabelName] == "" || slices.ContainsFunc(c.targets, func(t *target) bool { return t.pods.mounts(s.Name, cm.Name) }):
			continue
		}
		out = append(out, cm.Name)
	}
	slices.Sort(out)
	return out
}

// recordedHashes returns the hashes of definitions that some node records.
func (c *Compiled) recordedHashes() map[string]bool {
	out := map[string]bool{}
	for _, n := range c.clusterNodes {
		rec := &n.Skyhook(c.facts.Skyhook.Name).Record
		for _, p := range rec.Packages {
			out[p.Hash], out[p.From] = true, true
		}
		for _, hash := range rec.Complete {
			out[hash] = true
		}
	}
	for _, t := range c.targets {
		for _, pod := range t.pods.work {
			for _, part := range pod.parts { // what it begins with later is recorded then
				out[part.part.Hash] = true
			}
		}
	}
	return out
}
