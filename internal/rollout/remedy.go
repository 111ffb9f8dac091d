// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// remedies says what ends a wait, by reason. SKYHOOK, NODE and PACKAGE stand for the names.
// GROUP is the group that the reason is about, POD the pod.
var remedies = map[Reason]string{
	ReasonWindow:              "it starts when the window opens",
	ReasonBudget:              "it starts when one of the nodes in flight is done; a larger budget admits more at once",
	ReasonTopology:            "it starts when one of the nodes of the same rack or zone is done",
	ReasonBatch:               "the next batch starts when the nodes of this one are done",
	ReasonWave:                "it starts when every node there is finished and counts: fix, reset or ignore those that failed",
	ReasonApproval:            "kubectl skyhook approve GROUP",
	ReasonStopped:             "fix what failed, then: kubectl skyhook restart-batches SKYHOOK",
	ReasonProtectedPod:        "the pod is never evicted: wait until it ends, or end it: kubectl delete pod POD",
	ReasonPodDisruptionBudget: "give the workload more ready replicas, or raise maxUnavailable; the eviction is retried",
	ReasonPodLeaving:          "the pod has its grace period to terminate; if its node is gone, delete it by force",
	ReasonPodKept:             "delete the pod, or allow its eviction with drainConfig: force, deleteEmptyDirData or ignoreDaemonSets",
	ReasonDrainTimeout:        "move the pods away, then: kubectl skyhook node reapply NODE --skyhook SKYHOOK",
	ReasonHandover:            "the drain begins when the answer is yes; see handover of the policy",
	ReasonHandoverTimeout:     "have the other program answer, or change handover of the policy",
	ReasonLoadBalancer:        "the drain begins when the time is over, see drainConfig.loadBalancerDelay",
	ReasonImageDigest:         "it starts when that node has pulled the image; kubectl describe pod shows what the pull waits for",
	ReasonDependency:          "it starts when the packages it depends on are complete on the node",
	ReasonSerial:              "it starts when the package before it is done; serial: false lets packages run in parallel",
	ReasonInterruptGroup:      "the interrupt starts when the other packages can do no more without it",
	ReasonSharedReboot:        "the node reboots when the others are ready for it, or have failed; see why they are not, or pause them",
	ReasonEarlierRollout:      "see why the earlier one is not complete on the node; if this one need not wait for it, give it a lower priority",
	ReasonBarrier:             "see why the earlier one is not complete; if it is disabled, no other waits for it",
	ReasonOccupied:            "it starts when the other one has released the node",
	ReasonPaused:              "kubectl skyhook resume SKYHOOK",
	ReasonDisabled:            "kubectl skyhook enable SKYHOOK",
	ReasonIgnored:             "kubectl skyhook node unignore NODE",
	ReasonTaintNotTolerated:   "add the taint to additionalTolerations, or remove it from the node",
	ReasonNodeNotReady:        "see kubectl describe node; it continues when the node is ready",
	ReasonInOthersCare:        "it starts when that is gone; see avoid of the policy",
	ReasonNodeGone:            "nothing to do",
	ReasonImagePull:           "correct image, version or pull secret; it is retried",
	ReasonPreflight:           "it is looked again every ten minutes; kubectl skyhook node describe shows what the preflight said",
	ReasonPrivileges:          "raise maxPrivileges of the policy, or say in privileges of the package what it needs",
	ReasonPulling:             "it is admitted when its images are on the node; kubectl describe pod shows what the pull waits for",
	ReasonKubeletRejected:     "see kubectl describe pod; it is retried",
	ReasonRefused:             "change what the message names; it is retried",
	ReasonPodLost:             "it is created again",
	ReasonStageFailed:         "kubectl skyhook package logs PACKAGE --skyhook SKYHOOK --node NODE; it is retried",
	ReasonDefinitionChanged:   "it follows when the stage ends; to replace the stage now: kubectl skyhook package reapply PACKAGE --skyhook SKYHOOK --node NODE --now",
	ReasonDeadline:            "see the logs, or raise stageTimeout of the package",
	ReasonRebootNotStarted:    "check the console of the node; reboot it manually if nothing happens",
	ReasonRebootTimeout:       "check the console of the node: it has not come back",
	ReasonHealthGate:          "fix what the gate checks",
	ReasonProof:               "the node is given back when that is true; see spec.proof",
	ReasonProofFailed:         "fix what is not true, and the node is given back; or change spec.proof",
	ReasonRolledBack:          "correct what failed and change the packages, or try them again: kubectl skyhook package reapply; kubectl skyhook undo SKYHOOK goes back on all nodes",
	ReasonSoak:                "it counts when the time is over",
	ReasonPolicyMissing:       "create the DeploymentPolicy, or correct deploymentPolicy",
	ReasonInvalidSpec:         "correct the spec; kubectl skyhook validate -f FILE checks it first",
	ReasonStateUnreadable:     "correct the annotation, or: kubectl skyhook forget SKYHOOK --node NODE",
	ReasonLedger:              "it continues automatically",
	ReasonUpNext:              "it continues automatically",
}

