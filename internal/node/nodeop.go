// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// OpRecord is what a node remembers of a NodeOp, in the annotation of recordKey.
type OpRecord struct {
	Node      string                `json:"node"`   // UID: a node of the same name with another UID is another node
	NodeOp    string                `json:"nodeOp"` // nodeopv1.CordonedBy of the NodeOp
	Admitted  bool                  `json:"admitted,omitempty"`
	Admission int                   `json:"admission,omitempty"`
	At        *time.Time            `json:"at,omitempty"` // of the latest admission
	Order     int                   `json:"order,omitempty"`
	Batch     int64                 `json:"batch,omitempty"`
	Group     rollout.GroupRef      `json:"group,omitzero"`
	Held      *Held                 `json:"held,omitempty"`
	Preflight *Step                 `json:"preflight,omitempty"`
	Command   *Step                 `json:"command,omitempty"`
	Reboot    *Step                 `json:"reboot,omitempty"`
	Job       string                `json:"job,omitempty"`
	Boot      string                `json:"boot,omitempty"`    // boot id when the command began, or in which it ran if its pod says so, or when its reboot began that others may share
	Shared    *rollout.SharedReboot `json:"shared,omitempty"`  // the reboot that this admission awaits or awaited together with others
	Offered   map[string]int64      `json:"offered,omitempty"` // resources at the admission that proofs ask for
	Proving   *time.Time            `json:"proving,omitempty"` // since when all work is done and the proof is waited for
	Result    *Result               `json:"result,omitempty"`
}

// Held is a hold as its owner records it.
type Held struct {
	At          time.Time `json:"at"`
	WasCordoned bool      `json:"wasCordoned,omitempty"` // by an administrator, before any hold of ours or after the node was uncordoned
	Pods        int       `json:"pods,omitempty"`        // that had to leave when the present drain began, if it takes long
}

// maxPods limits what a record says about pods. Annotations are written by people, too.
const maxPods = 10000

// CountedPods returns how many pods had to leave when the present drain began; 0 if that is not recorded.
func (h *Held) CountedPods() int { return min(max(0, h.Pods), maxPods) }

// Step is how far one task is.
type Step struct {
	State string    `json:"state"` // running, failing or done
	At    time.Time `json:"at"`    // since when
	Seen  bool      `json:"seen,omitempty"`
	Took  int64     `json:"took,omitempty"` // seconds, once it is done; 0 if unknown
}

// Result is how it ended on the node.
type Result struct {
	Phase    nodeopv1.Phase `json:"phase"`
	Skipped  bool           `json:"skipped,omitempty"`
	Message  string         `json:"message,omitempty"`
	Reason   string         `json:"reason,omitempty"` // of a failure
	At       time.Time      `json:"at"`
	Exit     *int32         `json:"exit,omitempty"`
	Attempts int32          `json:"attempts,omitempty"`
	Output   string         `json:"output,omitempty"`
	Target   string         `json:"target,omitempty"` // version of the image, for an upgrade
	Booted   string         `json:"booted,omitempty"` // version that came up after it
}

// The states of a Step.
const (
	StepRunning = "running"
	StepFailing = "failing"
	StepDone    = "done"
)

// Runs lists the steps that were done.
func (r *OpRecord) Runs() []rollout.Runs {
	var stages []rollout.StageTime
	add := func(task string, s *Step) {
		if s.Is(StepDone) && s.Took > 0 {
			run := rollout.StageTime{Stage: task, Seconds: s.Took}
			run.At = s.At.Add(-run.Took())
			stages = append(stages, run)
		}
	}
	add("preflight", r.Preflight)
	add("command", r.Command)
	add("reboot", r.Reboot)
	if len(stages) == 0 {
		return nil
	}
	return []rollout.Runs{{Stages: stages}}
}

// Is reports whether the step is in a state.
func (s *Step) Is(state string) bool { return s != nil && s.State == state }

// OpRecordKey is the annotation of a NodeOp's record.
func OpRecordKey(uid string) string {
	hex := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'f' {
			return r
		}
		return -1
	}, strings.ToLower(uid))
	return nodeopv1.PrefixRecord + hex[:min(12, len(hex))]
}

