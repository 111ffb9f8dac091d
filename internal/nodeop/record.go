// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Record is what a node remembers of a NodeOp, in the annotation of recordKey.
type Record struct {
	Node      string           `json:"node"`   // UID: a node of the same name with another UID is another node
	NodeOp    string           `json:"nodeOp"` // v1alpha1.CordonedBy of the NodeOp
	Admitted  bool             `json:"admitted,omitempty"`
	Admission int              `json:"admission,omitempty"`
	At        *time.Time       `json:"at,omitempty"` // of the latest admission
	Order     int              `json:"order,omitempty"`
	Batch     int64            `json:"batch,omitempty"`
	Group     rollout.GroupRef `json:"group,omitzero"`
	Held      *Held            `json:"held,omitempty"`
	Preflight *Step            `json:"preflight,omitempty"`
	Command   *Step            `json:"command,omitempty"`
	Reboot    *Step            `json:"reboot,omitempty"`
	Job       string           `json:"job,omitempty"`
	Boot      string           `json:"boot,omitempty"` // boot id when the command began
	Result    *Result          `json:"result,omitempty"`
}

// Held is this NodeOp's hold on the node.
type Held struct {
	At          time.Time `json:"at"`
	WasCordoned bool      `json:"wasCordoned,omitempty"` // by somebody else, before any hold of ours
}

// Step is how far one task is.
type Step struct {
	State string    `json:"state"` // running, failing or done
	At    time.Time `json:"at"`    // since when
	Seen  bool      `json:"seen,omitempty"`
}

// Result is how it ended on the node.
type Result struct {
	Phase    v1alpha1.Phase `json:"phase"`
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
	stepRunning = "running"
	stepFailing = "failing"
	stepDone    = "done"
)

func (r *Result) isFailed() bool { return r != nil && r.Phase == v1alpha1.PhaseFailed }

func (s *Step) is(state string) bool { return s != nil && s.State == state }

// recordKey is the annotation of a NodeOp's record.
func recordKey(uid string) string {
	hex := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'f' {
			return r
		}
		return -1
	}, strings.ToLower(uid))
	return v1alpha1.PrefixRecord + hex[:min(12, len(hex))]
}

// readRecord is the one reader of the annotation.
func readRecord(raw string) (Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return Record{}, fmt.Errorf("it is not a record: %w", err)
	}
	return r, nil
}

// writeRecord is the one writer of the annotation.
func writeRecord(r Record) string {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err) // plain data
	}
	return string(raw)
}

// clone is a copy that may be changed.
func (r Record) clone() Record {
	out := r
	out.Preflight, out.Command, out.Reboot = copied(r.Preflight), copied(r.Command), copied(r.Reboot)
	out.Held, out.Result, out.At = copied(r.Held), copied(r.Result), copied(r.At)
	return out
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// wholeSeconds drops fractions of a second, because people read records.
func wholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
