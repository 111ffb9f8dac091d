// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout has what the engine decides about: it makes a Plan from a Snapshot of the cluster, see the package engine.
//
// A Snapshot knows nodes, holds, tasks and budgets. It knows nothing of Kubernetes, Skyhooks or NodeOps: front ends compile those into
// Rollouts, and the back end turns Actions into API calls. Every Action can be repeated, and every Action and Verdict has a Why that a
// person can act on.
//
// The life cycle of a target:
//
//	pending ──admit──► admitted ──hold──► held ──evict…──► drained ──run──► running ──record──► … ──release──► ──retire──► finished
//
// It is in flight from admit to retire, and counts against the limit of its group meanwhile.
package rollout

import (
	"slices"
	"time"
)

// Snapshot is everything that Decide may read. It is plain data that can be saved to a file and replayed.
type Snapshot struct {
	Now      time.Time // by the clock of the operator; no recorded time changes it
	Nodes    []Node
	Groups   []Group
	Ledgers  []Ledger
	Rollouts []Rollout
	Times    Times
}

// Node is a machine of the cluster.
type Node struct {
	Name     string
	UID      string
	Created  time.Time
	Ready    bool
	ReadyAt  time.Time // since when it is ready; zero if unknown
	Cordoned bool      // unschedulable, for whatever reason
	BootID   string    // of the running boot
	Refused  bool      // the API server refused a moment ago to have it changed
	Holds    []Hold    // of all owners
	Tainted  bool      // carries the runtime-required taint
	OwnTaint bool      // a rollout placed that taint: it goes when no rollout requires it
	Kept     bool      // stays cordoned after the last hold until a person makes it schedulable, see Taint.CordonAfter
	Known    bool      // a rollout has recorded something on it; only unknown nodes are tainted as new
	Self     bool      // runs this operator: it is the last of its class
	Sending  bool      // an earlier plan is still being applied to it: this plan has no actions for it
}

// IsCordonedByOthers reports whether another client cordoned the node.
func (n *Node) IsCordonedByOthers() bool {
	isOurs := n.Kept || len(n.Holds) > 0 && !slices.ContainsFunc(n.Holds, func(h Hold) bool { return h.WasCordoned })
	return n.Cordoned && !isOurs
}

// Hold is a cordon with an owner. The node becomes schedulable when its last hold is released, but only if it was
// schedulable before the first one. A hold placed beside others inherits WasCordoned from them. A hold placed on a node
// that is schedulable though held, because a person uncordoned it, clears WasCordoned of all.
type Hold struct {
	Owner       Ref  // Rollout.Ref
	WasCordoned bool // the node was unschedulable before this hold, by another client
	Since       time.Time
	Orphan      bool // the owner is proven to be deleted (twice, with no pod of ours left on the node): release it
}

// Group is a set of targets that share a budget and a pace. Several rollouts may share one group.
type Group struct {
	Ref    GroupRef // unique in the snapshot
	Ledger Ref      // Ledger.Owner: where its admissions and its Memory are stored; zero: no ledger, no batches
	Limit  int      // of targets in flight; Unlimited for none
	Pace   Pace
	Memory Memory    // as stored; targets are admitted from stored memory only
	Taken  []string  // nodes that count against Limit though no rollout made them unavailable: not ready, cordoned by another client, or in the care of others
	Frozen *Why      // nothing is admitted, for this reason: paused policy, closed window, failing health gate
	Until  time.Time // when Frozen ends; zero if unknown
	Failed *Why      // a health gate that stops the group is false now; nil if there is none
	// the window is closed, and admitted targets do not cordon their node before the next one; nil if they do
	Held    *Why
	Closing *Closing  // the window is open, and nothing begins that does not end in it; nil if everything may begin
	Opens   time.Time // the next window, with Held or Closing; zero if unknown
	// nodes that are not ready, or that another client cordoned, belong to Taken: see policy.AddUnavailable
	CountUnavailable bool
	Defaults         Defaults
	Soak             time.Duration // how long a finished node must stay ready before it counts
	Spread           Spread
	Reset            bool     // Memory is reset when every target of all groups with this Ledger is finished, and when For changes
	For              Versions // what is rolled out
	Resume           string   // each new value lets a stopped group continue; empty for none

	After    []GroupRef // groups that must be complete before a target of this one is admitted
	Approval Approval   // of a person, before a target is admitted
}

