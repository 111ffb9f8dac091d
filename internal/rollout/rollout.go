// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout is the engine: it looks at a Snapshot of a fleet and says what to do next.
//
// Decide is pure. It reads nothing but the Snapshot (the clock is in it), changes nothing, and gives the same Plan
// for the same Snapshot. The Plan is a value: the operator applies it, the CLI prints it, the simulator plays it.
//
// The engine knows nodes, holds, tasks and budgets. It knows nothing of Kubernetes, Skyhooks or NodeOps: front ends
// compile those into Rollouts, and the back end turns Actions into API calls. Every Action is safe to repeat, and
// every Action and Verdict carries a Why that a person can act on.
//
// A target's life:
//
//	owes ──admit──► admitted ──hold──► held ──evict…──► quiet ──run──► running ──record──► … ──release──► ──retire──► finished
//
// It is in flight from admit to retire, and holds a seat in the budget of its group all the while.
package rollout

import "time"

// Snapshot is everything Decide may look at. It is plain data, so it can be saved to a file and replayed.
type Snapshot struct {
	Now      time.Time // max(clock, latest time recorded anywhere): time never runs backwards
	Nodes    []Node
	Groups   []Group
	Ledgers  []Ledger
	Rollouts []Rollout
}

// Node is a machine.
type Node struct {
	Name     string
	UID      string
	Created  time.Time
	Ready    bool
	ReadyAt  time.Time // since when it is ready; zero when unknown
	Cordoned bool      // unschedulable, whoever did it
	BootID   string    // of the boot that reports now
	Holds    []Hold    // ours, on every object's behalf
	Tainted  bool      // carries the runtime-required taint
	Known    bool      // some rollout of ours has seen it before; only unknown nodes are tainted on first sight
	Self     bool      // runs this operator: goes last within its class
	Sending  bool      // what an earlier plan does here is still under way: this one leaves the node alone
}

// Hold is a cordon with a name on it. The node becomes schedulable when its last hold goes, and only if no hold
// found it cordoned already. A hold placed beside others inherits what they found; a hold placed on a node that is
// schedulable though held (somebody uncordoned it meanwhile) clears what they found.
type Hold struct {
	Owner       Ref  // Rollout.Ref
	WasCordoned bool // the node was unschedulable before this hold, by somebody else
	Since       time.Time
	Orphan      bool // the owner is proven gone (twice, with no pod of ours left there): release it
}

// Group is a set of targets that share a budget and a pace. Several rollouts may share one group.
type Group struct {
	Ref    GroupRef // unique in the snapshot
	Ledger Ref      // Ledger.Owner: where its admissions are fenced and its Memory is kept; zero: not fenced, no batches
	Limit  int      // seats; Unlimited for none
	Pace   Pace
	Memory Memory        // as stored; admission uses nothing newer
	Taken  []string      // nodes that count against Limit though no rollout of ours put them there: not ready, or cordoned by somebody else
	Frozen *Why          // no admission at all, with the reason: paused policy, closed window, failing health gate
	Until  time.Time     // when Frozen ends by itself; zero when nobody knows
	Soak   time.Duration // a finished node must stay ready this long before it counts
	Spread Spread
	Reset  bool   // Memory begins again when every target is finished, and with something else to roll out
	For    string // tells what is rolled out; empty when nobody says
	Resume string // each new value lets a stopped group go on; empty for none
}

// Spread limits how many nodes of one rack or zone are busy at once.
type Spread struct {
	Key   string // of the label that tells racks or zones apart; for words only
	Limit int    // busy nodes with the same Target.Place; 0 for no limit
}

// Unlimited is the Limit of a group without a budget.
const Unlimited = -1

// Ledger fences the budget of the groups it owns. Before nodes are admitted their names are written here by
// compare-and-swap; they count as seats until the admission is seen on the node, or until SeatTerm has passed.
// Names that were seen stay listed until the next write; they count for nothing.
type Ledger struct {
	Owner     Ref    // the object whose status stores it: a Skyhook, a NodeOp or a DeploymentPolicy
	Epoch     int64  // grows by one with each write
	Admitting []Seat // at most MaxAdmitting
}

// Seat is one admission written to a Ledger.
type Seat struct {
	Rollout Ref
	Node    string
	Group   GroupRef
	Order   int       // the number it gets
	Batch   int64     // Epoch of the write; seen when Target.Batch is not below
	Since   time.Time // Snapshot.Now when it was written
}

