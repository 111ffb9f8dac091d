// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop/kairos"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// A node that fails is left alone for a time that doubles from minNodeBackoff to maxNodeBackoff. What conflicts is decided again
// after minConflictBackoff, which doubles too.
const (
	minConflictBackoff = 10 * time.Millisecond
	minNodeBackoff     = time.Second
	maxNodeBackoff     = 30 * time.Second
)

// applier carries plans out. It remembers little between them, and all of it may be lost.
type applier struct {
	apiWriter
	inFlight  *inFlight
	refusals  *drain.Refusals
	refused   *refusals
	revisions *revisions
	look      *lookList
	accepted  map[string]time.Time // contents of objects that the API server would not refuse, and when it said so
	gates     *gates.Checker
	lastNode  string // that was worked on when there were more than one pass may do
	ledgers   *ledgerTimes
	metadata  *sync.Map // name of a ConfigMap with a node's metadata to the hash of what was written

	unrecorded map[string]time.Time // nodes whose progress is not recorded yet, with since when: see workCollector.putOffProgress
}

// pass is one plan being applied.
type pass struct {
	*applier
	compiled      *Compiled
	objects       *Objects // from which it was compiled
	now           time.Time
	probes        kairos.Probes
	announced     announcements
	denied        map[rollout.Ref]bool // ledgers that were not written
	notReady      map[rollout.Ref]bool // rollouts whose owner lacks its finalizer or ConfigMaps
	startsNothing map[rollout.Ref]bool // rollouts that lack these because they were refused: nothing begins
	incomplete    map[rollout.Ref]bool // rollouts that get less than the plan says, so that their reports are not true
	putOff        map[string]time.Time // becomes applier.unrecorded
}

func (a *applier) newPass(c *Compiled) *pass {
	return &pass{
		applier: a, compiled: c, objects: c.Objects, now: a.options.Clock(), denied: map[rollout.Ref]bool{}, notReady: map[rollout.Ref]bool{}, startsNothing: map[rollout.Ref]bool{}, incomplete: map[rollout.Ref]bool{},
		putOff: map[string]time.Time{},
	}
}

// Apply carries a plan out: each node's actions in their order, nodes side by side, those that need a ledger after it was
// written. An error stops the node, ledger or object that it concerns, and the next plan decides again. The annotations
// of the plan's reports are written along with the actions. Every action is safe to repeat.
//
// It returns when everything is being sent, with what completed since the last time. Nodes that are still in flight
// are not planned for by the passes meanwhile.
func (a *applier) Apply(ctx context.Context, c *Compiled, plan rollout.Plan) (Outcome, error) {
	o := c.Objects
	o.durations.RecordDrains(c.Snapshot, plan)
	p := a.newPass(c)
	limited, cancel := p.withDeadline(ctx)
	defer cancel()
	skyhooks, nodeOps := skyhookOwners{p}, nodeOpOwners{p}
	skyhooks.prepareAll(limited)
	nodeOps.prepareAll(limited)
	p.dryRunObjects(limited, plan)
	p.probes = p.probeKairos(limited)
	p.markIncomplete(plan)
	p.announced = p.newAnnouncements(plan)

	needsLedger := findNodesWithLedger(plan)
	early := p.collectWork(plan, workFilter{skip: o.inFlight.nodes, leaves: needsLedger, activeOnly: true})
	p.send(ctx, early)

	ledgers := p.openLedgers(plan.Ledgers)
	p.markIncomplete(plan)
	skip := maps.Clone(o.inFlight.nodes)
	for _, w := range early {
		skip[w.node] = true
	}
	now, later := splitByPending(plan, ledgers, p.collectWork(plan, workFilter{skip: skip, actionsOf: needsLedger}))
	p.send(ctx, now)
	p.sendWithLedgers(ctx, plan, ledgers, later)
	p.unrecorded = p.putOff

	skyhooks.recordRevisions(limited)
	skyhooks.cleanUpAll(limited)
	nodeOps.cleanUpAll(limited)
	p.protectPolicies(limited, plan)
	p.awaitGates(plan)
	out, err := p.inFlight.takeOutcome()
	out.Incomplete = p.incomplete
	if a.look.set(plan.Look) {
		out.RetryAt = node.Earlier(out.RetryAt, p.now) // the next pass lists their pods
	}
	return out, err
}

// markIncomplete notes which rollouts get less than the plan says.
func (p *pass) markIncomplete(plan rollout.Plan) {
	for _, a := range plan.Actions {
		if p.isWithheld(a) || p.denied[a.Ledger] {
			p.incomplete[a.Rollout] = true
		}
	}
}

// isWithheld reports whether an action is not carried out because its rollout lacks its finalizer or a ConfigMap.
func (p *pass) isWithheld(a rollout.Action) bool {
	switch a.Verb {
	case rollout.VerbAdmit, rollout.VerbHold, rollout.VerbAsk, rollout.VerbRun:
		return p.notReady[a.Rollout] || p.startsNothing[a.Rollout]
	default:
		return p.notReady[a.Rollout]
	}
}

// findNodesWithLedger returns the nodes with an admission. The actions on other nodes do not wait until the ledgers are written.
func findNodesWithLedger(plan rollout.Plan) map[string]bool {
	out := map[string]bool{}
	for i := range plan.Actions {
		if a := &plan.Actions[i]; !a.Ledger.IsZero() {
			out[a.Node] = true
		}
	}
	return out
}
