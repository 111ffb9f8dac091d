// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
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

// reasonToWait returns why other targets wait for this rollout. Each reason is made once.
func (r *rolloutState) reasonToWait(reason rollout.Reason) rollout.Why {
	if why, ok := r.waitReasons[reason]; ok {
		return why
	}
	if r.waitReasons == nil {
		r.waitReasons = map[rollout.Reason]rollout.Why{}
	}
	why := rollout.Why{Reason: reason, About: r.title, Text: rollout.Shorten(r.describeWait(reason))}
	r.waitReasons[reason] = why
	return why
}

func (r *rolloutState) describeWait(reason rollout.Reason) string {
	delay := ""
	if r.Deleting {
		delay = ", so its deletion waits"
	}
	switch reason {
	case rollout.ReasonDisabled:
		return r.title + " is disabled" + delay
	case rollout.ReasonPaused:
		return r.title + " is paused" + delay
	case rollout.ReasonBarrier:
		left := countNoun(r.unfinished, "node is", "nodes are") + " left"
		return r.title + " must finish on all its nodes first: " + left
	case rollout.ReasonEarlierRollout:
		return r.title + " must finish on the node first"
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
