// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// defaultProofTimeout is how long a proof without a timeout is waited for.
const defaultProofTimeout = 30 * time.Minute

// Proofs are the proofs that an object and its policy ask for; all must be complete.
type Proofs []*v1alpha1.Proof

// NewProofs returns those proofs that there are.
func NewProofs(proofs ...*v1alpha1.Proof) (out Proofs) {
	for _, p := range proofs {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// NeedsPods reports whether the pods on a node are asked about.
func (ps Proofs) NeedsPods() bool {
	return slices.ContainsFunc(ps, func(p *v1alpha1.Proof) bool { return p.AsBefore || len(p.DaemonSets) > 0 })
}

// NeedsFindings reports whether anything is asked about that the Node object does not show.
func (ps Proofs) NeedsFindings() bool {
	return ps.NeedsPods() || slices.ContainsFunc(ps, func(p *v1alpha1.Proof) bool { return len(p.Objects) > 0 })
}

// Offered returns how much a node offers of the resources that are asked for; nil if it offers none of them.
func (ps Proofs) Offered(n *Node) (out map[string]int64) {
	var names []string
	for _, p := range ps {
		for _, r := range p.Resources {
			names = append(names, r.Name)
		}
		if p.AsBefore {
			names = append(names, n.devices()...)
		}
	}
	for _, name := range names {
		if amount := n.Allocatable(name); amount > 0 {
			if out == nil {
				out = map[string]int64{}
			}
			out[name] = amount
		}
	}
	return out
}

// ProofState is what is known of a node while its proof is waited for.
type ProofState struct {
	Since   *time.Time       // since when it is waited for, as recorded
	Boot    string           // boot id before the work; empty if unknown
	Offered map[string]int64 // resources at the admission
	Missing Findings
}

// Findings are what the pods and objects around nodes miss: for each proof, in the order of Proofs, by node. Empty means nothing, and
// absent that the node was not looked at.
type Findings []map[string]string

func (f Findings) of(proof int, node string) (text string, isChecked bool) {
	if proof >= len(f) {
		return "", false
	}
	text, isChecked = f[proof][node]
	return text, isChecked
}

// Compile returns what must be true of a node before it is given back; nil if nothing must be. Of several proofs that are not
// complete, one that holds the node comes first, then the one with the shorter timeout.
func (ps Proofs) Compile(n *Node, state ProofState) *rollout.Proof {
	var out *rollout.Proof
	for i, p := range ps {
		one := &rollout.Proof{Timeout: defaultProofTimeout, Release: p.OnTimeout == v1alpha1.ProofRelease}
		if p.Timeout != nil {
			one.Timeout = p.Timeout.Duration
		}
		if state.Since != nil {
			one.Since = *state.Since
			if isRebooted := state.Boot != "" && state.Boot != n.BootID; isRebooted {
				one.Settles = one.Since.Add(rollout.ReportTime)
			}
		}
		one.Missing = state.findMissing(i, p, n)
		if out == nil || isProofStricter(one, out) {
			out = one
		}
	}
	return out
}

func isProofStricter(a, b *rollout.Proof) bool {
	switch {
	case (a.Missing == nil) != (b.Missing == nil):
		return b.Missing == nil
	case a.Release != b.Release:
		return b.Release
	}
	return a.Timeout > 0 && (b.Timeout <= 0 || a.Timeout < b.Timeout)
}

// findMissing says what of a proof is not true of a node; nil if everything is.
func (s ProofState) findMissing(i int, p *v1alpha1.Proof, n *Node) *rollout.Why {
	missing := func(format string, args ...any) *rollout.Why {
		return &rollout.Why{Reason: rollout.ReasonProof, About: "Node " + n.Name, Text: fmt.Sprintf(format, args...)}
	}
	if !n.Ready {
		return missing("the node is not ready")
	}
	for _, c := range p.NodeConditions {
		kind, want, _ := strings.Cut(c, "=")
		if is := n.Condition(kind); is != cmp.Or(want, "True") {
			return missing("condition %s of the node is %s, and must be %s", kind, cmp.Or(is, "absent"), cmp.Or(want, "True"))
		}
	}
	for _, r := range p.Resources {
		is, want, before := n.Allocatable(r.Name), s.Offered[r.Name], " as when it was admitted"
		if r.AtLeast != nil {
			want, before = *r.AtLeast, ""
		}
		if is < want {
			return missing("the node offers %d of %s, and must offer %d%s", is, r.Name, want, before)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Offered)) {
		if is := n.Allocatable(name); p.AsBefore && is < s.Offered[name] {
			return missing("the node offers %d of %s, and must offer %d as when it was admitted", is, name, s.Offered[name])
		}
	}
	if !(Proofs{p}).NeedsFindings() {
		return nil
	}
	text, isChecked := s.Missing.of(i, n.Name)
	switch {
	case !isChecked:
		return missing("the DaemonSets and objects of the proof are looked at next")
	case text != "":
		return missing("%s", text)
	}
	return nil
}
