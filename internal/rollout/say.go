// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"strconv"
)

// report is what the group says of itself.
func (g *pool) report() GroupReport {
	r := GroupReport{
		Group: g.Ref, Memory: g.memory, Matched: g.total, Ceiling: g.Limit, Busy: len(g.busy),
		Finished: g.finished, Failed: g.failed, Waiting: g.candidates,
	}
	for _, reason := range []Reason{ReasonStopped, ReasonLedger, ReasonBudget, ReasonBatch} {
		if why := g.whys[string(reason)]; why != nil {
			r.Why = why
			break
		}
	}
	if g.Frozen != nil && g.candidates > 0 {
		r.Why = g.Frozen
	}
	return r
}

// once makes a sentence for all candidates that wait for the same thing.
func (g *pool) once(r Reason, place string, text func() string) *Why {
	key := string(r) + place
	if why := g.whys[key]; why != nil {
		return why
	}
	if g.whys == nil {
		g.whys = map[string]*Why{}
	}
	why := &Why{Reason: r, Text: bounded(text()), About: g.Ref.String()}
	g.whys[key] = why
	return why
}

func (g *pool) stopped() *Why {
	return g.once(ReasonStopped, "", func() string {
		what := count(g.memory.ConsecutiveFailures, "failed batch in a row", "failed batches in a row")
		if !g.inBatches() {
			what = count(g.memory.ConsecutiveFailures, "failure", "failures")
		}
		if g.failed > 0 {
			what += "; failed now: " + some(g.failedNames, g.failed)
		}
		return "the group stopped after " + what
	})
}

func (g *pool) saving() *Why {
	return g.once(ReasonLedger, "", func() string {
		return "batch " + strconv.Itoa(g.memory.Batch) + " begins when its plan is stored"
	})
}

// full says why nobody is admitted though nothing else is in the way: the open batch, or the budget.
func (g *pool) full() *Why {
	if g.Limit == 0 {
		return g.once(ReasonBudget, "", func() string { return "the budget is 0, so nothing begins" })
	}
	if g.Limit != Unlimited && len(g.busy) >= g.Limit {
		return g.once(ReasonBudget, "", func() string {
			text := "every seat of " + strconv.Itoa(g.Limit) + " is taken: " + some(slices.Sorted(slices.Values(g.busy)), len(g.busy))
			if away := slices.Sorted(maps.Keys(g.away)); len(away) > 0 {
				text += "; not ready, or cordoned by somebody else: " + some(away, len(away))
			}
			if len(g.failedSeats) > 0 {
				text += "; failed for good: " + some(g.failedSeats, len(g.failedSeats))
			}
			return text + g.proof()
		})
	}
	return g.once(ReasonBatch, "", func() string {
		return "batch " + strconv.Itoa(g.memory.Batch) + " has not ended: " + some(g.undoneNames, g.undone) + g.proof()
	})
}

// proof says what a finished target still has to prove, if one has.
func (g *pool) proof() string {
	if g.proving == nil {
		return ""
	}
	v, _ := nothingOwed(nil, g.proving)
	return "; " + g.proving.t.Node + ": " + v.Why.Text
}

func (g *pool) crowd(p *post) *Why {
	return g.once(ReasonTopology, p.t.Place, func() string {
		return count(g.places[p.t.Place], "node is", "nodes are") + " busy in " + g.Spread.Key + " " + p.t.Place
	})
}
