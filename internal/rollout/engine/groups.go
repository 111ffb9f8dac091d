// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// groupState is a group and how much of its limit is used.
type groupState struct {
	*rollout.Group
	rollout.Tally
	wave         wave
	ledger       *ledgerState
	memory       rollout.Memory // as it should be stored
	isComplete   bool           // every target of all groups with its ledger is finished
	candidates   groupCandidates
	usage        groupUsage
	inFlight     int                  // targets that are admitted
	free         int                  // how many more targets may be admitted
	waitForHold  []*targetState       // admitted targets without a hold, in the order of their admission
	pendingNames []string             // a few targets of the open batch whose outcome is not final
	failedNames  []string             // a few targets that failed for good
	failedOf     map[rollout.Ref]bool // the rollouts of all that did
	goneNow      int                  // targets of the open batch that this plan completes and removes, because their rollout is deleted
	proving      *targetState         // the first target that is finished and does not count yet
	waitReasons  map[string]*rollout.Why
	now          time.Time
	closing      *rollout.Why // why nothing begins though the window is open
}

// groupCandidates counts the candidates of a group.
type groupCandidates struct {
	total       int
	protected   int // they wait for protected pods: none of them is admitted now
	unready     int // their images cannot be pulled, or their preflight is against it: the same
	occupying   int // their node is not given back
	unstoppable int // they are admitted though the group stopped: their rollout is being deleted, or they roll back
}

// groupUsage has the nodes that count against the limit of a group.
type groupUsage struct {
	busy        []string
	useCount    map[string]int  // how often each of them was counted
	unavailable map[string]bool // those that no rollout made unavailable
	failedBusy  []string        // those that failed for good
	places      map[string]int  // how many of them have a topology value
	placed      map[string]bool // those that are counted there
}

// maxListed bounds the names that are kept for a sentence.
const maxListed = 3

// unlimited is a number of free slots without a limit.
const unlimited = math.MaxInt

// usesBatches reports whether the group works in batches. That needs a ledger, which numbers them.
func (g *groupState) usesBatches() bool {
	return g.Pace.UsesBatches() && g.ledger != nil
}

// usesMemory reports whether outcomes change the memory of the group.
func (g *groupState) usesMemory() bool {
	mayStop := g.Pace.StopAfter > 0 && g.ledger != nil
	return g.usesBatches() || mayStop
}

// isOverLimit reports whether more nodes are busy than the limit allows.
func (g *groupState) isOverLimit() bool {
	return g.Limit != rollout.Unlimited && len(g.usage.busy) > g.Limit
}

// isFull reports whether as many nodes are busy as the limit allows.
func (g *groupState) isFull() bool {
	return g.Limit != rollout.Unlimited && len(g.usage.busy) >= g.Limit
}

// isBatchFull reports whether the open batch has as many members as planned.
func (g *groupState) isBatchFull() bool {
	return g.usesBatches() && g.Members >= g.memory.Open
}

// addCandidate counts a target that passed the gates and is not admitted.
func (g *groupState) addCandidate(t *targetState) {
	g.candidates.total++
	g.wave.addAsking(t.rollout)
	if t.occupiesNode || t.isCountedHere() {
		g.candidates.occupying++
	}
	if t.rollout.Deleting || t.target.Rollback.WithOthers {
		g.candidates.unstoppable++
	}
}

// admissible returns how many candidates may be admitted as far as their own nodes are concerned.
func (g *groupState) admissible() int {
	return g.candidates.total - g.candidates.protected - g.candidates.unready
}

// addBusy counts a node against the limit. A node counts once, however often it is added.
func (g *groupState) addBusy(node string) {
	if g.usage.useCount == nil {
		g.usage.useCount = map[string]int{}
	}
	g.usage.useCount[node]++
	if g.usage.useCount[node] == 1 {
		g.usage.busy = append(g.usage.busy, node)
	}
}

// addAdmitted counts a target that this plan admits.
func (g *groupState) addAdmitted(t *targetState) {
	g.Members++
	if !t.occupiesNode && !t.isCountedHere() {
		g.free--
	} else if g.usesBatches() {
		g.free = min(g.free, g.memory.Open-g.Members)
	}
	g.addBusy(t.target.Node)
	g.addPending(t.target.Node)
	g.addInTopology(t)
}

