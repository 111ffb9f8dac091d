// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// sending is the work on one node, as part of a plan.
type sending struct {
	*nodeWork
	pass  *pass
	ctx   context.Context // it ends with the time that the plan has
	ended func()
	due   int // see sendQueue
}

// minTimeLeft is the share of ApplyTimeout that must remain when a request starts.
const minTimeLeft = 0.25

// plansBefore is how many later plans go before a kind of work. Users wait for what nodes do next.
var plansBefore = map[workKind]int{workStages: 0, workAdmission: 2, workChecks: 4, workStatus: 8}

// sendQueue is a priority queue of what is still to be sent, of all plans. A part is due with its plan, or so many plans later as plansBefore
// says for its kind; the second part of a work, and the deletions after it, one plan later than the part before. What is due first is sent
// first, of equal parts the one that was added first. So the next stages of nodes go before admissions, and nothing waits for ever.
// Status has a quarter of the workers: nobody waits for it, and with a new rollout every node of a fleet gets some.
type sendQueue struct {
	most int // parts that are sent at the same time

	mu      sync.Mutex
	hasRoom *sync.Cond
	waiting []*sending // by due
	plans   int        // so far
	workers int
	status  int // of these, how many send what is only status
}

func newSendQueue(most int) *sendQueue {
	q := &sendQueue{most: most}
	q.hasRoom = sync.NewCond(&q.mu)
	return q
}

// add adds the first parts of one plan and sends them.
func (q *sendQueue) add(senders *sync.WaitGroup, all []*sending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.plans++
	for _, s := range all {
		s.due = q.plans + plansBefore[s.kind]
		q.insert(s)
	}
	for range min(len(all), q.most-q.workers) {
		q.workers++
		senders.Go(q.work)
	}
}

// insert adds a part behind those that are due at the same time. The caller holds the lock.
func (q *sendQueue) insert(s *sending) {
	at, _ := slices.BinarySearchFunc(q.waiting, s.due+1, func(other *sending, due int) int { return cmp.Compare(other.due, due) })
	q.waiting = slices.Insert(q.waiting, at, s)
}

// awaitRoom waits until no more parts wait than are sent at the same time, without admissions and status. What is planned next is not
// planned from objects that are out of date then, and those of few plans are kept.
func (q *sendQueue) awaitRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting)-q.count(workAdmission)-q.count(workStatus) > q.most {
		q.hasRoom.Wait()
	}
}

// count counts the parts of one kind that wait. The caller holds the lock.
func (q *sendQueue) count(kind workKind) (n int) {
	for _, s := range q.waiting {
		if s.kind == kind {
			n++
		}
	}
	return n
}

// work sends one part after the other until the queue is empty.
func (q *sendQueue) work() {
	for s := q.take(); s != nil; s = q.take() {
		hasMore := s.pass.sendPart(s)
		if hasMore && s.kind == workStatus {
			hasMore = s.pass.sendPart(s)
		}
		q.end(s, hasMore)
	}
}

// end notes that a part was sent, and keeps the next one.
func (q *sendQueue) end(s *sending, hasMore bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.kind == workStatus {
		q.status--
	}
	if hasMore {
		s.due++
		q.insert(s)
	}
}

// roomForStatus returns to how many more nodes may be sent what is only status, if to most at a time.
func (q *sendQueue) roomForStatus(most int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(most-q.count(workStatus)-q.status, 0)
}

// take returns what is sent next; nil when there is nothing, and the worker ends.
func (q *sendQueue) take() *sending {
	q.mu.Lock()
	defer q.mu.Unlock()
	hasStatusWorker := q.status < (q.most+3)/4
	next := slices.IndexFunc(q.waiting, func(s *sending) bool { return s.kind != workStatus || hasStatusWorker })
	if next < 0 {
		q.workers--
		return nil
	}
	s := q.waiting[next]
	q.waiting = slices.Delete(q.waiting, next, next+1)
	if s.kind == workStatus {
		q.status++
	}
	q.hasRoom.Signal()
	return s
}

// send sends the work of some nodes, several nodes at a time. It returns when no more parts wait than are sent at the same time, so that
// a slow request delays its own node only; without Options.OnComplete it returns when all have completed.
func (p *pass) send(ctx context.Context, all []*nodeWork) {
	p.inFlight.add(all)
	p.startSending(ctx, all)
	if p.options.OnComplete != nil {
		p.inFlight.queue.awaitRoom()
	}
}