// MaxAdmitting bounds the admissions under way in one ledger.
const MaxAdmitting = 200

// SeatTerm is how long a seat counts that is not seen on its node. No operator may still be applying a plan this long
// after it wrote the ledger.
const SeatTerm = time.Minute

// PaceKind says how the next batch follows from the last.
type PaceKind string

// The paces. Window is a sliding window: a seat that gets free is filled at once. The others work in batches: the
// next starts when every outcome of the last is final.
const (
	PaceWindow      PaceKind = "window"
	PaceFixed       PaceKind = "fixed"
	PaceLinear      PaceKind = "linear"
	PaceExponential PaceKind = "exponential"
	PaceWhole       PaceKind = "whole" // batches as large as the limit (a compartment without a strategy)
)

// Pace is a strategy and its thresholds.
type Pace struct {
	Kind        PaceKind
	Initial     int // size of the first batch
	Delta       int // Linear: added after a passed batch, taken away after a failed one
	Factor      int // Exponential: multiplied after a passed batch, divided after a failed one
	PassPercent int // a batch passes when at least this share of it succeeded
	StopAfter   int // failed batches in a row that stop the group, before SafetyLimit; 0 never stops
	SafetyLimit int // percent of the group finished from which failures neither slow nor stop
}

// Memory is what earlier batches taught a group. It is stored as it is in the status of the ledger's object, and
// is the only thing read back from there.
type Memory struct {
	Batch               int   `json:"currentBatch,omitempty"`
	ConsecutiveFailures int   `json:"consecutiveFailures,omitempty"`
	Completed           int   `json:"completedNodes,omitempty"` // checkpoint at the end of the last batch
	Failed              int   `json:"failedNodes,omitempty"`
	LastSize            int   `json:"lastBatchSize,omitempty"`
	LastFailed          bool  `json:"lastBatchFailed,omitempty"`
	Stopped             bool  `json:"shouldStop,omitempty"`
	Open                int   `json:"open,omitempty"` // planned size of the open batch; 0 when none is open
	From                int64 `json:"from,omitempty"` // targets whose Batch is not below this belong to the open batch; 0: Memory was reset

	For     string `json:"rollout,omitempty"` // Group.For that the batches were for
	Resumed string `json:"resumed,omitempty"` // Group.Resume that was obeyed last
}

// Rollout is one object's wish to change nodes.
type Rollout struct {
	Ref       Ref // unique in the snapshot
	UID       string
	Sequence  string    // rollouts of one sequence wait for each other by priority; those of different ones wait only for a free node
	Since     time.Time // when it began to owe something, as far as anybody knows; zero when nobody does
	Priority  int       // lower goes first; equal priorities by Ref
	Barrier   bool      // later rollouts of the kind wait until every target here is finished
	Paused    bool      // admits nothing and starts nothing; what runs ends and is recorded
	Yields    bool      // with Paused: later rollouts do not wait for it (disabled)
	Deleting  bool      // its targets carry the tasks of the way out; finished ones are wiped from the node
	Broken    *Why      // cannot be compiled: behaves as Paused, with this reason, and keeps what it holds
	Serial    bool      // one task at a time on a node
	Required  bool      // runtime required: an unfinished target keeps the taint on its node
	Autotaint bool      // with Required: nodes never seen before get the taint on first sight
	Once      bool      // a target that failed for good is retired with Skip and never tried again
	KeepHeld  bool      // with Once: the node of such a target stays held
	Limit     int       // targets in flight at once, beside what the groups allow; 0 for no such limit
	Drain     Drain
	Numbered  bool // NextOrder is stored: a node is not given back before what is stored is past its number
	NextOrder int  // as stored: order given to the next admission; 0 when a rollout begins, which is when the end of the last one is stored
	// past the orders of the admissions that are on their way to their nodes; 0 when there is none
	OnTheirWay int
	Targets    []Target
	Omitted    []Omitted // targets that a Pruner left out
}

// Omitted counts targets of one group that are left out because nothing can change for them: see Pruner.
type Omitted struct {
	Group    GroupRef
	Finished int
	Waiting  int // for admission, behind others of the rollout and group
	Blocked  int // they have work, and something else than the budget keeps them from being admitted
}

// Drain says how pods in the way are treated when they do not go.
type Drain struct {
	Timeout   time.Duration // 0 waits for ever
	OnTimeout DrainTimeout
}

// DrainTimeout is what happens when a drain takes longer than its Timeout.
type DrainTimeout string

