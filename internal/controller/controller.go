// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package controller decides when to look. It holds the one loop of the operator: something changes, the loop observes
// the cluster, has the engine decide, applies the plan and says how things are.
//
//	watches ──wake──► Observe ─► Snapshot ─► Decide ─► Apply ─► status, events, metrics, log
//
// Every watch wakes the same loop, so a thousand events fold into one pass, and there is one writer. The loop paces
// itself by what thinking costs, and sleeps when nothing changes: nothing here polls.
package controller

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// applyLimit is how long a pass may take, with all that it sends but the statuses, which have a time of their own: well
// before the lease of a leader that cannot renew it goes to somebody else.
const applyLimit = 6 * time.Second

// gather is the least time between two rounds of admissions of one rollout, or of those that share a policy.
const gather = 500 * time.Millisecond

// sayEvery is the time between two writes of one object's status.
const sayEvery = time.Second

// Loop is the one loop.
type Loop struct {
	cluster *cluster.Cluster
	log     logr.Logger
	events  record.EventRecorder
	board   *board
	clock   func() time.Time
	wakeup  chan struct{}
	urgent  chan struct{}

	said      map[types.UID]time.Time              // when each object's status was written last
	spoken    map[types.UID]v1alpha1.SkyhookStatus // as events tell it, written or not
	opsSpoken map[types.UID]opv1.NodeOpStatus      // the same of NodeOps
	waits     waits                                // told in events
	problems  map[rollout.Ref]string               // by rollout, as logged
	failures  failures
	pulse     *pulse
}

// newLoop makes a loop that has not looked yet.
func newLoop(c *cluster.Cluster, log logr.Logger, events record.EventRecorder, b *board) *Loop {
	return &Loop{
		cluster: c, log: log, events: events, board: b, clock: time.Now, wakeup: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		said: map[types.UID]time.Time{}, waits: waits{}, problems: map[rollout.Ref]string{}, pulse: b.pulse,
	}
}

// wake has the loop look when it has rested. It never blocks.
func (l *Loop) wake() { signal(l.wakeup) }

// hurry has the loop look at once, as far as its pace allows: work ended, and a node waits for what comes next.
func (l *Loop) hurry() { signal(l.urgent) }

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default: // it will look anyway
	}
}

// settle takes a signal back, if there is one.
func settle(from <-chan struct{}) {
	select {
	case <-from:
	default:
	}
}

// NeedLeaderElection says that only the leader runs the loop.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start runs the loop until the context ends.
func (l *Loop) Start(ctx context.Context) error {
	defer l.cluster.WaitForInFlight() // nothing of this leader's is under way when it says that it stopped
	l.log.Info("looking after the cluster")
	l.wake()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var p pace
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wakeup:
		case <-l.urgent:
		case <-timer.C:
		}
		settle(l.wakeup) // one look serves both
		settle(l.urgent)
		began := l.clock()
		thought, again := l.pass(ctx)
		p.spent(began, thought)
		if !l.rest(ctx, p) {
			return nil
		}
		timer.Reset(until(again, l.clock()))
	}
}

// rest waits until the next pass may begin; for a hurried one that is sooner. It says no when the context ends.
func (l *Loop) rest(ctx context.Context, p pace) bool {
	ended := l.clock()
	usual := time.NewTimer(p.next(ended, false).Sub(ended))
	defer usual.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-usual.C:
		return true
	case <-l.urgent:
	}
	l.hurry() // the next pass begins for it
	return sleep(ctx, p.next(ended, true).Sub(l.clock()))
}

// never is how long the loop waits when nothing but an event wakes it.
const never = 1000 * time.Hour

func until(t, now time.Time) time.Duration {
	if t.IsZero() {
		return never
	}
	return max(t.Sub(now), 0)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// pass looks at the cluster once and does what is to be done. It says how long it computed to observe and decide, and when
// to look again.
func (l *Loop) pass(life context.Context) (thought time.Duration, again time.Time) {
	began := l.clock()
	l.pulse.begin(began)
	defer l.pulse.end()
	runtime.LockOSThread()
	before := effort()
	o, err := l.observe(life)
	if err != nil {
		runtime.UnlockOSThread()
		l.board.end(err)
		return l.clock().Sub(began), l.stumble(life, err)
	}
	observed := l.clock()
	snapshot, problems := cluster.Snapshot(o, began)
	plan := rollout.Decide(snapshot)
	decided := l.clock()
	thought = effort() - before
	runtime.UnlockOSThread()
	l.complain(problems)
	outcome, err := l.cluster.Apply(life, o, plan)
	applied := l.clock()
	for _, d := range outcome.Applied {
		l.tell(d.Actions)
		l.board.acted(d)
	}
	later, sayErr := l.say(life, o, plan, outcome)
	l.board.passed(began, observed, decided, applied, l.clock(), func(node string) bool { return o.IsInFlight(node) || l.cluster.IsInFlight(node) })

	again = sooner(sooner(plan.Next, o.RetryAt), sooner(outcome.RetryAt, later))
	err = errors.Join(o.Err, err, sayErr)
	l.board.end(err)
	if err != nil {
		again = sooner(again, l.stumble(life, err))
	} else {
		l.failures.end()
	}
	return thought, again
}

// observe looks at the cluster, within the time that a pass has.
func (l *Loop) observe(life context.Context) (*cluster.Objects, error) {
	ctx, cancel := context.WithTimeout(life, applyLimit)
	defer cancel()
	return l.cluster.Observe(ctx)
}

// stumble logs what went wrong, and says when to try again.
func (l *Loop) stumble(ctx context.Context, err error) time.Time {
	if errors.Is(ctx.Err(), context.Canceled) { // the process ends, or somebody else leads
		return time.Time{}
	}
	wait := l.failures.next()
	l.log.Error(err, "cannot finish a pass", "retry", wait.String())
	return l.clock().Add(wait)
}

// failures counts passes that failed, one after the other.
type failures struct{ wait time.Duration }

func (f *failures) next() time.Duration {
	f.wait = min(max(2*f.wait, time.Second), 30*time.Second)
	return f.wait
}

func (f *failures) end() { f.wait = 0 }

// pulse tells whether a pass hangs.
type pulse struct {
	mu    sync.Mutex
	since time.Time
}

func (p *pulse) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = now
}

func (p *pulse) end() { p.begin(time.Time{}) }

// running is how long the current pass has taken; 0 between passes.
func (p *pulse) running(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return 0
	}
	return now.Sub(p.since)
}

// sooner is the earlier of two times, of which a zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
