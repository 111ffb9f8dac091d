// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// Reason is a constant of a closed list: why a target waits, is blocked or failed, or why an action is taken.
type Reason string

// Reasons to wait.
const (
	ReasonWindow              Reason = "Window"              // outside every maintenance window
	ReasonBudget              Reason = "Budget"              // every slot is used
	ReasonTopology            Reason = "Topology"            // enough nodes of the same rack or zone are busy
	ReasonBatch               Reason = "Batch"               // the open batch has not ended
	ReasonWave                Reason = "Wave"                // an earlier compartment is not complete
	ReasonApproval            Reason = "Approval"            // a person must approve the compartment first
	ReasonStopped             Reason = "Stopped"             // too many failures, or a health gate: the group stopped
	ReasonProtectedPod        Reason = "ProtectedPod"        // a pod that must not be interrupted runs there
	ReasonPodDisruptionBudget Reason = "PodDisruptionBudget" // an eviction was refused
	ReasonPodLeaving          Reason = "PodLeaving"          // an evicted pod has not terminated yet
	ReasonPodKept             Reason = "PodKept"             // the drain options do not allow the eviction of a pod
	ReasonDrainTimeout        Reason = "DrainTimeout"        // the drain took too long
	ReasonHandover            Reason = "Handover"            // somebody is asked for the node
	ReasonHandoverTimeout     Reason = "HandoverTimeout"     // the answer took too long
	ReasonLoadBalancer        Reason = "LoadBalancer"        // load balancers have a time to stop sending requests to the node
	ReasonImageDigest         Reason = "ImageDigest"         // another node pulls the image first, so that its digest is known
	ReasonDependency          Reason = "Dependency"          // waits for another task on the node
	ReasonSerial              Reason = "Serial"              // one package at a time
	ReasonInterruptGroup      Reason = "InterruptGroup"      // the interrupt waits until the other packages have ended
	ReasonSharedReboot        Reason = "SharedReboot"        // it awaits a reboot that others on the node share
	ReasonEarlierRollout      Reason = "EarlierSkyhook"      // an earlier rollout has work on the node
	ReasonBarrier             Reason = "Barrier"             // an earlier rollout must finish everywhere
	ReasonOccupied            Reason = "Occupied"            // another rollout is in progress on the node
	ReasonPaused              Reason = "Paused"
	ReasonDisabled            Reason = "Disabled"
	ReasonIgnored             Reason = "Ignored"
	ReasonTaintNotTolerated   Reason = "TaintNotTolerated"
	ReasonNodeNotReady        Reason = "NodeNotReady"
	ReasonInOthersCare        Reason = "InOthersCare" // somebody else has cordoned the node, or cares for it
	ReasonNodeGone            Reason = "NodeGone"
	ReasonImagePull           Reason = "ImagePull"
	ReasonPulling             Reason = "Pulling"    // its images are pulled before it is admitted
	ReasonPreflight           Reason = "Preflight"  // it is looked before its turn what the node needs, or that says that nothing may begin
	ReasonPrivileges          Reason = "Privileges" // a pod would be allowed more than the policy permits
	ReasonKubeletRejected     Reason = "KubeletRejected"
	ReasonRefused             Reason = "Refused" // the API server or an admission policy refused a request
	ReasonPodLost             Reason = "PodLost" // another client deletes the object before it finished, or its node shut down
	ReasonStageFailed         Reason = "StageFailed"
	ReasonDefinitionChanged   Reason = "DefinitionChanged" // a task runs with an earlier definition
	ReasonDeadline            Reason = "Deadline"
	ReasonRebootNotStarted    Reason = "RebootNotStarted"
	ReasonRebootTimeout       Reason = "RebootTimeout"
	ReasonHealthGate          Reason = "HealthGate"
	ReasonProof               Reason = "Proof"       // all work is done, and something is not true that must be before the node is given back
	ReasonProofFailed         Reason = "ProofFailed" // it did not become true in time
	ReasonRolledBack          Reason = "RolledBack"  // the work failed for good, and the node rolled back to what was complete before
	ReasonSoak                Reason = "Soak"
	ReasonPolicyMissing       Reason = "PolicyMissing"
	ReasonInvalidSpec         Reason = "InvalidSpec"
	ReasonStateUnreadable     Reason = "StateUnreadable"
	ReasonLedger              Reason = "Ledger" // something must be stored first
	ReasonUpNext              Reason = "UpNext" // nothing blocks the target: the next pass continues
)

// Reasons to act, and of finished targets.
const (
	ReasonWorking    Reason = "Working"    // a task is running
	ReasonFinished   Reason = "Finished"   // no pending work
	ReasonOwed       Reason = "Owed"       // the target has pending work and a slot is free
	ReasonQuiet      Reason = "Quiet"      // a task needs the node drained
	ReasonEnded      Reason = "Ended"      // the object of a task has finished
	ReasonReplaced   Reason = "Replaced"   // the operator deletes an object that nobody needs, or for another one
	ReasonLeft       Reason = "Left"       // the node is no longer selected
	ReasonNewNode    Reason = "NewNode"    // the node is new
	ReasonNodeBooted Reason = "NodeBooted" // packages are applied again because the node booted
	ReasonCovered    Reason = "Covered"    // a stronger interrupt covers this one
	ReasonRetry      Reason = "Retry"
	ReasonDrift      Reason = "Drift"  // it is time to check whether the node is still as it was left
	ReasonOrphan     Reason = "Orphan" // the owner of a hold is deleted
	ReasonGiveUp     Reason = "GiveUp" // the deletion continues without this node
)

// IsOfGroup reports whether a candidate that waits for this reason waits as all others of its rollout and group do.
func (r Reason) IsOfGroup() bool {
	switch r {
	case ReasonBudget, ReasonBatch, ReasonStopped, ReasonLedger, ReasonWave, ReasonApproval, ReasonWindow, ReasonHealthGate:
		return true
	}
	return false
}
