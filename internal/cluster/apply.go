// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// A pass is bounded, so that what happens meanwhile is soon seen: at most this many nodes go on, each in its turn, and at
// most as many begin; and at most this many more get nothing but words.
const (
	deeds   = 200
	remarks = 100
)

// round is one plan being applied.
type round struct {
	*Cluster
	o      *Objects
	now    time.Time
	denied map[rollout.Ref]bool // ledgers that somebody else wrote meanwhile
	looks  nodeop.KairosProbes
	stuck  map[rollout.Ref]bool // rollouts that are not ready to be worked on
	undone map[rollout.Ref]bool // rollouts that get less than the plan says: what it says of them is not true
}

// Apply carries a plan out: each node's actions in their order, nodes side by side, those that need a ledger after it was
// written. An error stops the node, ledger or object it concerns, and the next plan decides again. The words that the
// plan's reports put on nodes are written along. Every action is safe to repeat.
//
// It returns when everything is being sent, and tells of what arrived since the last time. The nodes that are still in
// flight are left alone by those who observe meanwhile.
func (c *Cluster) Apply(ctx context.Context, o *Objects, plan rollout.Plan) (Outcome, error) {
	r := &round{
		Cluster: c, o: o, now: c.options.Clock(),
		denied: map[rollout.Ref]bool{}, stuck: map[rollout.Ref]bool{}, undone: map[rollout.Ref]bool{},
	}
	life := ctx
	ctx, cancel := r.limit(life)
	defer cancel()
	r.prepare(ctx)
	r.prepareOps(ctx)
	r.looks = r.look(ctx)
	r.fallShort(plan)
	first, rest := apart(plan)
	early := r.gather(first, r.o.sending, true)
	r.send(life, early)
	r.fence(ctx, plan.Ledgers)
	r.fallShort(plan)
	r.send(life, r.gather(rest, with(r.o.sending, early), false))
	r.tidy(ctx)
	r.tidyOps(ctx)
	r.protect(ctx, plan)
	r.awaitGates(plan)
	return r.outcome()
}

// fallShort notes which rollouts get less than the plan says.
func (r *round) fallShort(plan rollout.Plan) {
	for _, a := range plan.Actions {
		if r.stuck[a.Rollout] || r.denied[a.Ledger] {
			r.undone[a.Rollout] = true
		}
	}
}

// with adds the nodes of some works to others.
func with(nodes map[string]bool, all []*work) map[string]bool {
	out := maps.Clone(nodes)
	for _, w := range all {
		out[w.node] = true
	}
	return out
}

// apart takes out of a plan what is done on nodes where nobody is admitted: nobody there waits until the ledgers are written.
func apart(plan rollout.Plan) (first, rest rollout.Plan) {
	fenced := map[string]bool{}
	for _, a := range plan.Actions {
		fenced[a.Node] = fenced[a.Node] || !a.Ledger.IsZero()
	}
	first, rest = plan, plan
	first.Actions = slices.DeleteFunc(slices.Clone(plan.Actions), func(a rollout.Action) bool { return fenced[a.Node] })
	rest.Actions = slices.DeleteFunc(slices.Clone(plan.Actions), func(a rollout.Action) bool { return !fenced[a.Node] })
	return first, rest
}

// work is all there is to do on one node.
type work struct {
	node     string
	actions  []rollout.Action
	rollouts map[rollout.Ref]int // for which, with the number past the order of an admission; not changed while it is sent
	say      []saying
	extra    skyhook.Edit // records for a node that a predecessor finished
	exact    bool         // extra replaces something that was read: only if the node still is as it was

	after  *skyhook.Node    // as it is once begun
	status skyhook.Edit     // conditions that are still to be written
	sweeps []rollout.Action // of objects that ended
	done   []rollout.Action
}

// of says that a rollout has something to do with the work.
func (w *work) of(name rollout.Ref) {
	if w.rollouts == nil {
		w.rollouts = map[rollout.Ref]int{}
	}
	w.rollouts[name] = max(w.rollouts[name], 0)
}

// saying is one rollout's words on a node.
type saying struct {
	by      *skyhook.Compiled
	verdict rollout.Verdict
}