// The choices: go on waiting, give the node back and go on with others, or delete what refuses to leave.
const (
	DrainWait  DrainTimeout = "Wait"
	DrainSkip  DrainTimeout = "Skip"
	DrainForce DrainTimeout = "Force"
)

// Target is one node of one rollout.
type Target struct {
	Node       string
	UID        string   // of the node it was compiled for; a node of the same name with another UID is another node
	Group      GroupRef // Group.Ref
	Class      int      // lower classes are admitted first: the control plane before workers
	Place      string   // its rack or zone: see Spread; empty for none
	Tasks      []Task   // in a stable order; none that is not Done means finished
	Admitted   bool
	Admission  int // its number; grows by one with each admission
	AdmittedAt time.Time
	Order      int       // position in the rollout, given at admission
	Batch      int64     // Action.Batch of its latest admission; kept when it retires
	BatchOf    GroupRef  // Group.Ref at that admission: numbers of different groups say nothing about each other; zero when unknown
	FinishedAt time.Time // when it retired with nothing owed; zero when unknown
	Unproven   *Why      // finished, but a health gate of its group does not pass on its node: it does not count yet
	Blocked    *Why      // cannot be worked on: ignored, taint not tolerated, state unreadable
	Leaving    bool      // no longer selected: the running task ends, holds go, the state stays
	Gone       bool      // the node does not exist (any more)
	Pods       []Pod     // workloads in the way, when PodsSeen
	PodsSeen   bool      // Pods were listed for this snapshot
	HeldAt     time.Time // when this rollout's hold was placed: the drain began; zero without one
	Skipped    bool      // retired with Skip in this admission round: counts as a final failure, not admitted again
	Strays     []string  // objects of ours on the node that belong to no task
	Going      []string  // objects that are being deleted before their work ended well: an interrupt waits until they are gone
}

// Pod is a workload in the way on a node that is to become quiet.
type Pod struct {
	Namespace, Name, UID string
	Wait                 bool      // protected: never touched, waited for
	Leaving              bool      // already being deleted
	Refused              string    // why the last eviction was refused, for example the disruption budget that forbids it
	RetryAt              time.Time // neither evicted nor deleted again before; zero for now
	Keep                 string    // not evictable by the options in force (bare pod without force, …): says why; blocks the node
}

// Need is the quiet a task wants on its node.
type Need int

// The needs, weakest first.
const (
	NeedNothing Need = iota // runs beside workloads
	NeedDrained             // the node is held by this rollout and no pod is in the way
	NeedAlone               // Drained, and no other task of ours runs, and every outcome is recorded: an interrupt
)

// State is how far a task is.
type State string

// The states of a task. Running, Failing and Succeeded come from its object (a pod, a job), or, when that is gone, from
// the record on the node like Done.
const (
	StatePending   State = "pending"   // no object, nothing recorded that counts
	StateRunning   State = "running"   // its object exists and works, or waits to (image pull, …: see Task.Why)
	StateFailing   State = "failing"   // the current attempt failed; it is retried by the kubelet, or by us after Backoff
	StateSucceeded State = "succeeded" // its object ended well; not recorded yet
	StateDone      State = "done"      // recorded
)

// Task is one thing to run on a node.
type Task struct {
	ID        string   // unique in the target, for example "tuning|1.1.0/apply"
	Label     string   // as people read it: "tuning apply"
	After     []string // IDs that must be Done first
	Need      Need
	Strength  int // of an Alone task: when several are ready the highest runs and covers the others
	State     State
	Recorded  State         // what the node's record says; differs from State when something is to be recorded
	Object    string        // name of its object when one exists
	Stale     bool          // the object was made from an older definition and may be replaced at once
	Lost      bool          // recorded as Running or Failing, but its object is gone: run it again
	Dead      bool          // the object never goes on by itself (rejected, evicted, its node shut down): sweep it, then run again
	Leaving   bool          // an object of the task's name is still being deleted: nothing can run under it yet
	Why       *Why          // what the object says: image pull, step failed, …
	Attempts  int           // failed ones in this admission with the definition as it is now, those the object counts itself included
	Noted     int           // failed ones as the record says; 0 when it does not say: then Attempts alone never leads to a Record
	FailedAt  time.Time     // end of the last failed attempt
	Retries   int           // failed attempts after which a failure is final; 0 means the default of three, without an end to retrying
	Bounded   bool          // Retries was set: after it nothing is tried again until the definition changes or a rerun
	Started   time.Time     // of the running attempt
	Limit     time.Duration // how long one attempt may take
	Uninstall bool          // part of the way out: on deletion a final failure here gives the node up
	CoveredBy string        // ID of the task whose run also does this one's work (recorded)
	BootID    string        // of a reboot: the boot it is to end; for the reason of a missed deadline
}

