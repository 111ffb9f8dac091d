// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// MergeGroups is one group for two rollouts that share it. A percentage is taken of the larger part only, which never allows
// more than of both together.
func MergeGroups(a, b rollout.Group) rollout.Group {
	if b.Limit == rollout.Unlimited || a.Limit != rollout.Unlimited && b.Limit > a.Limit {
		a.Limit = b.Limit
	}
	if a.For != b.For {
		sum := sha256.Sum256([]byte(a.For + "+" + b.For))
		a.For = hex.EncodeToString(sum[:8])
	}
	a.Reset = a.Reset && b.Reset
	a.Taken = append(slices.Clip(a.Taken), b.Taken...)
	return a
}

// AddUnavailable counts, in each group that belongs to a policy, the nodes that are away though no rollout of the group made them
// so: not ready, or cordoned by somebody else. They take seats like the nodes that are worked on.
func AddUnavailable(s *rollout.Snapshot) {
	shared := map[rollout.GroupRef]*rollout.Group{}
	for i := range s.Groups {
		if s.Groups[i].Ref.Owner.Kind == Kind {
			shared[s.Groups[i].Ref] = &s.Groups[i]
		}
	}
	if len(shared) == 0 {
		return
	}
	type membership struct {
		group rollout.GroupRef
		by    rollout.Ref
	}
	groups, members := map[string][]*rollout.Group{}, map[membership]bool{} // by node; by group and rollout
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for j := range r.Targets {
			t := &r.Targets[j]
			g := shared[t.Group]
			if g == nil {
				continue
			}
			members[membership{g.Ref, r.Ref}] = true
			if !t.Leaving && !slices.Contains(groups[t.Node], g) {
				groups[t.Node] = append(groups[t.Node], g)
			}
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for _, g := range groups[n.Name] {
			ours := slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return members[membership{g.Ref, h.Owner}] })
			found := slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return h.WasCordoned })
			if !n.Ready && !ours || n.Cordoned && (!ours || found) {
				g.Taken = append(g.Taken, n.Name)
			}
		}
	}
}
