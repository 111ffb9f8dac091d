// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Reason is a constant of a closed list: why something waits, is blocked, failed or happens.
type Reason string

// Reasons to wait or to be stuck.
const (
	ReasonWindow              Reason = "Window"              // outside every maintenance window
	ReasonBudget              Reason = "Budget"              // every seat is taken
	ReasonTopology            Reason = "Topology"            // enough nodes of the same rack or zone are busy
	ReasonBatch               Reason = "Batch"               // the open batch has not ended
	ReasonStopped             Reason = "Stopped"             // too many failures: the group stopped
	ReasonProtectedPod        Reason = "ProtectedPod"        // a pod that must not be interrupted runs there
	ReasonPodDisruptionBudget Reason = "PodDisruptionBudget" // an eviction was refused
	ReasonPodLeaving          Reason = "PodLeaving"          // an evicted pod has not gone yet
	ReasonPodKept             Reason = "PodKept"             // a pod in the way may not be evicted by the options in force
	ReasonDrainTimeout        Reason = "DrainTimeout"        // the drain took too long
	ReasonDependency          Reason = "Dependency"          // waits for another task on the node
	ReasonSerial              Reason = "Serial"              // one package at a time was asked for
	ReasonInterruptGroup      Reason = "InterruptGroup"      // the interrupt waits until the other packages have ended
	ReasonEarlierRollout      Reason = "EarlierSkyhook"      // an earlier rollout owes this node
	ReasonBarrier             Reason = "Barrier"             // an earlier rollout must finish everywhere
	ReasonOccupied            Reason = "Occupied"            // another rollout is at work on the node
	ReasonPaused              Reason = "Paused"
	ReasonDisabled            Reason = "Disabled"
	ReasonIgnored             Reason = "Ignored"
	ReasonTaintNotTolerated   Reason = "TaintNotTolerated"
	ReasonNodeNotReady        Reason = "NodeNotReady"
	ReasonNodeGone            Reason = "NodeGone"
	ReasonImagePull           Reason = "ImagePull"
	ReasonKubeletRejected     Reason = "KubeletRejected"
	ReasonPodLost             Reason = "PodLost" // the object vanished before it ended
	ReasonStageFailed         Reason = "StageFailed"
	ReasonDeadline            Reason = "Deadline"
	ReasonRebootNotStarted    Reason = "RebootNotStarted"
	ReasonRebootTimeout       Reason = "RebootTimeout"
	ReasonHealthGate          Reason = "HealthGate"
	ReasonSoak                Reason = "Soak"
	ReasonPolicyMissing       Reason = "PolicyMissing"
	ReasonInvalidSpec         Reason = "InvalidSpec"
	ReasonStateUnreadable     Reason = "StateUnreadable"
	ReasonLedger              Reason = "Ledger" // earlier admissions are not yet seen on their nodes
	ReasonUpNext              Reason = "UpNext" // nothing is in the way: the next pass goes on
)

// Reasons to act or to be content.
const (
	ReasonWorking  Reason = "Working"  // a task runs
	ReasonFinished Reason = "Finished" // nothing is owed
	ReasonOwed     Reason = "Owed"     // the target owes work and a seat is free
	ReasonQuiet    Reason = "Quiet"    // a task needs the node quiet
	ReasonEnded    Reason = "Ended"    // a task's object has ended
	ReasonReplaced Reason = "Replaced" // the definition changed
	ReasonLeft     Reason = "Left"     // the node is no longer selected
	ReasonNewNode  Reason = "NewNode"  // seen for the first time
	ReasonCovered  Reason = "Covered"  // a stronger interrupt does the work
	ReasonRetry    Reason = "Retry"
	ReasonOrphan   Reason = "Orphan" // the owner of a hold is gone
	ReasonGiveUp   Reason = "GiveUp" // deletion goes on without this node
)