// Verb is what an Action does.
type Verb string

// The verbs, in the order in which they appear in a target's life.
const (
	VerbTaint   Verb = "taint"   // put the runtime-required taint on a node seen for the first time
	VerbAdmit   Verb = "admit"   // take a seat: write the admission to the node's record; failed attempts are counted anew
	VerbHold    Verb = "hold"    // cordon the node in this rollout's name
	VerbEvict   Verb = "evict"   // ask one pod to leave; Action.Force deletes it
	VerbRun     Verb = "run"     // create the task's object
	VerbCover   Verb = "cover"   // record that another task's run does this one's work
	VerbRecord  Verb = "record"  // write a task's state to the node
	VerbSweep   Verb = "sweep"   // delete an object of ours
	VerbRelease Verb = "release" // give up this rollout's hold
	VerbUntaint Verb = "untaint" // take the runtime-required taint away
	VerbRetire  Verb = "retire"  // give the seat back; Action.Wipe also removes what we wrote to the node
)

// Action is one verb on one node, with its reason. Actions of one node are applied in order, nodes in parallel.
type Action struct {
	Verb     Verb
	Rollout  Ref
	Node     string
	Ledger   Ref      // VerbAdmit, VerbHold: the ledger of Plan.Ledgers that must have been written; on conflict neither this nor anything later happens on the node
	Task     string   // Run, Cover, Record, Sweep: Task.ID; empty for a stray
	Covers   []string // Run of an Alone task: the IDs whose work it does as well
	By       string   // Cover: ID of the task that runs
	Object   string   // Sweep: name of the object
	Pod      Pod      // Evict
	Force    bool     // Evict: delete it, its time is over
	State    State    // Record: what to write
	Attempts int      // Record: failed attempts so far
	Order    int      // Admit
	Batch    int64    // Admit: to be kept as Target.Batch
	Group    GroupRef // Admit: to be kept as Target.BatchOf
	Wipe     bool     // Retire: also remove what we wrote to the node
	Skip     bool     // Retire: the node is given back unfinished, see Target.Skipped
	Why      Why      // Record of a failure: to be kept, and given back as Task.Why when there is no object to ask
}

// Phase is where a target stands; front ends map it to the words of their API.
type Phase string

// The phases.
const (
	PhaseFinished Phase = "finished"  // nothing owed
	PhaseWaiting  Phase = "waiting"   // owes work, not admitted
	PhaseInFlight Phase = "in-flight" // admitted
	PhaseFailing  Phase = "failing"   // admitted, and a task failed and will be retried
	PhaseFailed   Phase = "failed"    // admitted, and a task's failure is final
	PhaseBlocked  Phase = "blocked"   // cannot be worked on as it is
	PhasePaused   Phase = "paused"    // its rollout is paused
	PhaseDisabled Phase = "disabled"  // its rollout is disabled
)

// Why is a reason a person can act on: a constant for programs, a sentence for people, and the thing it is about.
type Why struct {
	Reason Reason
	Text   string    // a sentence without a full stop, deterministic and bounded
	About  string    // the object waited for: "Pod ns/name", "Skyhook other", …
	Since  time.Time // since when, of a verdict: since when it waits; zero when unknown
}

// Verdict is the answer for one target.
type Verdict struct {
	Node  string
	Phase Phase
	Why   Why
}

// Report is what one rollout says of itself.
type Report struct {
	Rollout   Ref
	Verdicts  []Verdict // one per target, in the order of the targets
	NextOrder int
}

// GroupReport is what a group learned; Memory differs from the stored one when there is something to write.
type GroupReport struct {
	Group            GroupRef
	Memory           Memory
	Matched          int // targets
	Ceiling          int // seats; Unlimited for none
	Busy             int // seats taken
	Finished, Failed int
	Waiting          int  // targets that stand for admission
	Why              *Why // why it admits nobody now though somebody waits
}

// Plan is the outcome of a decision.
type Plan struct {
	Ledgers []Ledger // to be written, if Epoch is still one less, before the actions that name them
	Actions []Action
	Reports []Report
	Groups  []GroupReport
	Next    time.Time // when to look again though nothing has changed; zero for never
}
