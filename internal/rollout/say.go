// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"strconv"
)

// buildReport is what the group says of itself.
func (g *groupState) buildReport() GroupReport {
	r := GroupReport{
		Group: g.Ref, Memory: g.memory, Matched: g.total, Ceiling: g.Limit, Busy: len(g.busy),
		Finished: g.finished, Failed: g.failed, Waiting: g.candidates,
	}
	for _, reason := range []Reason{ReasonStopped, ReasonLedger, ReasonBudget, ReasonBatch} {
		if why := g.waitReasons[string(reason)]; why != nil {
			r.Why = why
			break
		}
	}
	if g.Frozen != nil && g.candidates > 0 {
		r.Why = g.Frozen
	}
	return r
}

// cachedReason makes a sentence for all candidates that wait for the same thing.
func (g *groupState) cachedReason(r Reason, place string, text func() string) *Why {
	key := string(r) + place
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

func (g *groupState) stoppedReason() *Why {
	return g.cachedReason(ReasonStopped, "", func() string {
		what := countNoun(g.memory.ConsecutiveFailures, "failed batch in a row", "failed batches in a row")
		if !g.usesBatches() {
			what = countNoun(g.memory.ConsecutiveFailures, "failure", "failures")
		}
		if g.failed > 0 {
			what += "; failed now: " + listNames(g.failedNames, g.failed)
		}
		return "the group stopped after " + what
	})
}

func (g *groupState) unsavedReason() *Why {
	return g.cachedReason(ReasonLedger, "", func() string {
		return "batch " + strconv.Itoa(g.memory.Batch) + " begins when its plan is stored"
	})
}

// fullReason says why nobody is admitted though nothing else is in the way: the open batch, or the budget.
func (g *groupState) fullReason() *Why {
	if g.Limit == 0 {
		return g.cachedReason(ReasonBudget, "", func() string { return "the budget is 0, so nothing begins" })
	}
	if g.Limit != Unlimited && len(g.busy) >= g.Limit {
		return g.cachedReason(ReasonBudget, "", func() string {
			text := "every seat of " + strconv.Itoa(g.Limit) + " is taken: " + listNames(slices.Sorted(slices.Values(g.busy)), len(g.busy))
			if away := slices.Sorted(maps.Keys(g.unavailable)); len(away) > 0 {
				text += "; not ready, or cordoned by somebody else: " + listNames(away, len(away))
			}
			if len(g.failedSeats) > 0 {
				text += "; failed for good: " + listNames(g.failedSeats, len(g.failedSeats))
			}
			return text + g.provingText()
		})
	}
	return g.cachedReason(ReasonBatch, "", func() string {
		return "batch " + strconv.Itoa(g.memory.Batch) + " has not ended: " + listNames(g.pendingNames, g.pending) + g.provingText()
	})
}

// provingText says what a finished target still has to prove, if one has.
func (g *groupState) provingText() string {
	if g.proving == nil {
		return ""
	}
	v, _ := isFinished(nil, g.proving)
	return "; " + g.proving.target.Node + ": " + v.Why.Text
}

func (g *groupState) topologyReason(t *targetState) *Why {
	return g.cachedReason(ReasonTopology, t.target.Place, func() string {
		return countNoun(g.places[t.target.Place], "node is", "nodes are") + " busy in " + g.Spread.Key + " " + t.target.Place
	})
}