// startSending sends the work of nodes that are in flight.
func (p *pass) startSending(ctx context.Context, all []*nodeWork) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := p.withDeadline(ctx)
	var left atomic.Int64
	left.Store(int64(len(all)))
	ended := make(chan struct{})
	parts := make([]*sending, len(all))
	for i, w := range all {
		parts[i] = &sending{nodeWork: w, pass: p, ctx: ctx, ended: func() {
			if left.Add(-1) == 0 {
				cancel()
				close(ended)
			}
		}}
	}
	p.inFlight.queue.add(&p.inFlight.senders, parts)
	if p.options.OnComplete == nil {
		<-ended
	}
}

// withDeadline bounds how long what was decided may still be sent.
func (p *pass) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.options.ApplyTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, p.objects.observedAt.Add(p.options.ApplyTimeout))
}

// sendPart sends the next part of the work on a node, and reports whether another one is to be sent.
func (p *pass) sendPart(s *sending) (hasMore bool) {
	writer, w := nodeWriter{p}, s.nodeWork
	if !w.begun {
		w.begun = p.attempt(s.ctx, w, writer.begin)
		if w.begun && w.hasSecondPart() {
			return true
		}
	}
	if w.begun {
		p.attempt(s.ctx, w, writer.finish)
	}
	deletions := w.takeDeletions()
	if deletions == nil {
		p.complete(w)
		s.ended()
		return false
	}
	p.inFlight.addDeletions(deletions) // before the node is free
	p.complete(w)
	s.nodeWork = deletions
	return true
}

// complete ends the flight of a work, and requests a pass if that is needed.
func (p *pass) complete(w *nodeWork) {
	needsPass := p.inFlight.complete(w, p.compiled)
	if needsPass && p.options.OnComplete != nil {
		p.options.OnComplete(w.node)
	}
}

// attempt sends one part of the work on a node and records an error. It reports whether the work may go on.
func (p *pass) attempt(ctx context.Context, w *nodeWork, part func(context.Context, *nodeWork) error) bool {
	if p.isLate(ctx) {
		p.inFlight.retry(p.now)
		return false
	}
	err := part(ctx, w)
	if err == nil {
		p.inFlight.forgetErrors(w)
		if w.kind != workDeletions {
			p.refused.remove(request{node: w.node})
		}
		return true
	}
	switch {
	case p.decideAgain(ctx, failureKey{node: w.node}, err):
	case isRefused(err):
		p.rememberNodeRefusal(w, err)
		p.inFlight.recordUntainted(w, err)
	default:
		p.inFlight.recordNodeError(w, err, p.options.Clock())
		p.inFlight.recordUntainted(w, err)
	}
	return false
}

// isLate reports whether too little of a plan's time is left to begin something. It would be carried out while nobody waits for the answer
// any more, and the next pass would send it again.
func (p *pass) isLate(ctx context.Context) bool {
	deadline, hasDeadline := ctx.Deadline()
	return ctx.Err() != nil || hasDeadline && time.Until(deadline).Seconds() < minTimeLeft*p.options.ApplyTimeout.Seconds()
}

// decideAgain asks for another pass after a request that says nothing about what was to be done: the process ends, or the object was
// changed meanwhile. It reports whether the error is one of these.
func (p *pass) decideAgain(ctx context.Context, key failureKey, err error) bool {
	isCanceled := errors.Is(ctx.Err(), context.Canceled)
	if isCanceled {
		p.inFlight.retry(p.now)
	}
	return isCanceled || apierrors.IsConflict(err) && p.inFlight.retryConflict(key, p.now)
}

// failRollout records an error that concerns the work of one rollout on a node. The work of others there goes on.
func (p *pass) failRollout(ctx context.Context, w *nodeWork, a rollout.Action, err error) {
	w.fail(a.Rollout)
	key := failureKey{w.node, a.Rollout}
	if !p.decideAgain(ctx, key, err) {
		p.inFlight.recordRolloutError(key, fmt.Errorf("%s %s: %w", a.Verb, a.Rollout, err), p.options.Clock())
	}
}

// rememberNodeRefusal remembers that a node cannot be changed: its targets are blocked until that is tried again.
func (p *pass) rememberNodeRefusal(w *nodeWork, err error) {
	refused := p.refused.add(request{node: w.node}, err, p.now)
	p.inFlight.retry(p.now)
	for name := range w.rollouts {
		p.inFlight.recordRefusal(name, refused)
	}
}