// addUnavailable counts a node that is unavailable though no rollout made it so.
func (g *groupState) addUnavailable(node string) {
	if g.usage.unavailable == nil {
		g.usage.unavailable = map[string]bool{}
	}
	g.usage.unavailable[node] = true
	g.addBusy(node)
}

// addPending counts a target of the open batch whose outcome is not final.
func (g *groupState) addPending(node string) {
	g.Pending++
	g.pendingNames = appendListed(g.pendingNames, node)
}

func appendListed(names []string, name string) []string {
	if len(names) == maxListed {
		return names
	}
	return append(names, name)
}

// addInTopology counts a busy node for its topology value.
func (g *groupState) addInTopology(t *targetState) {
	if !g.hasTopologyLimit(t) || g.usage.placed[t.target.Node] {
		return
	}
	if g.usage.places == nil {
		g.usage.places, g.usage.placed = map[string]int{}, map[string]bool{}
	}
	g.usage.places[t.target.Place]++
	g.usage.placed[t.target.Node] = true
}

func (g *groupState) hasTopologyLimit(t *targetState) bool {
	return g.Spread.Limit > 0 && t.target.Place != "" || g.Spread.Zones > 0
}

// isTopologyFull reports whether as many nodes with the topology value of a target are busy as the group allows. A
// reserved target is counted already, and so is one whose node is not given back.
func (g *groupState) isTopologyFull(t *targetState) bool {
	busy := g.usage.places[t.target.Place]
	isCounted := t.reservation.isOpen || t.occupiesNode || t.isCountedHere() && t.group.usage.placed[t.target.Node]
	if isCounted {
		busy--
	}
	if g.Spread.Zones > 0 && busy == 0 && !isCounted && len(g.usage.places) >= g.Spread.Zones {
		return true
	}
	return g.Spread.Limit > 0 && t.target.Place != "" && busy >= g.Spread.Limit
}

// isMember reports whether a target belongs to the open batch. One that is in flight and whose batch is unknown does: a predecessor admitted
// it. When it has failed for good it counts in the first batch only: its outcome would end every further one at once.
func (g *groupState) isMember(t *targetState) bool {
	hasNoBatches := g.usesBatches() && g.Memory.From == 0
	isBatchUnknown := t.target.Visit.Batch == 0 || hasNoBatches
	if t.target.Visit.Admitted && isBatchUnknown {
		return !t.hasFailed || g.Memory.Batch <= 1
	}
	hasEnded := !t.hasWork || t.target.Visit.Skipped
	hasBegun := t.target.Visit.Admitted || hasEnded
	return hasBegun && g.isOfOpenBatch(t)
}

// isOfOpenBatch reports whether the latest admission of a target was one of the open batch. Numbers of another group,
// or of a ledger that was lost since, do not count.
func (g *groupState) isOfOpenBatch(t *targetState) bool {
	if g.ledger == nil || t.target.Visit.Batch > g.ledger.Epoch {
		return false
	}
	isOfGroup := t.target.Visit.BatchOf.IsZero() || t.target.Visit.BatchOf == g.Ref
	return isOfGroup && t.target.Visit.Batch >= max(1, g.Memory.From)
}

// reserve decides whether an admitted target may cordon its node now; nil if so. It may not if the group is over its
// limit: the limit was lowered, nodes became unavailable, or a target that did not count continues. Then the targets
// that hold their node already come first, and the others in the order of their admission.
func (g *groupState) reserve(t *targetState) *rollout.Why {
	if g.Limit == rollout.Unlimited {
		return nil
	}
	isCounted := t.isBusy() || t.isAdmittedNow
	switch {
	case !isCounted && g.isFull():
		return groupReasons{g}.full()
	case !isCounted:
		g.addBusy(t.target.Node)
		g.free--
		return nil
	case !g.isOverLimit():
		return nil
	}
	free := g.Limit - (len(g.usage.busy) - len(g.waitForHold))
	if g.mayHold(t, free) {
		return nil
	}
	return groupReasons{g}.full()
}

// mayHold reports whether a target may cordon its node while the group is over its limit and this many slots are free.
// A node that is unavailable already needs none.
func (g *groupState) mayHold(t *targetState, free int) bool {
	if g.usage.unavailable[t.target.Node] {
		return free >= 0
	}
	next := g.waitForHold[:max(0, min(free, len(g.waitForHold)))]
	return slices.Contains(next, t)
}
