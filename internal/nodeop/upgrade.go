// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// UpgradeKind is the kind of the owner of a NodeOp that carries an upgrade out.
const UpgradeKind = "NodeOpUpgrade"

//go:embed upgrade.sh.tmpl
var upgradeScript string

//go:embed preflight.sh
var preflightScript string

var upgrading = template.Must(template.New("upgrade").Parse(upgradeScript))

// neverCopied are put into every container by Kubernetes.
var neverCopied = []string{"/etc/hostname", "/etc/hosts"}

// upgradeRetries is how often an upgrade that failed is tried again: it writes a whole system to the node's disk each
// time, and hardly ever ends otherwise than before.
const upgradeRetries = 1

// Child is the NodeOp that carries an upgrade out. Without a reboot nothing is disturbed, so nothing is moved away; the
// version of a recovery system is not known, so asking for it is never for nothing.
func Child(u *v1alpha1.NodeOpUpgrade) *v1alpha1.NodeOp {
	active, yes := u.Spec.UpgradeActive == nil || *u.Spec.UpgradeActive, true
	compare := active && !on(u.Spec.UpgradeRecovery) && !on(u.Spec.Force)
	out := &v1alpha1.NodeOp{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: u.Name, Namespace: u.Namespace,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByUpgrade, v1alpha1.LabelUpgrade: u.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: UpgradeKind, Name: u.Name, UID: u.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: v1alpha1.NodeOpSpec{
			NodeSelector: *u.Spec.NodeSelector.DeepCopy(), Image: u.Spec.Image, ImagePullSecrets: slices.Clone(u.Spec.ImagePullSecrets),
			Command:     []string{"/bin/sh", "-c", script(u, active, compare)},
			Concurrency: u.Spec.Concurrency, StopOnFailure: pointer(on(u.Spec.StopOnFailure)), UncordonOnFailure: pointer(on(u.Spec.UncordonOnFailure)),
			HostMountPath: defaultHostMount, Cordon: pointer(active), RebootOnSuccess: pointer(active), BackoffLimit: pointer(int32(upgradeRetries)),
		},
	}
	if active {
		out.Spec.DrainOptions = &v1alpha1.DrainOptions{Enabled: &yes, DeleteEmptyDirData: &yes, IgnoreDaemonSets: &yes, Force: pointer(false)}
	}
	if compare {
		out.Spec.Preflight = &v1alpha1.Preflight{
			Command: []string{"/bin/sh", "-c", preflightScript}, ActiveDeadlineSeconds: pointer(int32(defaultPreflight / time.Second)),
		}
	}
	return out
}

// script is what runs on each node.
func script(u *v1alpha1.NodeOpUpgrade, active, compare bool) string {
	call := "kairos-agent "
	if on(u.Spec.Debug) {
		call += "--debug "
	}
	var calls []string
	if on(u.Spec.UpgradeRecovery) {
		calls = append(calls, call+"upgrade --recovery --source dir:/")
	}
	if active {
		calls = append(calls, call+"upgrade --source dir:/")
	}
	var excludes strings.Builder
	for _, path := range append(slices.Clone(neverCopied), u.Spec.ExcludePaths...) {
		excludes.WriteString(" --exclude-path " + quoted(path))
	}
	var out strings.Builder
	err := upgrading.Execute(&out, map[string]any{
		"Active": active, "Compare": compare, "Calls": calls, "Excludes": excludes.String(), "Strict": len(u.Spec.ExcludePaths) > 0,
	})
	if err != nil {
		panic(err) // a constant, and plain data
	}
	return out.String()
}

// quoted is a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// upgrades says that this NodeOp carries an upgrade out.
func (c *Compiled) upgrades() bool {
	owner := metav1.GetControllerOf(c.in.NodeOp)
	return owner != nil && owner.Kind == UpgradeKind && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/")
}

// fellBack says what came up in place of what an upgrade installed; empty when that came up, or when nobody can tell. A
// system that does not boot leaves the node with the one from before.
func (c *Compiled) fellBack(t *target, proof *pack.Reboot) string {
	if proof == nil || !c.upgrades() {
		return ""
	}
	want, said := strings.CutPrefix(t.lastRun().output, prefixTarget)
	if !said {
		want = ""
	}
	if r := t.rec.Result; r != nil && r.Target != "" {
		want = r.Target
	}
	switch proof.System {
	case pack.KairosPassive, pack.KairosRecovery, pack.KairosLive:
	default:
		if want == "" || proof.Version == "" || want == proof.Version {
			return ""
		}
	}
	text := "the node booted " + first(proof.Version, "an unknown version")
	if proof.System != "" && proof.System != pack.KairosUnknown {
		text += " (" + proof.System + ")"
	}
	return text + " and not " + first(want, "the upgraded system")
}

// Carries says that a NodeOp is the one that carries an upgrade out.
func Carries(o *v1alpha1.NodeOp, u *v1alpha1.NodeOpUpgrade) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.UID == u.UID && owner.Kind == UpgradeKind
}

// UpgradeFinal says that an upgrade has ended: nothing is made for it any more.
func UpgradeFinal(u *v1alpha1.NodeOpUpgrade) bool {
	return u.Status.Phase == v1alpha1.PhaseCompleted || u.Status.Phase == v1alpha1.PhaseFailed
}