// gather sorts the plan by node, but for some of them. It may leave those out where there is nothing to do but to speak.
func (r *round) gather(plan rollout.Plan, skip map[string]bool, acts bool) []*work {
	byNode := map[string]*work{}
	var acting, speaking []*work
	of := func(node string, list *[]*work) *work {
		w := byNode[node]
		if w == nil {
			w = &work{node: node}
			byNode[node] = w
			*list = append(*list, w)
		}
		return w
	}
	mute := func(node string) bool { return skip[node] || acts && byNode[node] == nil }
	for _, a := range plan.Actions {
		if skip[a.Node] {
			continue
		}
		w := of(a.Node, &acting)
		w.actions = append(w.actions, a)
		if w.of(a.Rollout); a.Verb == rollout.VerbAdmit {
			w.rollouts[a.Rollout] = a.Order + 1
		}
	}
	for _, op := range r.o.ops {
		if r.stuck[op.Rollout.Ref] || r.undone[op.Rollout.Ref] {
			continue
		}
		for _, adopted := range op.Adopt {
			if mute(adopted.Node) {
				continue
			}
			if w := of(adopted.Node, &speaking); r.o.nodes[adopted.Node] != nil {
				w.of(op.Rollout.Ref)
				w.extra, w.exact = w.extra.Plus(fromOp(adopted.Edit)), true
			}
		}
	}
	for _, found := range r.looks.Edits {
		if mute(found.Node) {
			continue
		}
		w := of(found.Node, &speaking)
		w.extra, w.exact = w.extra.Plus(fromOp(found.Edit)), true
	}
	for _, report := range plan.Reports {
		by := r.o.compiled[report.Rollout]
		if by == nil || r.undone[report.Rollout] {
			continue
		}
		for _, adopted := range by.Adopt {
			if mute(adopted.Node) {
				continue
			}
			w := of(adopted.Node, &speaking)
			w.of(report.Rollout)
			w.extra = w.extra.Plus(adopted.Edit)
		}
		for _, v := range report.Verdicts {
			n := r.o.nodes[v.Node]
			if n == nil || mute(v.Node) || byNode[v.Node] == nil && by.Words(n, v).Empty() {
				continue
			}
			w := of(v.Node, &speaking)
			w.say = append(w.say, saying{by, v})
		}
	}
	acting, speaking = r.steady(acting), r.steady(speaking)
	if len(acting) > deeds || len(speaking) > remarks {
		r.later(r.now)
	}
	return append(r.turn(acting), speaking[:min(len(speaking), remarks)]...)
}

// turn picks the nodes that are worked on in this round: those after the last one of the round before come first.
func (r *round) turn(all []*work) []*work {
	if len(all) <= deeds {
		return all
	}
	at := slices.IndexFunc(all, func(w *work) bool { return w.node == r.lastNode }) + 1
	all = append(slices.Clone(all[at:]), all[:at]...)[:deeds]
	r.lastNode = all[deeds-1].node
	return all
}

// steady leaves out the nodes that failed a moment ago.
func (r *round) steady(all []*work) []*work {
	return slices.DeleteFunc(all, func(w *work) bool {
		until := r.stumbles.until(w.node)
		if !until.After(r.now) {
			return false
		}
		r.later(until)
		return true
	})
}

// ended does a part of the work on a node, takes note of how that went, and says whether the work may go on.
func (r *round) ended(ctx context.Context, w *work, part func(context.Context, *work) error) bool {
	err, tried := ctx.Err(), false
	if err == nil {
		err, tried = part(ctx, w), true
	}
	f := r.flights
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		r.stumbles.forget(w.node)
		return true
	case apierrors.IsConflict(err), ctx.Err() != nil && !(tried && overdue(ctx)): // somebody else changed the node, or the time is over: look again
		f.again = sooner(f.again, r.now)
	default:
		f.again = sooner(f.again, r.stumbles.note(w.node, r.options.Clock()))
		err = fmt.Errorf("node %s: %w", w.node, err)
		f.errs = append(f.errs, err)
		for _, a := range w.actions {
			f.blame(a.Rollout, err)
		}
	}
	return false
}

// blame remembers an error for those who look at a rollout. The caller holds the lock.
func (f *flights) blame(name rollout.Ref, err error) {
	if f.fails[name] == "" {
		f.fails[name] = err.Error()
	}
}

func (r *round) later(t time.Time) {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	r.flights.again = sooner(r.flights.again, t)
}

// fail notes an error that concerns a whole rollout; a zero name is nobody's.
func (r *round) fail(name rollout.Ref, err error) {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	if !name.IsZero() {
		err = fmt.Errorf("%s: %w", name, err)
		r.flights.blame(name, err)
	}
	r.flights.errs = append(r.flights.errs, err)
}

// outcome sums up what came about since the last outcome. The errors are bounded: one broken API server gives one
// message, not thousands.
func (r *round) outcome() (Outcome, error) {
	f := r.flights
	f.mu.Lock()
	defer f.mu.Unlock()
	out := Outcome{Again: f.again, Undone: r.undone, Failed: f.fails}
	for _, from := range slices.SortedFunc(maps.Keys(f.deeds), func(a, b *Objects) int { return a.looked.Compare(b.looked) }) {
		works := f.deeds[from]
		slices.SortFunc(works, func(a, b *work) int { return strings.Compare(a.node, b.node) })
		if actions := done(works); len(actions) > 0 {
			out.Done = append(out.Done, Deeds{From: from, Actions: actions})
		}
	}
	errs := f.errs
	if more := len(errs) - 5; more > 0 {
		errs = append(errs[:5:5], fmt.Errorf("and %d more errors", more))
	}
	f.again, f.errs, f.fails, f.deeds = time.Time{}, nil, map[rollout.Ref]string{}, map[*Objects][]*work{}
	return out, errors.Join(errs...)
}
