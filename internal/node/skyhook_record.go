// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// SkyhookRecord is what a node remembers of a Skyhook beyond its nodeState: the annotation record_<skyhook>. It is written
// together with nodeState, and counts only as far as it agrees with it.
type SkyhookRecord struct {
	Node    string `json:"node"`             // UID: a node of the same name with another UID is another node
	Skyhook string `json:"skyhook"`          // UID: a Skyhook of the same name with another UID is another Skyhook
	Kept    bool   `json:"kept,omitempty"`   // the Skyhook was deleted, and packages stayed
	Owner   string `json:"owner,omitempty"`  // UID in resource ids: of the first Skyhook of this name; empty for Skyhook's
	Offset  int64  `json:"offset,omitempty"` // added to generations in resource ids: those of earlier Skyhooks of this name
	State   string `json:"state"`            // hash of the nodeState it was written with
	Visit
	Has       string                    `json:"has,omitempty"`       // key of the packages that were complete when it last retired with nothing owed
	Complete  map[string]string         `json:"complete,omitempty"`  // before the latest admission, if nodes may roll back: hashes of definitions by package
	First     bool                      `json:"first,omitempty"`     // nothing was there before the latest admission, if nodes may roll back
	Rollback  *Rollback                 `json:"rollback,omitempty"`  // it rolls or rolled back to Complete, or to nothing if First
	Reboot    *rollout.SharedReboot     `json:"reboot,omitempty"`    // that this admission awaits or awaited together with others
	Queues    map[string]Queue          `json:"queues,omitempty"`    // pods of this admission that run several stages, by the task of the first
	Apart     bool                      `json:"apart,omitempty"`     // in this admission each stage has a pod of its own: one for several could not start
	Unmounted string                    `json:"unmounted,omitempty"` // versions of kubelet and runtime that could not mount an image
	Held      *Held                     `json:"held,omitempty"`
	Preflight map[string]Answer         `json:"preflight,omitempty"` // by name|version
	Packages  map[string]*PackageRecord `json:"packages,omitempty"`  // by name|version
}

// Visit is what a node remembers of its latest admission.
type Visit struct {
	Admission  int              `json:"admission,omitempty"`  // number of the latest admission
	Admitted   bool             `json:"admitted,omitempty"`   // and not retired
	At         *time.Time       `json:"at,omitempty"`         // of the latest admission
	Boot       string           `json:"boot,omitempty"`       // boot id at the latest admission
	Order      int              `json:"order,omitempty"`      // place in the rollout
	Batch      int64            `json:"batch,omitempty"`      // the batch it was admitted in
	Group      rollout.GroupRef `json:"group,omitzero"`       // whose batch that was
	FinishedAt *time.Time       `json:"finishedAt,omitempty"` // when it retired with nothing owed
	Generation int64            `json:"generation,omitempty"` // of the Skyhook at the admission
	Skipped    bool             `json:"skipped,omitempty"`    // gave the node back because the drain took too long
	Interrupts int              `json:"interrupts,omitempty"` // done in this admission
	Offered    map[string]int64 `json:"offered,omitempty"`    // resources at the admission that health gates and proofs ask for
	Proving    *time.Time       `json:"proving,omitempty"`    // since when all work is done and the proof is waited for
	Unproven   bool             `json:"unproven,omitempty"`   // it was given back though its proof was late
}

// Queue is how far the stages of a pod that runs several are recorded. The pod has the same id.
type Queue struct {
	ID    string `json:"id"`
	Begun int    `json:"begun"`        // stages
	Of    string `json:"of,omitempty"` // name|version that the last of these is of
}

// SetQueue changes a queue; one that runs a single stage is not remembered.
func (r *SkyhookRecord) SetQueue(first string, q Queue) {
	queues := maps.Clone(r.Queues)
	if q.ID == "" {
		delete(queues, first)
	} else {
		if queues == nil {
			queues = map[string]Queue{}
		}
		queues[first] = q
	}
	if len(queues) == 0 {
		queues = nil
	}
	r.Queues = queues
}

// Rollback is what a node remembers of the packages that failed on it.
type Rollback struct {
	Of   string    `json:"of"` // key of the packages that failed
	At   time.Time `json:"at"`
	Text string    `json:"text"` // how they failed

	Others bool `json:"others,omitempty"` // on another node: this one rolls back with it
}

// Goal is why a package has work on a node.
type Goal string

