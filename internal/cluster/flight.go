// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// flights are the works that are being sent, of the last plan and of those before it. A node is in at most one of them:
// who observes while a node is in flight leaves it alone until its flight has landed.
type flights struct {
	senders sync.WaitGroup
	free    chan struct{} // as long as there are free senders

	mu    sync.Mutex
	nodes map[string]*work
	words map[types.UID]bool   // objects whose status is being written
	deeds map[*Objects][]*work // that landed since the last outcome, by what they were planned from
	again time.Time            // when to try again what failed
	errs  []error
	fails map[rollout.Ref]string // by rollout: the first error
}

func newFlights(parallel int) *flights {
	f := &flights{free: make(chan struct{}, parallel), nodes: map[string]*work{}, words: map[types.UID]bool{}, deeds: map[*Objects][]*work{}, fails: map[rollout.Ref]string{}}
	for range parallel {
		f.free <- struct{}{}
	}
	return f
}

// sending tells which nodes are in flight, and for which rollouts, with the number that is past the orders of the
// admissions among them; and of which objects the status is.
func (f *flights) sending() (nodes map[string]bool, rollouts map[rollout.Ref]int, words map[types.UID]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	words = maps.Clone(f.words)
	nodes, rollouts = make(map[string]bool, len(f.nodes)), map[rollout.Ref]int{}
	for name, w := range f.nodes {
		nodes[name] = true
		for r, past := range w.rollouts {
			rollouts[r] = max(rollouts[r], past)
		}
	}
	return nodes, rollouts, words
}

// speak says that the status of an object may be written now: no earlier one is under way.
func (f *flights) speak(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.words[uid] {
		return false
	}
	f.words[uid] = true
	return true
}

// spoke ends that. The next outcome tells of an error.
func (f *flights) spoke(uid types.UID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.words, uid)
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

// Sending says that something is being sent to a node.
func (c *Cluster) Sending(node string) bool {
	c.flights.mu.Lock()
	defer c.flights.mu.Unlock()
	return c.flights.nodes[node] != nil
}

// Sends says that something is being sent for a rollout, or was when this was observed: more may be true by now.
func (c *Cluster) Sends(o *Objects, ref rollout.Ref) bool {
	_, busy, _ := c.flights.sending()
	_, now := busy[ref]
	return now || o.sends(ref)
}

// Land waits until nothing is being sent any more.
func (c *Cluster) Land() { c.flights.senders.Wait() }

// queue is what is to be sent of one plan. What begins work goes first on every node, because people wait for it; what
// tidies up and tells follows.
type queue struct {
	mu     sync.Mutex
	begins []*work
	ends   []*work
	taken  chan struct{} // closed when somebody has taken the last one
}

// take gives the next work, and whether it is to begin; nil when there is none.
func (q *queue) take() (w *work, begins bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.begins) > 0:
		w, begins, q.begins = q.begins[0], true, q.begins[1:]
	case len(q.ends) > 0:
		w, q.ends = q.ends[0], q.ends[1:]
	}
	if q.taken != nil && len(q.begins)+len(q.ends) == 0 {
		close(q.taken)
		q.taken = nil
	}
	return w, begins
}

// begun puts a work back to be ended.
func (q *queue) begun(w *work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ends = append(q.ends, w)
}

// send has the works carried out, some nodes at the same time. It returns when the last of them is being sent: one that
// takes long keeps nobody waiting but its own node. Where nobody wants to be told of landings it returns after the last.
func (r *round) send(ctx context.Context, all []*work) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := r.limit(ctx)
	taken := make(chan struct{})
	q := &queue{begins: all, taken: taken}
	r.flights.mu.Lock()
	for _, w := range all {
		r.flights.nodes[w.node] = w
	}
	r.flights.mu.Unlock()
	var senders sync.WaitGroup
	for range min(r.options.Parallel, len(all)) {
		senders.Add(1)
		r.flights.senders.Add(1)
		go func() {
			defer r.flights.senders.Done()
			defer senders.Done()
			r.carry(ctx, q)
		}()
	}
	if r.options.Landed == nil {
		senders.Wait()
		cancel()
		return
	}
	go func() {
		senders.Wait()
		cancel()
	}()
	<-taken
}

// limit bounds how long what was decided may still be sent.
func (r *round) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.options.Limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, r.o.looked.Add(r.options.Limit))
}

// carry sends one work after the other until nothing is left to take.
func (r *round) carry(ctx context.Context, q *queue) {
	select {
	case <-r.flights.free:
		defer func() { r.flights.free <- struct{}{} }()
	case <-ctx.Done(): // what is left is only taken note of
	}
	for w, begins := q.take(); w != nil; w, begins = q.take() {
		switch {
		case !begins:
			r.ended(ctx, w, r.end)
			r.land(w)
		case r.ended(ctx, w, r.begin):
			q.begun(w)
		default:
			r.land(w)
		}
	}
}

// land ends the flight of a node: from now on it is observed and decided about again.
func (r *round) land(w *work) {
	r.flights.mu.Lock()
	delete(r.flights.nodes, w.node)
	r.flights.deeds[r.o] = append(r.flights.deeds[r.o], w)
	r.flights.mu.Unlock()
	if r.options.Landed != nil {
		r.options.Landed()
	}
}

// overdue says that something took longer to send than it may.
func overdue(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// done are the actions that were carried out, those of one node in order.
func done(works []*work) []rollout.Action {
	var out []rollout.Action
	for _, w := range works {
		out = append(out, w.done...)
	}
	return out
}