// Closing is when the present window ends, and how long before nothing is admitted any more.
type Closing struct {
	At     time.Time
	Margin time.Duration
	Text   string // when the window closes, for the reason
	About  string
}

// Spread limits how many nodes of one rack or zone are busy at once, and in how many of them.
type Spread struct {
	Key   string // of the label that has the rack or zone; for messages only
	Limit int    // busy nodes with the same Target.Place; 0 for no limit
	Zones int    // different Target.Place with busy nodes, of which none at all is one; 0 for no limit
}

// Unlimited is the Limit of a group without a budget.
const Unlimited = -1

// Ledger protects the budgets of groups against a second operator. Before nodes are admitted their names are written
// here by compare-and-swap. They count against the budget until the admission is observed on the node, or until
// ReservationTerm has passed. Names that were observed stay listed until the next write and do not count.
type Ledger struct {
	Owner     Ref           // the object whose status stores it: a Skyhook, a NodeOp or a DeploymentPolicy
	Epoch     int64         // increases by one with each write
	Admitting []Reservation // at most MaxAdmitting
}

// Reservation is one admission written to a Ledger.
type Reservation struct {
	Rollout Ref
	Node    string
	Group   GroupRef
	Order   int       // Target.Visit.Order of the admission
	Batch   int64     // Epoch of the write; it is observed when Target.Visit.Batch is not lower
	Since   time.Time // Snapshot.Now when it was written
	// when this process observed it first, see timing.Durations; zero if unknown
	Observed time.Time
	Ended    bool // the target is finished for good, and is listed no longer
}

// CountsFrom returns the time from which its term counts.
func (r Reservation) CountsFrom() time.Time { return timeOr(r.Observed, r.Since) }

// MaxAdmitting limits the admissions in one ledger.
const MaxAdmitting = 200

// ReservationTerm is how long an admission counts that is not observed on its node. No operator may still be applying a plan
// this long after it wrote the ledger.
const ReservationTerm = time.Minute

// PaceKind defines how the next batch follows from the last.
type PaceKind string

// The paces. Window is a sliding window: a free slot is used at once. The others work in batches: the next one starts
// when every outcome of the last is final.
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
	Initial     int  // size of the first batch
	Delta       int  // Linear: added after a passed batch, subtracted after a failed one
	Factor      int  // Exponential: multiplied after a passed batch, divided after a failed one
	PassPercent int  // a batch passes when at least this share of it succeeded
	StopAfter   int  // failed batches in a row that stop the group, up to SafetyLimit; 0 for never
	StopFirst   bool // a first batch that fails stops the group
	SafetyLimit int  // percent of the group from which on failures neither reduce batches nor stop the group
}

// Memory has the results of earlier batches of a group. It is stored unchanged in the status of the ledger's object,
// and nothing else is read back from there.
type Memory struct {
	Batch               int  `json:"currentBatch,omitempty"`
	ConsecutiveFailures int  `json:"consecutiveFailures,omitempty"`
	Completed           int  `json:"completedNodes,omitempty"` // at the end of the last batch
	Failed              int  `json:"failedNodes,omitempty"`
	LastSize            int  `json:"lastBatchSize,omitempty"`
	LastFailed          bool `json:"lastBatchFailed,omitempty"`
	Stopped             bool `json:"shouldStop,omitempty"`
	// the health gate that stopped the group; empty if failures did
	StoppedBy string `json:"stoppedBy,omitempty"`
	Open      int    `json:"open,omitempty"` // planned size of the open batch; 0 if none is open
	From      int64  `json:"from,omitempty"` // targets whose Batch is not lower belong to the open batch; 0: Memory was reset
	Gone      int    `json:"gone,omitempty"` // of the open batch: targets that succeeded and are gone, because their rollout is deleted

	For     Versions `json:"rollout,omitempty"` // Group.For of the batches; of a stopped group, that of the rollouts that failed
	Resumed string   `json:"resumed,omitempty"` // the last Group.Resume that had an effect
}

