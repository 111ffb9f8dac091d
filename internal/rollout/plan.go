// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Verb is what an Action does.
type Verb string

// The verbs, in the order of a target's life cycle.
const (
	VerbTaint  Verb = "taint"  // put the runtime-required taint on a new node
	VerbPull   Verb = "pull"   // create the object that pulls the images of a target before its turn
	VerbAdmit  Verb = "admit"  // write the admission to the node's record; failed attempts are counted anew
	VerbHold   Verb = "hold"   // cordon the node for this rollout
	VerbCount  Verb = "count"  // write how many pods have to leave to the node's record, for a drain that takes long
	VerbAsk    Verb = "ask"    // write to the node's record which step of the handover is asked, and create its object
	VerbEvict  Verb = "evict"  // evict one pod; Action.Force deletes it
	VerbJoin   Verb = "join"   // record that the target awaits a reboot that others may share: Target.Reboot
	VerbRun    Verb = "run"    // create the task's object
	VerbCover  Verb = "cover"  // record that another task covers this one
	VerbRecord Verb = "record" // write a task's state to the node
	VerbSweep  Verb = "sweep"  // delete an object of ours
	VerbRecall Verb = "recall" // tell an object to end before the next of its tasks
	VerbProve  Verb = "prove"  // write to the node's record that the proof is waited for
	// record that the node rolls back to what was complete there before; attempts are counted anew
	VerbRollback Verb = "rollback"
	VerbVerify   Verb = "verify"  // create the object that checks whether a finished node is still as it was left
	VerbNote     Verb = "note"    // write what that found out to the node
	VerbRelease  Verb = "release" // remove the hold of this rollout
	VerbUntaint  Verb = "untaint" // remove the runtime-required taint
	VerbRetire   Verb = "retire"  // end the target's part in the rollout; Action.Wipe also removes its record
)

// Action is one verb on one node, with its reason. Actions of one node are applied in order, nodes in parallel.
type Action struct {
	Verb     Verb
	Rollout  Ref
	Node     string
	Ledger   Ref           // VerbAdmit, VerbHold: the ledger of Plan.Ledgers that must be written before; on conflict this action and all later ones of the node are skipped
	Task     string        // Join, Run, Cover, Record, Sweep: Task.ID; empty for an orphan
	Then     []string      // Run: IDs of the tasks that the same object runs afterwards, in this order
	Covers   []string      // Run of an Alone task: IDs of the tasks that it covers; Join: SharedReboot.Tasks
	By       string        // Cover: ID of the task that runs
	Object   string        // Sweep, Recall, Note: name of the object; Ask: name of the step, empty when all have answered
	Pod      *Pod          // Evict
	Pods     int           // Count: pods that had to leave when the drain began
	Drained  bool          // Run: the node was drained for it, so that what is recorded of its drain is over
	Force    bool          // Evict: delete it
	State    State         // Record: what to write
	Attempts int           // Record: failed attempts so far
	Took     time.Duration // Record: how long the task ran, if its object has gone on with another one
	Expected time.Duration // Hold: how long the visit should take; 0 if unknown
	Order    int           // Admit
	Batch    int64         // Admit: becomes Target.Visit.Batch
	Group    GroupRef      // Admit: becomes Target.Visit.BatchOf
	Wipe     bool          // Retire: also remove the record
	Skip     bool          // Retire: the target is unfinished, see Target.Visit.Skipped
	Postpone bool          // Retire: the target is unfinished, and becomes a candidate again
	Cordon   bool          // Untaint: cordon the node in the same step, see Rollout.Taint.CordonAfter
	CanWait  bool          // Record, Sweep: nothing waits for it, and more is to follow on the node, with which it may be carried out some seconds later
	Why      Why           // Record of a failure: stored, and Task.Why if there is no object
}

// Phase is the state of a target; front ends map it to the states of their API.
type Phase string

