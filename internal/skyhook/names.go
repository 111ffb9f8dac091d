// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/render"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// Kind is the kind of every rollout compiled here.
const Kind = plan.Kind

// Defaults of the operator.
const (
	DefaultInterruptMemory  = plan.DefaultInterruptMemory
	DefaultImageVolumesFrom = plan.DefaultImageVolumesFrom
)

// Input is what a Skyhook is compiled from.
type Input = plan.Input

// Config has the settings of the operator that concern Skyhooks.
type Config = plan.Config

// Definition is a package of the spec, as it is frozen.
type Definition = plan.Definition

// Revision is an earlier spec.
type Revision = plan.Revision

// Problem is something about a Skyhook that its author should change.
type Problem = plan.Problem

// Event is an event on a node, on the Skyhook, or on both.
type Event = report.Event

// Tally counts the nodes of one package version.
type Tally = report.Tally

// Ref returns the reference of a Skyhook, its rollout and its holds.
func Ref(skyhook string) rollout.Ref { return plan.Ref(skyhook) }

// PolicyName is the policy that applies to a Skyhook, or none.
func PolicyName(s *v1alpha1.Skyhook, c Config) (name string, byDefault bool) {
	return plan.PolicyName(s, c)
}

// ParseDefinition reads a definition from its immutable ConfigMap. It returns false for other ConfigMaps.
func ParseDefinition(cm *corev1.ConfigMap) (*Definition, bool) { return plan.ParseDefinition(cm) }

// Proofs returns the proofs that a Skyhook and its policy ask for.
func Proofs(s *v1alpha1.Skyhook, p *v1alpha1.DeploymentPolicy) node.Proofs { return plan.Proofs(s, p) }

// IsProving reports whether all work of a Skyhook is done on a node and its proof is waited for.
func IsProving(s *v1alpha1.Skyhook, n *node.Node) bool { return plan.IsProving(s, n) }

// ReadRevision reads a revision of a Skyhook from the metadata of its ControllerRevision. It returns false for those of others.
func ReadRevision(m *metav1.ObjectMeta) (r Revision, isRevision bool) { return plan.ReadRevision(m) }

// PinsOf returns the digests that are kept with a revision, from the metadata of its ControllerRevision.
func PinsOf(m *metav1.ObjectMeta) []v1alpha1.ImagePin { return plan.PinsOf(m) }

// PackagesOf returns the packages of a ControllerRevision.
func PackagesOf(r *appsv1.ControllerRevision) (map[string]v1alpha1.Package, error) {
	return render.PackagesOf(r)
}

// WithoutUninstallRequests returns packages as a revision keeps them.
func WithoutUninstallRequests(packages map[string]v1alpha1.Package) map[string]v1alpha1.Package {
	return render.WithoutUninstallRequests(packages)
}

// DriftContainer returns the name of the container that checks a package, given as name|version.
func DriftContainer(key string) string { return plan.DriftContainer(key) }

// HasNews reports whether a status says more than the stored one about anything but the progress of drains.
func HasNews(stored, status v1alpha1.SkyhookStatus) bool { return report.HasNews(stored, status) }

// StageOf returns the stage of a task of a Skyhook, by the task's id.
func StageOf(task string) v1alpha1.Stage { return report.StageOf(task) }

// Redact replaces, in place, the values of environment variables in Skyhooks and in frozen definitions. It returns the changed hashes.
func Redact(hooks []*v1alpha1.Skyhook, maps []*corev1.ConfigMap, c Config, hide func(string) string) map[string]string {
	return render.Redact(hooks, maps, c, hide)
}
