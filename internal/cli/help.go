// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/skyhook-k8s/skyhook/internal/rollout"

// help says what would end a wait, by its reason. What needs nobody has none.
var help = map[rollout.Reason]string{
	rollout.ReasonWindow:              "it begins when the window opens",
	rollout.ReasonBudget:              "it begins when one of the nodes below is done; a larger budget admits more at once",
	rollout.ReasonTopology:            "it begins when one of the nodes of the same place is done",
	rollout.ReasonBatch:               "the next batch begins when the nodes below are done",
	rollout.ReasonStopped:             "mend what failed, then: kubectl skyhook deployment-policy reset SKYHOOK",
	rollout.ReasonProtectedPod:        "nobody touches the pod: let it end, move it, or take it out of podNonInterruptLabels",
	rollout.ReasonPodDisruptionBudget: "make room for the budget: more ready replicas, or a larger maxUnavailable; it is tried again by itself",
	rollout.ReasonPodLeaving:          "the pod has its grace period to end; when its node is gone, delete it by force",
	rollout.ReasonPodKept:             "delete the pod yourself, or allow its eviction with drain.force or drain.deleteEmptyDirData",
	rollout.ReasonDrainTimeout:        "move the pods away, then: kubectl skyhook node reset NODE --skyhook SKYHOOK",
	rollout.ReasonPaused:              "kubectl skyhook resume SKYHOOK",
	rollout.ReasonDisabled:            "kubectl skyhook enable SKYHOOK",
	rollout.ReasonIgnored:             "kubectl skyhook node unignore NODE",
	rollout.ReasonTaintNotTolerated:   "add the taint to additionalTolerations, or remove it from the node",
	rollout.ReasonNodeNotReady:        "see kubectl describe node; it goes on by itself when the node is ready",
	rollout.ReasonImagePull:           "correct image, version or pull secret; it is tried again by itself",
	rollout.ReasonKubeletRejected:     "see kubectl describe pod; it is tried again by itself",
	rollout.ReasonStageFailed:         "kubectl skyhook package logs PACKAGE --skyhook SKYHOOK --node NODE; it is tried again by itself",
	rollout.ReasonDeadline:            "see the logs, or raise deadline of the package",
	rollout.ReasonRebootNotStarted:    "look at the console of the node; reboot it by hand if nothing moves",
	rollout.ReasonRebootTimeout:       "look at the console of the node: it has not come back",
	rollout.ReasonHealthGate:          "mend what the gate checks on the node",
	rollout.ReasonPolicyMissing:       "create the DeploymentPolicy, or correct deploymentPolicy",
	rollout.ReasonInvalidSpec:         "correct the spec; kubectl skyhook validate -f FILE checks it first",
	rollout.ReasonStateUnreadable:     "correct the annotation, or: kubectl skyhook reset SKYHOOK --node NODE",
}
