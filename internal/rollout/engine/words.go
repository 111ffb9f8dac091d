// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

func invalidReason(text string) *rollout.Why {
	return &rollout.Why{Reason: rollout.ReasonInvalidSpec, Text: rollout.Shorten(text)}
}

func notReadyReason(n *rollout.Node) rollout.Why {
	return rollout.Why{Reason: rollout.ReasonNodeNotReady, Text: "the node is not ready", About: "Node " + n.Name}
}

func unavailableVerdict(t *targetState) rollout.Verdict {
	return rollout.Verdict{Phase: rollout.PhaseWaiting, Why: *cmp.Or(t.target.Avoided, new(notReadyReason(t.node.Node)))}
}

// waitKey names a reason to wait for a rollout.
type waitKey struct {
	reason rollout.Reason
	byName bool // the one that waits has the same priority
}

// reasonToWait returns why other targets wait for this rollout.
func (r *rolloutState) reasonToWait(reason rollout.Reason) rollout.Why {
	return r.findReason(waitKey{reason: reason})
}

// reasonOfTurn returns why targets of a later rollout wait for this one on their node, and what orders the two.
func (r *rolloutState) reasonOfTurn(later *rolloutState) rollout.Why {
	return r.findReason(waitKey{rollout.ReasonEarlierRollout, later.Priority == r.Priority})
}

// findReason returns a reason, which is made once.
func (r *rolloutState) findReason(key waitKey) rollout.Why {
	if why, ok := r.waitReasons[key]; ok {
		return why
	}
	if r.waitReasons == nil {
		r.waitReasons = map[waitKey]rollout.Why{}
	}
	why := rollout.Why{Reason: key.reason, About: r.title, Text: rollout.Shorten(r.describeWait(key))}
	r.waitReasons[key] = why
	return why
}

func (r *rolloutState) describeWait(key waitKey) string {
	delay := ""
	if r.Deleting {
		delay = ", so its deletion waits"
	}
	switch key.reason {
	case rollout.ReasonDisabled:
		return r.title + " is disabled" + delay
	case rollout.ReasonPaused:
		return r.title + " is paused" + delay
	case rollout.ReasonBarrier:
		left := countNoun(r.unfinished, "node is", "nodes are") + " left"
		return r.title + " must finish on all its nodes first: " + left
	case rollout.ReasonEarlierRollout:
		order := "priority " + strconv.Itoa(r.Priority)
		if key.byName {
			order = "same priority, earlier name"
		}
		return r.title + " must finish on the node first: " + order
	case rollout.ReasonOccupied:
		return r.title + " is in progress on the node"
	}
	return r.title + " may have at most " + countNoun(r.Limit, "node", "nodes") + " in flight"
}

// countNoun returns a number with its noun: "1 node is", "3 nodes are".
func countNoun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// listSorted lists at most three names in order, and how many more there are.
func listSorted(names iter.Seq[string]) string {
	sorted := slices.Sorted(names)
	return listNames(sorted, len(sorted))
}

// listNames lists at most three names of a longer list, and how many more there are.
func listNames(names []string, total int) string {
	shown := names[:min(maxListed, len(names))]
	out := strings.Join(shown, ", ")
	if rest := total - len(shown); rest > 0 {
		out += " and " + strconv.Itoa(rest) + " more"
	}
	return out
}
