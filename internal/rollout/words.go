// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxText bounds a sentence.
const maxText = 400

// truncate cuts a text that is too long for status and events.
func truncate(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := maxText - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// withDefaultReason is a reason given from outside. One that gives none gets this one, so that no verdict is silent.
func withDefaultReason(given *Why, otherwise Reason) Why {
	why := Why{Reason: otherwise}
	if given != nil {
		why = *given
	}
	if why.Reason == "" {
		why.Reason = otherwise
	}
	if why.Text == "" {
		why.Text = "no more is known than " + string(why.Reason)
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

// reasonToWait is what others are told about a rollout that makes them wait. Each sentence is made once.
func (q *rolloutState) reasonToWait(r Reason) Why {
	if why, ok := q.waitReasons[r]; ok {
		return why
	}
	why := Why{Reason: r, About: q.title}
	switch r {
	case ReasonDisabled:
		why.Text = q.title + " is disabled"
	case ReasonPaused:
		why.Text = q.title + " is paused"
	case ReasonBarrier:
		why.Text = q.title + " has to finish on all its nodes first: " + countNoun(q.unfinished, "node is", "nodes are") + " left"
	case ReasonEarlierRollout:
		why.Text = q.title + " has to finish on the node first"
	case ReasonOccupied:
		why.Text = q.title + " is at work on the node"
	case ReasonBudget:
		why.Text = "as many nodes are in flight as " + q.title + " may have at once: " + strconv.Itoa(q.Limit)
	}
	if q.Deleting && (r == ReasonDisabled || r == ReasonPaused) {
		why.Text += ", so its deletion waits"
	}
	why.Text = truncate(why.Text)
	if q.waitReasons == nil {
		q.waitReasons = map[Reason]Why{}
	}
	q.waitReasons[r] = why
	return why
}

// countNoun says how many: "1 node is", "3 nodes are".
func countNoun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// listNames lists at most three names of a longer list, and how many more there are.
func listNames(names []string, total int) string {
	shown := names[:min(3, len(names))]
	out := strings.Join(shown, ", ")
	if rest := total - len(shown); rest > 0 {
		out += " and " + strconv.Itoa(rest) + " more"
	}
	return out
}