// ParseNodeOpRecord is the one reader of the annotation.
func ParseNodeOpRecord(raw string) (OpRecord, error) {
	var r OpRecord
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return OpRecord{}, fmt.Errorf("it is not a record: %w", err)
	}
	if err := r.bound(); err != nil {
		return OpRecord{}, err
	}
	return r, nil
}

// bound shortens texts to what the status of a NodeOp allows: one value that its schema refuses would refuse the whole status.
func (r *OpRecord) bound() error {
	if len(r.Job) > 253 {
		return fmt.Errorf("the name of its Job has %d characters", len(r.Job))
	}
	if r.Result == nil {
		return nil
	}
	switch r.Result.Phase {
	case "", nodeopv1.PhaseCompleted, nodeopv1.PhaseFailed:
	default:
		return fmt.Errorf("its result has the phase %q, which does not exist", Truncate(string(r.Result.Phase), 40))
	}
	r.Result.Message, r.Result.Output = Truncate(r.Result.Message, 32768), Truncate(r.Result.Output, 4096)
	r.Result.Target, r.Result.Booted = Truncate(r.Result.Target, 253), Truncate(r.Result.Booted, 253)
	return nil
}

// String is the value of the annotation; there is no other writer.
func (r OpRecord) String() string { return EncodeJSON(r) }

// Clone is a copy that may be changed.
func (r OpRecord) Clone() OpRecord {
	out := r
	out.Preflight, out.Command, out.Reboot = copied(r.Preflight), copied(r.Command), copied(r.Reboot)
	out.Held, out.Result, out.At, out.Proving = copied(r.Held), copied(r.Result), copied(r.At), copied(r.Proving)
	return out
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// OpState is what one node records of one NodeOp.
type OpState struct {
	Record  OpRecord
	Problem string // the annotation cannot be read: says why
	Exists  bool   // there is a record, readable or not

	text string
}

// NodeOp is what the node records of the NodeOp with this UID.
func (n *Node) NodeOp(uid string) OpState { return n.NodeOpState(OpRecordKey(uid)) }

// NodeOpState is what the node records of a NodeOp in this annotation, see OpRecordKey.
func (n *Node) NodeOpState(key string) OpState { return n.nodeOps[key] }

// parseNodeOp reads a record; prev is the one on an earlier version of the node.
func parseNodeOp(key, text string, prev OpState) OpState {
	if prev.Exists && prev.text == text {
		return prev
	}
	out := OpState{Exists: true, text: text}
	var err error
	if out.Record, err = ParseNodeOpRecord(text); err != nil {
		out.Problem = unreadable(key, err, "delete it")
	}
	return out
}

// nodeOpHolds lists the holds of NodeOps. A predecessor recorded only the name of the owner of the cordon.
func (n *Node) nodeOpHolds() []ownedHold {
	var out []ownedHold
	cordonedBy := n.Annotations[nodeopv1.AnnotationCordonedBy]
	recorded := false
	for _, o := range n.nodeOps {
		owner, uid, ok := cutOwner(o.Record.NodeOp)
		if o.Record.Held == nil || o.Record.Node != n.UID || !ok {
			continue
		}
		recorded = recorded || o.Record.NodeOp == cordonedBy
		h := rollout.Hold{Owner: owner, Since: o.Record.Held.At, WasCordoned: o.Record.Held.WasCordoned}
		out = append(out, ownedHold{uid: uid, Hold: h, works: o.Record.Proving == nil})
	}
	if owner, uid, ok := cutOwner(cordonedBy); ok && !recorded {
		out = append(out, ownedHold{uid: uid, Hold: rollout.Hold{Owner: owner}})
	}
	return out
}

// cutOwner reads what nodeopv1.CordonedBy writes.
func cutOwner(value string) (owner rollout.Ref, uid string, ok bool) {
	path, uid, ok := strings.Cut(value, "@")
	namespace, name, isNamespaced := strings.Cut(path, "/")
	if !ok || uid == "" || !isNamespaced || strings.Contains(name, "/") {
		return rollout.Ref{}, "", false
	}
	return rollout.Ref{Kind: KindNodeOp, Namespace: namespace, Name: name}, uid, true
}

// IsFailed reports whether the NodeOp failed on the node.
func (r *Result) IsFailed() bool { return r != nil && r.Phase == nodeopv1.PhaseFailed }
