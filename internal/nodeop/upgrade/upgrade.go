// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade turns a NodeOpUpgrade into the NodeOp that carries it out, and the status of that into the status of the upgrade.
package upgrade

import (
	_ "embed"
	"slices"
	"strings"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
)

//go:embed upgrade.sh.tmpl
var upgradeScript string

//go:embed preflight.sh
var preflightScript string

var upgradeTemplate = template.Must(template.New("upgrade").Parse(upgradeScript))

// neverCopied are files that Kubernetes puts into every container.
var neverCopied = []string{"/etc/hostname", "/etc/hosts"}

// upgradeRetries is low because each try writes a whole system to the disk of the node, and seldom ends differently.
const upgradeRetries = 1

// NewNodeOp renders the NodeOp that carries out an upgrade. Without a reboot no workload is disturbed, so nodes are not drained.
// An upgrade of the recovery system is never skipped, because the version of that system is unknown.
func NewNodeOp(u *v1alpha1.NodeOpUpgrade) *v1alpha1.NodeOp {
	active := u.Spec.UpgradeActive == nil || *u.Spec.UpgradeActive
	compare := active && !nodeop.IsTrue(u.Spec.UpgradeRecovery) && !nodeop.IsTrue(u.Spec.Force)
	out := &v1alpha1.NodeOp{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: nodeop.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: u.Name, Namespace: u.Namespace,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByUpgrade, v1alpha1.LabelUpgrade: u.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: nodeop.UpgradeKind, Name: u.Name, UID: u.UID, Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: v1alpha1.NodeOpSpec{
			NodeSelector: *u.Spec.NodeSelector.DeepCopy(), Image: u.Spec.Image, ImagePullSecrets: slices.Clone(u.Spec.ImagePullSecrets),
			Command:     []string{"/bin/sh", "-c", renderUpgradeScript(u, active, compare)},
			Concurrency: u.Spec.Concurrency, StopOnFailure: new(nodeop.IsTrue(u.Spec.StopOnFailure)), UncordonOnFailure: new(nodeop.IsTrue(u.Spec.UncordonOnFailure)),
			HostMountPath: nodeop.DefaultHostMount, Cordon: new(active), RebootOnSuccess: new(active), BackoffLimit: new(int32(upgradeRetries)),
			DeploymentPolicy: u.Spec.DeploymentPolicy,
		},
	}
	if active {
		out.Spec.DrainOptions = &v1alpha1.DrainOptions{Enabled: new(true), DeleteEmptyDirData: new(true), IgnoreDaemonSets: new(true), Force: new(false)}
	}
	if compare {
		out.Spec.Preflight = &v1alpha1.Preflight{
			Command: []string{"/bin/sh", "-c", preflightScript}, ActiveDeadlineSeconds: new(int32(nodeop.DefaultPreflightTimeout / time.Second)),
		}
	}
	return out
}

// renderUpgradeScript renders the command that runs on each node.
func renderUpgradeScript(u *v1alpha1.NodeOpUpgrade, active, compare bool) string {
	call := "kairos-agent "
	if nodeop.IsTrue(u.Spec.Debug) {
		call += "--debug "
	}
	var calls []string
	if nodeop.IsTrue(u.Spec.UpgradeRecovery) {
		calls = append(calls, call+"upgrade --recovery --source dir:/")
	}
	if active {
		calls = append(calls, call+"upgrade --source dir:/")
	}
	var excludes strings.Builder
	for _, path := range append(slices.Clone(neverCopied), u.Spec.ExcludePaths...) {
		excludes.WriteString(" --exclude-path " + shellQuote(path))
	}
	var out strings.Builder
	err := upgradeTemplate.Execute(&out, map[string]any{
		"Active": active, "Compare": compare, "Calls": calls, "Excludes": excludes.String(), "Strict": len(u.Spec.ExcludePaths) > 0,
	})
	if err != nil {
		panic(err) // the template is a constant and its data are strings
	}
	return out.String()
}

// shellQuote quotes a word for a shell.
func shellQuote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// IsOf reports whether a NodeOp is the one that carries out an upgrade.
func IsOf(o *v1alpha1.NodeOp, u *v1alpha1.NodeOpUpgrade) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.UID == u.UID && owner.Kind == nodeop.UpgradeKind
}

// IsFinished reports whether an upgrade has ended. No NodeOp is created for it any more.
func IsFinished(u *v1alpha1.NodeOpUpgrade) bool {
	return u.Status.Phase == v1alpha1.PhaseCompleted || u.Status.Phase == v1alpha1.PhaseFailed
}
