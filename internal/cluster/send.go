// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// sendQueue is the work of one plan that is still to be sent. The first part of each node goes before the second part of
// any: users wait for what begins, and nothing waits for deletions.
type sendQueue struct {
	mu      sync.Mutex
	works   []*nodeWork
	drained chan struct{} // closed when the last one is taken
}

// take returns the next work; nil when there is none.
func (q *sendQueue) take() *nodeWork {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.works) == 0 {
		return nil
	}
	w := q.works[0]
	q.works = q.works[1:]
	if len(q.works) == 0 && q.drained != nil {
		close(q.drained)
		q.drained = nil
	}
	return w
}

func (q *sendQueue) add(w *nodeWork) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.works = append(q.works, w)
}

// send sends the work of some nodes, several nodes at a time. It returns when the last of them is being sent, so that a
// slow request delays its own node only; without Options.OnComplete it returns when all have completed.
func (p *pass) send(ctx context.Context, all []*nodeWork) {
	if len(all) == 0 {
		return
	}
	ctx, cancel := p.withDeadline(ctx)
	drained := make(chan struct{})
	q := &sendQueue{works: all, drained: drained}
	p.inFlight.add(all)
	var senders sync.WaitGroup
	for range min(p.options.Parallel, len(all)) {
		senders.Add(1)
		p.inFlight.senders.Go(func() {
			defer senders.Done()
			p.sendAll(ctx, q)
		})
	}
	if p.options.OnComplete == nil {
		senders.Wait()
		cancel()
		return
	}
	go func() {
		senders.Wait()
		cancel()
	}()
	<-drained
}

// withDeadline bounds how long what was decided may still be sent.
func (p *pass) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.options.ApplyTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, p.objects.observedAt.Add(p.options.ApplyTimeout))
}

// sendAll sends one work after the other until the queue is empty.
func (p *pass) sendAll(ctx context.Context, q *sendQueue) {
	select {
	case p.inFlight.slots <- struct{}{}:
		defer func() { <-p.inFlight.slots }()
	case <-ctx.Done(): // what is left only completes
	}
	writer := nodeWriter{p}
	for w := q.take(); w != nil; w = q.take() {
		if !w.begun && p.attempt(ctx, w, writer.begin) {
			w.begun = true
			q.add(w)
			continue
		}
		if w.begun {
			p.attempt(ctx, w, writer.finish)
		}
		needsPass := p.inFlight.complete(w, p.objects)
		if needsPass && p.options.OnComplete != nil {
			p.options.OnComplete()
		}
	}
}

// attempt sends one part of the work on a node and records an error. It reports whether the work may go on.
func (p *pass) attempt(ctx context.Context, w *nodeWork, part func(context.Context, *nodeWork) error) bool {
	if ctx.Err() != nil {
		p.inFlight.retry(p.now)
		return false
	}
	err := part(ctx, w)
	if err == nil {
		p.inFlight.forgetErrors(w)
		p.refused.remove(request{node: w.node})
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
