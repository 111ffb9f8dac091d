// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package render makes the objects of a Skyhook: pods, ConfigMaps and revisions.
package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// ImageOf returns the reference that a pod pulls a package by.
func (r Renderer) ImageOf(d *plan.Definition) string {
	if digest := r.Facts.RecordedDigest(d); digest != "" {
		return d.Package.Image + "@" + digest
	}
	return plan.ImageOf(d.Package)
}

// Renderer makes the objects of a Skyhook.
type Renderer struct{ Facts *plan.Facts }

// tolerations returns those of every pod. The pods bypass the scheduler, so they matter for NoExecute taints only.
func (r Renderer) tolerations() []corev1.Toleration {
	required := r.Facts.Config.RuntimeTaint
	out := []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
	if required.Key != "" {
		out = append(out, corev1.Toleration{Key: required.Key, Operator: corev1.TolerationOpEqual, Value: required.Value, Effect: required.Effect})
	}
	return append(out, r.Facts.Skyhook.Spec.AdditionalTolerations...)
}