// Rollout is the work of one object on its nodes.
type Rollout struct {
	Ref       Ref // unique in the snapshot
	UID       string
	Sequence  string    // rollouts of one sequence wait for each other by priority; those of different ones only for a free node
	Since     time.Time // since when it has work; zero if unknown
	Priority  int       // lower priorities come first; equal ones by Ref
	Barrier   bool      // later rollouts of the sequence wait until every target is finished
	Paused    bool      // admits and starts nothing; running tasks end and are recorded
	Yields    bool      // with Paused: later rollouts do not wait for it (it is disabled)
	Deleting  bool      // its targets have uninstall tasks; records of finished targets are removed
	Broken    *Why      // cannot be compiled: it is like Paused, with this reason, and keeps its holds
	Serial    bool      // one task at a time on a node
	Taint     Taint
	Once      bool // a target that failed for good is retired with Skip and not retried
	KeepHeld  bool // with Once: the node of such a target stays held
	Limit     int  // of targets in flight, in addition to the limits of groups; 0 for none
	Drain     Drain
	Announce  bool // Plan.Maintenance has its targets
	Defaults  Defaults
	Numbering Numbering
	Rollback  JointRollback
	// the reboot that a target owes counts for all targets on its node whose rollouts say so
	SharesReboots bool
	CheckLimit    int            // of targets whose node is checked for drift at the same time
	Handover      []HandoverStep // who is asked for a node, one after the other
	Targets       []*Target      // other snapshots may have the same ones, see CopyTarget
	Omitted       []Omitted      // targets that a Pruner left out
}

// Omitted counts targets of one group that are left out because nothing can change for them, see Pruner.
type Omitted struct {
	Group    GroupRef
	Finished int
	Waiting  int // for admission, behind other targets of the rollout and group
	Blocked  int // they have work, and a gate stops them
	Excluded int // they have work, and a label or a taint excludes their node
}

// Total counts all targets that are left out.
func (o *Omitted) Total() int { return o.Finished + o.Waiting + o.Blocked + o.Excluded }

// OmittedWork returns how many targets with work a snapshot leaves out.
func (r *Rollout) OmittedWork() int {
	n := 0
	for _, o := range r.Omitted {
		n += o.Waiting + o.Blocked + o.Excluded
	}
	return n
}

// CopyTarget replaces a target by a copy, which may be changed, and returns it. What the target points to, and the items of its slices,
// belong to both: who changes one of them replaces it by a copy.
func (r *Rollout) CopyTarget(at int) *Target {
	t := *r.Targets[at]
	r.Targets[at] = &t
	return &t
}

// CopyTargets replaces all targets by copies, which may be changed.
func (r *Rollout) CopyTargets() {
	copies, targets := make([]Target, len(r.Targets)), make([]*Target, len(r.Targets))
	for i, t := range r.Targets {
		copies[i], targets[i] = *t, &copies[i]
	}
	r.Targets = targets
}

// Target is one node of one rollout. Its parts stand beside what is decided about them.
type Target struct {
	Node     string
	UID      string   // of the node it was compiled for; the same name with another UID is another node
	Group    GroupRef // Group.Ref
	Class    int      // lower classes are admitted first: the control plane before workers
	Place    string   // its rack or zone, see Spread; empty for none
	Tasks    []Task   // in a stable order; the target is finished when all are Done
	Visit    Visit
	Drain    DrainProgress
	Handover *Handover // nil while nobody was asked since its node is held
	Proof    *Proof    // what must be true of the node before it is given back; nil for nothing
	Rollback Rollback
	Check    *Check // when its node is checked, before its turn or once it is finished; nil for never
	Pull     *Pull  // of the images that it needs, before it is admitted; nil for none
	Objects  Objects
	Reboot   *SharedReboot // that it awaits or awaited in this admission; nil for none

	Blocked       *Why // cannot be worked on: ignored, taint not tolerated, state unreadable
	Avoided       *Why // its node is in the care of somebody else, and nothing begins there
	Rebooted      bool // the node booted for other reasons than an interrupt, so that finished tasks are pending again
	Leaving       bool // no longer selected: the running task ends, holds are released, the state stays
	Gone          bool // the node does not exist
	Wiped         bool // nothing of the rollout is recorded on the node: only objects are left there
	RequestFailed bool // the last request for it failed: whatever is planned for it may not happen soon
}
