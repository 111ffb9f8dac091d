// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// groupReasons has the reasons why candidates of a group wait. Candidates with the same reason share it.
type groupReasons struct{ *groupState }

// cached returns a reason that all candidates with the same key share.
func (g groupReasons) cached(r rollout.Reason, variant string, text func() string) *rollout.Why {
	key := string(r) + variant
	if why := g.waitReasons[key]; why != nil {
		return why
	}
	if g.waitReasons == nil {
		g.waitReasons = map[string]*rollout.Why{}
	}
	why := &rollout.Why{Reason: r, Text: rollout.Shorten(text()), About: g.Ref.String()}
	if r != rollout.ReasonStopped || g.Pace.StopFirst && g.memory.StoppedBy == "" {
		g.Defaults.Explain(why)
	}
	g.waitReasons[key] = why
	return why
}

func (g groupReasons) stopped() *rollout.Why {
	return g.cached(rollout.ReasonStopped, "", func() string {
		if g.memory.StoppedBy != "" {
			return "a health gate stopped the compartment: " + g.memory.StoppedBy
		}
		failures := countNoun(g.memory.ConsecutiveFailures, "failure", "failures")
		if g.usesBatches() {
			failures = countNoun(g.memory.ConsecutiveFailures, "failed batch in a row", "failed batches in a row")
		}
		if g.Failures > 0 {
			failures += "; failed now: " + listNames(g.failedNames, g.Failures)
		}
		return "the compartment stopped after " + failures
	})
}

func (g groupReasons) closing() *rollout.Why {
	c := g.Closing
	why := g.cached(rollout.ReasonWindow, "", func() string {
		return c.Text + "; nothing starts in the " + c.Margin.String() + " before"
	})
	if c.About != "" {
		why.About = c.About
	}
	return why
}

func (g groupReasons) unsaved() *rollout.Why {
	return g.cached(rollout.ReasonLedger, "", func() string {
		return "batch " + strconv.Itoa(g.memory.Batch) + " starts when its size is stored"
	})
}

func (g groupReasons) ledgerFull() *rollout.Why {
	return g.cached(rollout.ReasonLedger, "full", func() string {
		return strconv.Itoa(rollout.MaxAdmitting) + " admissions are not observed on their nodes yet"
	})
}

func (g groupReasons) sending() *rollout.Why {
	return g.cached(rollout.ReasonOccupied, "sending", func() string {
		return "something is being written to the node"
	})
}

func (g groupReasons) topology(t *targetState) *rollout.Why {
	return g.cached(rollout.ReasonTopology, t.target.Place, func() string {
		if busy := g.usage.places[t.target.Place]; busy > 0 {
			return countNoun(busy, "node is", "nodes are") + " busy in " + g.Spread.Key + " " + t.target.Place
		}
		var zones []string
		for zone := range g.usage.places {
			zones = append(zones, cmp.Or(zone, "of nodes without that label"))
		}
		return "nodes are busy in " + g.Spread.Key + " " + listSorted(slices.Values(zones)) + ", and one goes after the other"
	})
}

// full returns why no target is admitted though the group is open: the budget, or the open batch.
func (g groupReasons) full() *rollout.Why {
	switch {
	case g.Limit == 0:
		return g.cached(rollout.ReasonBudget, "", func() string { return "the budget is 0, so no node starts" })
	case g.isFull():
		return g.cached(rollout.ReasonBudget, "", g.describeBusy)
	}
	return g.cached(rollout.ReasonBatch, "", func() string {
		pending := listNames(g.pendingNames, g.Pending)
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
