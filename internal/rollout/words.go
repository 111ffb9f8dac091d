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

// bounded cuts a text that is too long for status and events.
func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := maxText - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// because is a reason given from outside. One that gives none gets this one, so that no verdict is silent.
func because(given *Why, otherwise Reason) Why {
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
	why.Text = bounded(why.Text)
	return why
}

func invalid(text string) *Why {
	return &Why{Reason: ReasonInvalidSpec, Text: bounded(text)}
}

func notReady(n *Node) Why {
	return Why{Reason: ReasonNodeNotReady, Text: "the node is not ready", About: "Node " + n.Name}
}

// says is what others are told about a rollout that makes them wait. Each sentence is made once.
func (q *queue) says(r Reason) Why {
	if why, ok := q.whys[r]; ok {
		return why
	}
	why := Why{Reason: r, About: q.about}
	switch r {
	case ReasonDisabled:
		why.Text = q.about + " is disabled"
	case ReasonPaused:
		why.Text = q.about + " is paused"
	case ReasonBarrier:
		why.Text = q.about + " has to finish on all its nodes first: " + count(q.open, "node is", "nodes are") + " left"
	case ReasonEarlierRollout:
		why.Text = q.about + " has to finish on the node first"
	case ReasonOccupied:
		why.Text = q.about + " is at work on the node"
	case ReasonBudget:
		why.Text = "as many nodes are in flight as " + q.about + " may have at once: " + strconv.Itoa(q.Limit)
	}
	if q.Deleting && (r == ReasonDisabled || r == ReasonPaused) {
		why.Text += ", so its deletion waits"
	}
	why.Text = bounded(why.Text)
	if q.whys == nil {
		q.whys = map[Reason]Why{}
	}
	q.whys[r] = why
	return why
}

// count says how many: "1 node is", "3 nodes are".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// some lists at most three names of a longer list, and how many more there are.
func some(names []string, total int) string {
	shown := names[:min(3, len(names))]
	out := strings.Join(shown, ", ")
	if rest := total - len(shown); rest > 0 {
		out += " and " + strconv.Itoa(rest) + " more"
	}
	return out
}