// The phases.
const (
	PhaseFinished Phase = "finished"  // no pending work
	PhaseWaiting  Phase = "waiting"   // pending work, not admitted
	PhaseInFlight Phase = "in-flight" // admitted
	PhaseFailing  Phase = "failing"   // admitted, and a task failed and will be retried
	PhaseFailed   Phase = "failed"    // admitted, and a task's failure is final
	PhaseBlocked  Phase = "blocked"   // cannot be worked on
	PhasePaused   Phase = "paused"    // its rollout is paused
	PhaseDisabled Phase = "disabled"  // its rollout is disabled
)

// Why is a reason that a person can act on: a constant for programs, a sentence for people, and the object it is about.
type Why struct {
	Reason Reason
	Text   string    // a sentence without a full stop, deterministic and bounded
	About  string    // the object waited for: "Pod ns/name", "Skyhook other", …
	By     string    // with ReasonProtectedPod: Pod.Protection
	Since  time.Time // of a verdict: since when it waits; zero if unknown
}

// Verdict is the state of one target, and why.
type Verdict struct {
	Node  string
	Phase Phase
	Why   Why
}

// Report has the verdicts of one rollout.
type Report struct {
	Rollout   Ref
	Verdicts  []Verdict // one per target, in the order of the targets
	NextOrder int
	Draining  []Drained // the drains that take the longest first

	Completion Completion
}

// GroupReport is the progress of a group. Memory must be stored if it differs from the stored one.
type GroupReport struct {
	Group            GroupRef
	Memory           Memory
	Matched          int // targets
	Ceiling          int // Group.Limit
	Busy             int // nodes that count against it
	Finished, Failed int
	Waiting          int  // candidates for admission
	InFlight         int  // targets
	Why              *Why // why it admits none of them now
}

// Plan is the outcome of a decision.
type Plan struct {
	Ledgers []Ledger // to be written, if Epoch is still one less, before the actions that name them
	Actions []Action
	Reports []Report
	Groups  []GroupReport
	// targets whose node is being drained and has pods in the way; sorted
	Draining []Drained
	Look     []string // nodes whose pods the next snapshot must list, beyond those that are held; sorted
	// what other programs are told about nodes; sorted
	Maintenance []Maintenance
	Next        time.Time // when to decide again though nothing has changed; zero for never
}

// Completion is when a rollout should have finished, by Snapshot.Times.
type Completion struct {
	At      time.Time     // when what is in flight ends and the others may begin; zero if unknown
	Waiting time.Duration // what the others take after that, while they may begin
}

// MaintenanceState is how far the work on a node is that needs it drained.
type MaintenanceState string

// The states.
const (
	NodePlanned  MaintenanceState = "planned"  // its turn is still to come
	NodeDraining MaintenanceState = "draining" // the rollout holds it, and it is not drained
	NodeDrained  MaintenanceState = "drained"  // nothing is in the way of the work
)

// Maintenance is a target of a rollout with Announce whose work needs its node drained. A held node that is not listed is as far as it
// was.
type Maintenance struct {
	Rollout Ref
	Node    string
	State   MaintenanceState
}

// Drained is a target whose node is being drained and has pods in the way.
type Drained struct {
	Rollout Ref
	Node    string
	UID     string    // of the node
	Since   time.Time // zero if unknown
	Long    bool      // it takes longer than LongDrain
	Left    int       // pods that must still leave
	All     int       // pods that had to leave when the drain began
	Waiting []PodCount
	Slowest []SlowPod // those that are expected to leave last, at most MaxSlowPods
}

// PodCount counts the pods that have not left for one reason.
type PodCount struct {
	Reason Reason
	Pods   int
}

// SlowPod is a pod that has not left its node, and why.
type SlowPod struct {
	Pod    string // namespace/name
	Reason Reason
	Text   string    // a sentence without a full stop, without the name of the pod
	Ends   time.Time // when it should be gone; zero if nobody knows
}