// The messages of an upgrade, by the phase of its NodeOp.
func upgradeMessage(phase v1alpha1.Phase) string {
	switch phase {
	case v1alpha1.PhaseRunning:
		return "Upgrade operation is running"
	case v1alpha1.PhaseCompleted:
		return "Upgrade operation completed successfully"
	case v1alpha1.PhaseFailed:
		return "Upgrade operation failed"
	}
	return "Upgrade operation is pending"
}

// UpgradeStatus mirrors the NodeOp of this name; nil when there is none. A NodeOp that was deleted is not made again: it
// would upgrade every node again.
func UpgradeStatus(u *v1alpha1.NodeOpUpgrade, o *v1alpha1.NodeOp, nodes []*Node, now time.Time) v1alpha1.NodeOpUpgradeStatus {
	was := u.Status
	out := *was.DeepCopy()
	out.ObservedGeneration, out.NodeOpName = u.Generation, u.Name
	accepted, why := true, "the spec can be carried out"
	switch {
	case o != nil && !Carries(o, u):
		accepted, why = false, "a NodeOp of this name exists and is not this upgrade's: delete it, or choose another name"
		out.NodeOpName, out.Message, out.Phase = was.NodeOpName, why, v1alpha1.PhasePending
	case o == nil && UpgradeFinal(u):
		return was
	case o == nil && was.NodeOpName != "":
		out.Phase, out.Message = v1alpha1.PhaseFailed, "its NodeOp was deleted: create another NodeOpUpgrade to upgrade again"
	case o == nil:
		out.NodeOpName, out.Phase, out.Message = "", v1alpha1.PhasePending, upgradeMessage("")
	case o.Status.Phase == "":
		out.Phase, out.Message = v1alpha1.PhaseInitializing, "NodeOp created"
	default:
		mirror(&out, o, nodes)
	}
	out.Conditions = slices.Clone(was.Conditions)
	say := func(kind string, yes bool, reason, message string) {
		status := metav1.ConditionFalse
		if yes {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&out.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: bounded(message, 1000), ObservedGeneration: u.Generation})
	}
	reason := v1alpha1.ReasonAccepted
	if !accepted {
		reason = v1alpha1.ReasonInvalidSpec
	}
	say(v1alpha1.ConditionAccepted, accepted, reason, why)
	for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionReady} {
		if o == nil || !accepted {
			say(kind, false, first(failedReason(out.Phase), v1alpha1.ReasonWaiting), out.Message)
		} else if c := meta.FindStatusCondition(o.Status.Conditions, kind); c != nil {
			say(kind, c.Status == metav1.ConditionTrue, c.Reason, c.Message)
		}
	}
	for i := range out.Conditions { // set by the clock of this pass
		if old := meta.FindStatusCondition(was.Conditions, out.Conditions[i].Type); old == nil || old.Status != out.Conditions[i].Status {
			out.Conditions[i].LastTransitionTime = metav1.NewTime(whole(now))
		}
	}
	if a, b := timeless(out), timeless(was); !reflect.DeepEqual(a, b) {
		out.LastUpdated = metav1.NewTime(whole(now))
	}
	return out
}

func failedReason(p v1alpha1.Phase) string {
	if p == v1alpha1.PhaseFailed {
		return v1alpha1.ReasonFailed
	}
	return ""
}

func timeless(s v1alpha1.NodeOpUpgradeStatus) v1alpha1.NodeOpUpgradeStatus {
	s = *s.DeepCopy()
	s.LastUpdated = metav1.Time{}
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	for name, e := range s.NodeStatuses {
		s.NodeStatuses[name] = plain(e)
	}
	return s
}

// mirror copies the lines of the NodeOp, and compares the version a node runs with the image's.
func mirror(out *v1alpha1.NodeOpUpgradeStatus, o *v1alpha1.NodeOp, nodes []*Node) {
	out.Phase, out.Counters, out.Message = o.Status.Phase, o.Status.Counters, upgradeMessage(o.Status.Phase)
	out.NodeStatuses = nil
	running := map[string]string{}
	for _, n := range nodes {
		running[n.Name] = versionOf(n)
	}
	var behind []string
	for name, e := range o.Status.NodeStatuses {
		if out.NodeStatuses == nil {
			out.NodeStatuses = map[string]v1alpha1.NodeStatus{}
		}
		e = *e.DeepCopy()
		if v := running[name]; v != "" && sanitise(v) != sanitise(e.CurrentVersion) { // what labels cannot carry is known from the reboot
			e.CurrentVersion = v
		}
		if e.RebootStatus == v1alpha1.RebootCompleted && e.TargetVersion != "" && e.CurrentVersion != "" && sanitise(e.TargetVersion) != sanitise(e.CurrentVersion) {
			behind = append(behind, name)
		}
		out.NodeStatuses[name] = e
	}
	if len(behind) > 0 && out.Phase == v1alpha1.PhaseCompleted {
		out.Message += fmt.Sprintf(", but these nodes booted another version: %s", some(behind))
	}
}
