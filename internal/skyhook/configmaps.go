// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// ConfigMaps returns the package ConfigMaps and frozen definitions that must exist before the plan is applied.
// Definitions are immutable: create them when missing, leave them otherwise.
func (c *Compiled) ConfigMaps() []*corev1.ConfigMap {
	s := c.facts.Skyhook
	var out []*corev1.ConfigMap
	for _, name := range plan.SortedNames(c.facts.Packages) {
		d := c.facts.Packages[name]
		if c.Rollout.Broken != nil || c.facts.Deleting && !d.IsUninstallEnabled() {
			continue
		}
		if len(d.Files) > 0 {
			out = append(out, c.renderer().PackageConfigMap(d))
		}
		out = append(out, d.ToConfigMap(s, c.facts.Config))
	}
	for _, hash := range plan.SortedNames(c.extra) {
		out = append(out, c.extra[hash].ToConfigMap(s, c.facts.Config))
	}
	return out
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
		case cm.Labels[plan.LabelDefinition] != "":
			if hashes == nil {
				hashes = c.recordedHashes()
			}
			if hashes[cm.Annotations[plan.AnnotationDefinition]] {
				continue
			}
		case cm.Labels[v1alpha1.LabelName] == "" || c.isMounted(cm.Name):
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
		for _, pod := range t.Pods.Work {
			for _, part := range pod.Parts { // what it begins with later is recorded then
				out[part.Part.Hash] = true
			}
		}
	}
	return out
}

// isMounted reports whether a pod of ours mounts the ConfigMap of a package.
func (c *Compiled) isMounted(name string) bool {
	mounts := func(of *podstate.Pod) bool {
		return plan.ConfigMapName(c.facts.Skyhook.Name, of.Tag.Name, of.Tag.Version) == name
	}
	return slices.ContainsFunc(c.targets, func(t *plan.Target) bool {
		return slices.ContainsFunc(t.Pods.Work, func(pod *podstate.Pod) bool { return slices.ContainsFunc(pod.Works(), mounts) })
	})
}
