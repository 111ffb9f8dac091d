// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText is the most bytes of a sentence.
const maxText = 400

// truncate shortens a text that is too long for status and events.
func truncate(s string) string { return Truncate(s, maxText) }

// Truncate shortens a text to a number of bytes.
func Truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// withDefaultReason completes a reason from the snapshot, so that every verdict has a reason and a text.
func withDefaultReason(given *Why, otherwise Reason) Why {
	why := Why{Reason: otherwise}
	if given != nil {
		why = *given
	}
	if why.Reason == "" {
		why.Reason = otherwise
	}
	if why.Text == "" {
		why.Text = "the reason is " + string(why.Reason) + "; no details are known"
	}
	why.Text = truncate(why.Text)
	return why
}

func invalidReason(text string) *Why {
	return &Why{Reason: ReasonInvalidSpec, Text: truncate(text)}
}

func notReadyReason(n *Node) Why {
	return Why{Reason: ReasonNodeNotReady, Text: "the node is not ready", About: "Node " + n.Name}
}

// reasonToWait returns why other targets wait for this rollout. Each reason is made once.
func (r *rolloutState) reasonToWait(reason Reason) Why {
	if why, ok := r.waitReasons[reason]; ok {
		return why
	}
	if r.waitReasons == nil {
		r.waitReasons = map[Reason]Why{}
	}
	why := Why{Reason: reason, About: r.title, Text: truncate(r.describeWait(reason))}
	r.waitReasons[reason] = why
	return why
}

func (r *rolloutState) describeWait(reason Reason) string {
	delay := ""
	if r.Deleting {
		delay = ", so its deletion waits"
	}
	switch reason {
	case ReasonDisabled:
		return r.title + " is disabled" + delay
	case ReasonPaused:
		return r.title + " is paused" + delay
	case ReasonBarrier:
		left := countNoun(r.unfinished, "node is", "nodes are") + " left"
		return r.title + " must finish on all its nodes first: " + left
	case ReasonEarlierRollout:
		return r.title + " must finish on the node first"
	case ReasonOccupied:
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
