// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"strconv"
)

// groupReasons has the reasons why candidates of a group wait. Candidates with the same reason share it.
type groupReasons struct{ *groupState }

// cached returns a reason that all candidates with the same key share.
func (g groupReasons) cached(r Reason, variant string, text func() string) *Why {
	key := string(r) + variant
	if why := g.waitReasons[key]; why != nil {
		return why
	}
	if g.waitReasons == nil {
		g.waitReasons = map[string]*Why{}
	}
	why := &Why{Reason: r, Text: truncate(text()), About: g.Ref.String()}
	g.waitReasons[key] = why
	return why
}

func (g groupReasons) stopped() *Why {
	return g.cached(ReasonStopped, "", func() string {
		if g.memory.StoppedBy != "" {
			return "a health gate stopped the group: " + g.memory.StoppedBy
		}
		failures := countNoun(g.memory.ConsecutiveFailures, "failure", "failures")
		if g.usesBatches() {
			failures = countNoun(g.memory.ConsecutiveFailures, "failed batch in a row", "failed batches in a row")
		}
		if g.failed > 0 {
			failures += "; failed now: " + listNames(g.failedNames, g.failed)
		}
		return "the group stopped after " + failures
	})
}

func (g groupReasons) closing() *Why {
	c := g.Closing
	why := g.cached(ReasonWindow, "", func() string {
		return c.Text + "; nothing starts in the " + c.Margin.String() + " before"
	})
	if c.About != "" {
		why.About = c.About
	}
	return why
}

func (g groupReasons) unsaved() *Why {
	return g.cached(ReasonLedger, "", func() string {
		return "batch " + strconv.Itoa(g.memory.Batch) + " starts when its size is stored"
	})
}

func (g groupReasons) ledgerFull() *Why {
	return g.cached(ReasonLedger, "full", func() string {
		return strconv.Itoa(MaxAdmitting) + " admissions are not observed on their nodes yet"
	})
}

func (g groupReasons) sending() *Why {
	return g.cached(ReasonOccupied, "sending", func() string {
		return "something is being written to the node"
	})
}

func (g groupReasons) topology(t *targetState) *Why {
	return g.cached(ReasonTopology, t.target.Place, func() string {
		nodes := countNoun(g.usage.places[t.target.Place], "node is", "nodes are")
		return nodes + " busy in " + g.Spread.Key + " " + t.target.Place
	})
}

// full returns why no target is admitted though the group is open: the budget, or the open batch.
func (g groupReasons) full() *Why {
	switch {
	case g.Limit == 0:
		return g.cached(ReasonBudget, "", func() string { return "the budget is 0, so no node starts" })
	case g.isFull():
		return g.cached(ReasonBudget, "", g.describeBusy)
	}
	return g.cached(ReasonBatch, "", func() string {
		pending := listNames(g.pendingNames, g.pending)
		return "batch " + strconv.Itoa(g.memory.Batch) + " has not ended: " + pending + g.describeProving()
	})
}

// describeBusy lists the nodes that use the budget.
func (g groupReasons) describeBusy() string {
	text := "the budget of " + countNoun(g.Limit, "node", "nodes") + " is used: " + listSorted(slices.Values(g.usage.busy))
	if len(g.usage.unavailable) > 0 {
		text += "; not ready, or cordoned by somebody else: " + listSorted(maps.Keys(g.usage.unavailable))
	}
	if len(g.usage.failedBusy) > 0 {
		text += "; failed for good: " + listNames(g.usage.failedBusy, len(g.usage.failedBusy))
	}
	return text + g.describeProving()
}

// describeProving returns what the first finished target is waiting for before it counts, if there is one.
func (g groupReasons) describeProving() string {
	if g.proving == nil {
		return ""
	}
	return "; " + g.proving.target.Node + ": " + g.proving.finishedReason().Text
}