// The goals. A package without one is finished.
const (
	GoalInstall   Goal = "install"   // it is not there, or its state is unknown
	GoalUpgrade   Goal = "upgrade"   // a lower version is there
	GoalConfig    Goal = "config"    // its configMap changed
	GoalReapply   Goal = "reapply"   // asked for again: by a rerun, or because the node booted
	GoalUninstall Goal = "uninstall" // it goes
)

// PackageRecord is what a node remembers of one package. It goes with the stage and state it was written for.
type PackageRecord struct {
	At         string              `json:"at"`                   // stage/state of the entry it belongs to
	Hash       string              `json:"hash,omitempty"`       // of the definition worked with; installed once there is no goal
	Config     string              `json:"config,omitempty"`     // digest of the configMap the config stage last saw
	Goal       Goal                `json:"goal,omitempty"`       // none when finished
	From       string              `json:"from,omitempty"`       // hash of the definition installed before; GoalConfig only
	Generation int64               `json:"generation,omitempty"` // in the copy directory and ids of this admission
	Run        string              `json:"run,omitempty"`        // SKYHOOK_RUN_ID of this admission
	Effect     *v1alpha1.Interrupt `json:"effect,omitempty"`     // the interrupt in effect for this package
	Interrupt  string              `json:"interrupt,omitempty"`  // SKYHOOK_INTERRUPT_ID, while this package's interrupt runs
	Payload    *v1alpha1.Interrupt `json:"payload,omitempty"`    // what that interrupt does, merged with those it covers
	By         string              `json:"by,omitempty"`         // task whose interrupt covers this package's
	Boot       string              `json:"boot,omitempty"`       // boot in which its last stage succeeded, or before its interrupt; when finished, the one it finished in
	Ended      string              `json:"ended,omitempty"`      // boot in which it finished, as its agent said, if the node did not report that one then
	Since      *time.Time          `json:"since,omitempty"`      // when this stage began, with all its attempts
	Done       []rollout.StageTime `json:"done,omitempty"`       // stages that succeeded since the admission; when finished, those of the last run
	Attempts   int                 `json:"attempts,omitempty"`   // failed ones of this stage
	FailedAt   *time.Time          `json:"failedAt,omitempty"`
	Failure    *Failure            `json:"failure,omitempty"`    // how the last one failed: its pod may be gone
	Again      bool                `json:"again,omitempty"`      // it runs again; until it succeeds its entry stays erroring
	Unbegun    bool                `json:"unbegun,omitempty"`    // no container of it has begun, but for those of a pod that is there
	Privileges pack.Privileges     `json:"privileges,omitempty"` // that its config.json declares, as the node said; none mean everything
	Kept       bool                `json:"kept,omitempty"`       // the Skyhook that installed it was deleted, and its definition with it
	Refuses    bool                `json:"refuses,omitempty"`    // the node does not roll back from this version: config.json says so
	Keys       map[string]string   `json:"keys,omitempty"`       // digests of the configMap's values; for a kept package
}

// IsUnbegun reports whether the record says that no container of the package has begun.
func (p *PackageRecord) IsUnbegun() bool { return p != nil && p.Unbegun }

// IsOf reports whether a finished package finished in a boot.
func (p *PackageRecord) IsOf(boot string) bool {
	return p.Boot == boot || boot != "" && p.Ended == boot
}

// EndStage remembers how long the stage of a package took, and how often it failed before.
func (p *PackageRecord) EndStage(stage v1alpha1.Stage, now time.Time) {
	if p.Since == nil {
		return
	}
	p.Done = append(slices.Clip(p.Done), rollout.StageTime{Stage: string(stage), At: *p.Since, Seconds: max(0, int64(now.Sub(*p.Since).Seconds())), Failed: p.Attempts})
	p.Since = nil
}

// Runs lists the stages that succeeded, by package.
func (r SkyhookRecord) Runs() (out []rollout.Runs) {
	for key, p := range r.Packages {
		if len(p.Done) > 0 {
			out = append(out, rollout.Runs{Package: key, Stages: p.Done})
		}
	}
	slices.SortFunc(out, func(a, b rollout.Runs) int { return cmp.Compare(a.Package, b.Package) })
	return out
}

// Failure is how an attempt failed.
type Failure struct {
	Reason rollout.Reason `json:"reason"`
	Text   string         `json:"text"`
}

