// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// remedies says what would end a wait, by its reason. SKYHOOK, NODE and PACKAGE stand for the names.
var remedies = map[Reason]string{
	ReasonWindow:              "it begins when the window opens",
	ReasonBudget:              "it begins when one of the nodes in flight is done; a larger budget admits more at once",
	ReasonTopology:            "it begins when one of the nodes of the same place is done",
	ReasonBatch:               "the next batch begins when the nodes of this one are done",
	ReasonStopped:             "mend what failed, then: kubectl skyhook deployment-policy reset SKYHOOK",
	ReasonProtectedPod:        "nobody touches the pod: let it end, move it, or take it out of podNonInterruptLabels",
	ReasonPodDisruptionBudget: "make room for the budget: more ready replicas, or a larger maxUnavailable; it is tried again by itself",
	ReasonPodLeaving:          "the pod has its grace period to end; when its node is gone, delete it by force",
	ReasonPodKept:             "delete the pod yourself, or allow its eviction with drain.force or drain.deleteEmptyDirData",
	ReasonDrainTimeout:        "move the pods away, then: kubectl skyhook node reset NODE --skyhook SKYHOOK",
	ReasonDependency:          "it begins when the packages it depends on are complete on the node",
	ReasonSerial:              "it begins when the package before it is done; serial: false lets them run beside each other",
	ReasonInterruptGroup:      "the interrupt begins when the other packages have come as far as they can",
	ReasonEarlierRollout:      "see why the earlier one is not complete on the node; disabled, it steps aside",
	ReasonBarrier:             "see why the earlier one is not complete; disabled, it steps aside",
	ReasonOccupied:            "it begins when the other one has given the node back",
	ReasonPaused:              "kubectl skyhook resume SKYHOOK",
	ReasonDisabled:            "kubectl skyhook enable SKYHOOK",
	ReasonIgnored:             "kubectl skyhook node unignore NODE",
	ReasonTaintNotTolerated:   "add the taint to additionalTolerations, or remove it from the node",
	ReasonNodeNotReady:        "see kubectl describe node; it goes on by itself when the node is ready",
	ReasonNodeGone:            "nothing has to be done",
	ReasonImagePull:           "correct image, version or pull secret; it is tried again by itself",
	ReasonKubeletRejected:     "see kubectl describe pod; it is tried again by itself",
	ReasonPodLost:             "it is made again by itself",
	ReasonStageFailed:         "kubectl skyhook package logs PACKAGE --skyhook SKYHOOK --node NODE; it is tried again by itself",
	ReasonDeadline:            "see the logs, or raise deadline of the package",
	ReasonRebootNotStarted:    "look at the console of the node; reboot it by hand if nothing moves",
	ReasonRebootTimeout:       "look at the console of the node: it has not come back",
	ReasonHealthGate:          "mend what the gate checks",
	ReasonSoak:                "it counts by itself when the time is over",
	ReasonPolicyMissing:       "create the DeploymentPolicy, or correct deploymentPolicy",
	ReasonInvalidSpec:         "correct the spec; kubectl skyhook validate -f FILE checks it first",
	ReasonStateUnreadable:     "correct the annotation, or: kubectl skyhook reset SKYHOOK --node NODE",
	ReasonLedger:              "it goes on by itself",
	ReasonUpNext:              "it goes on by itself",
}

// Waits says that a reason is one to wait or to be stuck: it has a remedy, and is worth telling.
func (r Reason) Waits() bool { return remedies[r] != "" }

// Waits are the reasons to wait or to be stuck, in the order of their names.
func Waits() []Reason { return slices.Sorted(maps.Keys(remedies)) }

// Fleeting says that a wait is over with one of the next passes: it is worth no event.
func (r Reason) Fleeting() bool { return r == ReasonLedger || r == ReasonUpNext }

// Remedy is what would end a wait; empty when there is none. Without the name of a package it says PACKAGE.
func (w Why) Remedy(rollout, node, pkg string) string {
	if pkg == "" {
		pkg = "PACKAGE"
	}
	return strings.NewReplacer("SKYHOOK", rollout, "NODE", node, "PACKAGE", pkg).Replace(remedies[w.Reason])
}

// Sentence says all there is to say about a verdict: what it waits for, since when, and what would end that. Status,
// events and people are told the same.
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
