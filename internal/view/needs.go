// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/report"
)

// NodeNeed is what nodes need, as their packages say: the most that one of them says.
type NodeNeed struct {
	Answer string   `json:"answer"` // such as reboot, or "service a,b"; all if that is not known
	Nodes  []string `json:"nodes"`
	Reason string   `json:"reason"` // on the first of them
}

// Names are the nodes, for people.
func (n NodeNeed) Names() string { return output.List(n.Nodes, 6) }

// listNeeds returns what the nodes of a rollout need, the least first. Nodes of which no package has said anything are left out.
func (v *Cluster) listNeeds(r *rollout.Rollout) (out []NodeNeed) {
	hook := v.SkyhookOf(r)
	if hook == nil {
		return nil
	}
	current := v.Compiled.Skyhook(hook)
	byName := slices.SortedFunc(slices.Values(r.Targets), func(a, b *rollout.Target) int { return strings.Compare(a.Node, b.Node) })
	for _, t := range byName {
		n := v.Objects.Node(t.Node)
		if n == nil {
			continue
		}
		need, isKnown := mostNeeded(current.AnswersOf(n))
		if !isKnown {
			continue
		}
		at := slices.IndexFunc(out, func(o NodeNeed) bool { return o.Answer == need.Answer })
		if at < 0 {
			out, at = append(out, need), len(out)
		}
		out[at].Nodes = append(out[at].Nodes, n.Name)
	}
	slices.SortStableFunc(out, func(a, b NodeNeed) int {
		return cmp.Or(rankNeed(a).Compare(rankNeed(b)), strings.Compare(a.Answer, b.Answer))
	})
	return out
}

// needAll stands for a node whose packages do all of their work, because what it needs is not known.
const needAll = "all"

func rankNeed(n NodeNeed) pack.Answer {
	word, _, _ := strings.Cut(n.Answer, " ")
	if word == needAll {
		return pack.AnswerReboot
	}
	return pack.Answer(word)
}

// mostNeeded returns the most that a package says.
func mostNeeded(answers map[string]node.Answer) (most NodeNeed, isKnown bool) {
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		a := answers[key]
		if a.Absent {
			continue
		}
		need := NodeNeed{Answer: strings.TrimSpace(string(a.Answer) + " " + strings.Join(a.Services, ",")), Reason: report.DescribeAnswer(key, a)}
		if a.Wrong || a.Answer == "" {
			need.Answer = needAll
		}
		if !isKnown || rankNeed(need).Compare(rankNeed(most)) > 0 {
			most, isKnown = need, true
		}
	}
	return most, isKnown
}