// protectedRemedies says what ends the wait for a protected pod, by Why.By.
var protectedRemedies = map[string]string{
	ProtectedByLabels:       "the pod matches podNonInterruptLabels and is never evicted: wait until it ends, or end it: kubectl delete pod POD",
	ProtectedByAnnotation:   "its annotation protects it: wait until it ends, or allow its eviction: kubectl annotate pod POD " + ProtectedByAnnotation + "-",
	ProtectedByDoNotDisrupt: "its annotation protects it: wait until it ends, or allow its eviction: kubectl annotate pod POD " + ProtectedByDoNotDisrupt + "-",
}

// IsWait reports whether a target with this reason waits: it has a remedy.
func (r Reason) IsWait() bool { return remedies[r] != "" }

// Known returns the reason if it is one of the reasons to wait, and otherwise another one: recorded reasons are read from annotations.
func (r Reason) Known(otherwise Reason) Reason {
	if r.IsWait() {
		return r
	}
	return otherwise
}

// WaitReasons returns the reasons to wait, in the order of their names.
func WaitReasons() []Reason { return slices.Sorted(maps.Keys(remedies)) }

// IsTransient reports whether a wait ends with one of the next passes, so that it needs no event.
func (r Reason) IsTransient() bool { return r == ReasonLedger || r == ReasonUpNext }

// Remedy returns what ends a wait; empty if there is none. Without the name of a package it says PACKAGE.
func (w Why) Remedy(rollout, node, pkg string) string {
	if pkg == "" {
		pkg = "PACKAGE"
	}
	text := remedies[w.Reason]
	if protected := protectedRemedies[w.By]; w.Reason == ReasonProtectedPod && protected != "" {
		text = protected
	}
	return strings.NewReplacer("SKYHOOK", rollout, "NODE", node, "PACKAGE", pkg, "GROUP", w.describeGroup(), "POD", w.describePod()).Replace(text)
}

// describePod returns the pod that a reason is about as arguments of kubectl: "job-1 --namespace batch".
func (w Why) describePod() string {
	namespace, name, isPod := strings.Cut(strings.TrimPrefix(w.About, "Pod "), "/")
	if !isPod {
		return "NAME"
	}
	return name + " --namespace " + namespace
}

// describeGroup returns the group that a reason is about as arguments of the plugin: "skyhook/demo rest".
func (w Why) describeGroup() string {
	g := ParseGroupRef(w.About)
	name := g.Name()
	if strings.ContainsFunc(name, needsQuotes) {
		name = "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return strings.ToLower(g.Owner.Kind) + "/" + g.Owner.Path() + " " + name
}

// needsQuotes reports whether a shell may read a character as something else.
func needsQuotes(c rune) bool {
	isPlain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c)
	return !isPlain
}

// Sentence describes a verdict: what the target waits for, since when, and what ends the wait. Status, events and the
// CLI show the same sentence.
func (v Verdict) Sentence(rollout string) string {
	text := v.Why.Text
	if !v.Why.Since.IsZero() {
		text += ", since " + v.Why.Since.UTC().Format(time.RFC3339)
	}
	if remedy := v.Why.Remedy(rollout, v.Node, ""); remedy != "" {
		text += " (" + remedy + ")"
	}
	return text
}