// ParseSkyhookRecord is the one reader of the annotation record_<skyhook>.
func ParseSkyhookRecord(raw string) (SkyhookRecord, error) {
	var r SkyhookRecord
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return SkyhookRecord{}, fmt.Errorf("it is not a record: %w", err)
	}
	for key, p := range r.Packages {
		if p == nil {
			delete(r.Packages, key)
		}
	}
	return r, nil
}

// String is the value of the annotation record_<skyhook>; there is no other writer.
func (r SkyhookRecord) String() string { return EncodeJSON(r) }

// Clone is a copy whose packages may be changed.
func (r SkyhookRecord) Clone() SkyhookRecord {
	out := r
	out.Packages = make(map[string]*PackageRecord, len(r.Packages)+1)
	for key, p := range r.Packages {
		c := *p
		out.Packages[key] = &c
	}
	if r.Held != nil {
		h := *r.Held
		out.Held = &h
	}
	out.Preflight = maps.Clone(r.Preflight)
	return out
}

// Effective returns the part of the record that counts on this node, for this Skyhook, beside this nodeState.
//
// The admission counts as long as the nodeState is the one it was written with or has entries: an absent or empty nodeState
// that was not written with the record is a reset. A package's record counts while its entry has the recorded position. The
// owner of the cordon does not depend on the nodeState. Of the record of an earlier Skyhook of the same name only the
// finished packages count, and the cordon. A pod that runs several stages is known until the package is changed that it works for.
func (r SkyhookRecord) Effective(nodeUID, skyhookUID, stateHash string, state v1alpha1.NodeState) SkyhookRecord {
	if r.Node != nodeUID {
		return SkyhookRecord{Visit: Visit{Admission: r.Admission}}
	}
	if r.Skyhook != skyhookUID {
		return r.inherited(stateHash, state)
	}
	if r.State == stateHash {
		return r
	}
	out := r
	out.Reboot = nil
	if len(state) == 0 {
		out.Admitted, out.Skipped, out.First, out.Queues, out.Packages, out.Complete, out.Rollback = false, false, false, nil, nil, nil, nil
		out.Preflight = nil
		return out
	}
	out.Packages, out.Queues = maps.Clone(r.Packages), maps.Clone(r.Queues)
	for key, p := range r.Packages {
		if entry, ok := state[key]; !ok || p.At != Position(entry) {
			delete(out.Packages, key)
		}
	}
	maps.DeleteFunc(out.Queues, func(_ string, q Queue) bool {
		before := r.Packages[q.Of] // none after an uninstall
		isChanged := before != nil && before.Goal != "" && out.Packages[q.Of] == nil
		return q.Of == "" || isChanged
	})
	return out
}

// inherited returns the part of the record of an earlier Skyhook of the same name that counts for the present one.
func (r SkyhookRecord) inherited(stateHash string, state v1alpha1.NodeState) SkyhookRecord {
	out := SkyhookRecord{
		Visit: Visit{Admission: r.Admission}, Held: r.Held, Owner: cmp.Or(r.Owner, r.Skyhook), Offset: r.Offset + r.Generation,
		Packages: map[string]*PackageRecord{},
	}
	for key, p := range r.Packages {
		entry, exists := state[key]
		out.Offset = max(out.Offset, p.Generation)
		if !exists || p.Goal != "" || p.At != Position(entry) {
			continue
		}
		kept := *p
		kept.Kept = true
		out.Packages[key] = &kept
	}
	if r.Kept && len(out.Packages) == len(r.Packages) {
		out.State = stateHash // complete: nodes with equal records have equal tasks
	}
	return out
}

// Position is the place of an entry, as PackageRecord.At has it.
func Position(e v1alpha1.PackageStatus) string { return string(e.Stage) + "/" + string(e.State) }

// awaitsRebootFrom is the boot that a reboot ends which the admission awaits, or which is not recorded yet; empty for none.
func (r SkyhookRecord) awaitsRebootFrom() string {
	if !r.Admitted || r.Reboot == nil || len(r.Reboot.Tasks) == 0 {
		return ""
	}
	return r.Reboot.Boot
}

// rebootsFrom lists the boots that a reboot in progress ends, whichever package asked for it.
func (r SkyhookRecord) rebootsFrom() []string {
	var out []string
	for _, p := range r.Packages {
		if p.Interrupt != "" && p.Payload != nil && p.Payload.Type == v1alpha1.InterruptReboot && p.Boot != "" {
			out = append(out, p.Boot)
		}
	}
	return out
}
