// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// notePodStage notes that the stage of a pod succeeded.
func (r *Run) notePodStage(p *corev1.Pod, h *host) {
	var of struct{ Name, Version, Stage string }
	if json.Unmarshal([]byte(p.Annotations[v1alpha1.AnnotationPackage]), &of) == nil {
		r.noteStage(p, h, of.Name, of.Version, v1alpha1.Stage(of.Stage))
	}
}

// noteStage notes that a stage of a package succeeded on a host. What comes after a reboot runs only when the host booted since what comes
// before it, whoever rebooted the host. What people write to annotations can make the operator believe something else.
func (r *Run) noteStage(p *corev1.Pod, h *host, name, version string, stage v1alpha1.Stage) {
	skyhook := p.Labels[v1alpha1.LabelName]
	id := skyhook + " " + name + "|" + version
	switch stage {
	case v1alpha1.StageApply, v1alpha1.StageUpgrade, v1alpha1.StageConfig:
		h.prepared[id] = h.boots
	case v1alpha1.StagePostInterrupt:
		boot, isKnown := h.prepared[id]
		if isKnown && boot == h.boots && r.owesReboot(p.Spec.NodeName, skyhook, name+"|"+version) && !r.hasForgery() {
			r.violate("each owed reboot is proven", "package %s of %s goes on in boot %d, in which it owed a reboot", name, skyhook, boot)
		}
	}
}

// owesReboot reports whether the record of a node says that a reboot belongs to the present run of a package.
func (r *Run) owesReboot(node, skyhook, key string) bool {
	var rec struct {
		Packages map[string]struct{ Effect *v1alpha1.Interrupt }
	}
	c := r.server.objects[Nodes.Kind][nodeKey(node)]
	if c == nil || json.Unmarshal([]byte(meta(c).GetAnnotations()[v1alpha1.PrefixRecord+skyhook]), &rec) != nil {
		return false
	}
	effect := rec.Packages[key].Effect
	return effect != nil && effect.Type == v1alpha1.InterruptReboot
}

// hasForgery reports whether somebody writes to the annotations of a node in this run.
func (r *Run) hasForgery() bool {
	return slices.ContainsFunc(r.Events, func(e Event) bool { return e.Cause == Damage || e.Cause == Hostile })
}
