// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
)

// passTimeout bounds a pass with everything it sends except statuses, which have a timeout of their own. Together they
// are shorter than the time in which a leader has to renew its lease.
const passTimeout = 6 * time.Second

// maxWait is how long the loop waits when no pass is requested and none is due.
const maxWait = 1000 * time.Hour

// backoffKey is the loop's only entry in its back-off.
const backoffKey = "pass"

// Loop is the reconcile loop.
type Loop struct {
	cluster  *cluster.Cluster
	requests *passRequests
	reporter *reporter
	metrics  *metricsCollector
	backoff  *flowcontrol.Backoff // after failed passes
	log      logr.Logger
	clock    func() time.Time
	onPlan   func(rollout.Snapshot, rollout.Plan) // called with each plan before it is applied; may be nil
}

// newLoop makes a loop that has not run yet.
func newLoop(r *passRequests, m *metricsCollector, log logr.Logger) *Loop {
	return &Loop{requests: r, metrics: m, log: log, clock: time.Now, backoff: flowcontrol.NewBackOff(time.Second, 30*time.Second)}
}

// NewLoop makes a loop whose metrics are not registered. Its passes are made one by one with RunPass, as in a simulation, which sees
// each plan before it is applied.
func NewLoop(c *cluster.Cluster, events record.EventRecorder, clock func() time.Time, log logr.Logger, onPlan func(rollout.Snapshot, rollout.Plan)) *Loop {
	m := newMetricsCollector()
	l := newLoop(newPassRequests(), m, log)
	l.cluster, l.reporter, l.clock, l.onPlan = c, newReporter(c, m, events, log), clock, onPlan
	l.reporter.clock = clock
	return l
}

// RunPass makes one pass and returns when the next one is due; zero for never.
func (l *Loop) RunPass(ctx context.Context) (next time.Time) {
	_, next = l.runPass(ctx)
	return next
}

// NeedLeaderElection reports that only the leader runs the loop.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start runs the loop until the context ends.
func (l *Loop) Start(ctx context.Context) error {
	defer l.cluster.WaitForInFlight() // no write of this leader is in flight once it has stopped
	l.log.Info("starting reconcile loop")
	l.requests.requestPass()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var p pace
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.requests.usual:
		case <-l.requests.urgent:
		case <-timer.C:
		}
		l.requests.drainSignals()

		began := l.clock()
		cost, next := l.runPass(ctx)
		p.addPass(began, cost)
		if !l.waitForPace(ctx, p) {
			return nil
		}
		timer.Reset(timeUntil(next, l.clock()))
	}
}

// waitForPace waits until the next pass may begin, which is sooner for an urgent one. It returns false when the context ends.
func (l *Loop) waitForPace(ctx context.Context, p pace) bool {
	ended := l.clock()
	usual := time.NewTimer(p.nextStart(ended, false).Sub(ended))
	defer usual.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-usual.C:
		return true
	case <-l.requests.urgent:
	}
	l.requests.requestSoon() // the next pass begins for it
	return sleep(ctx, p.nextStart(ended, true).Sub(l.clock()))
}

// runPass observes the cluster once and does what is due. It returns what it took to observe and decide, and when the next pass is due.
func (l *Loop) runPass(ctx context.Context) (cost passCost, next time.Time) {
	began := l.clock()
	l.metrics.liveness.passStarted(began)
	defer l.metrics.liveness.passEnded()

	runtime.LockOSThread()
	before := threadCPUTime()
	o, err := l.observe(ctx)
	if err != nil {
		runtime.UnlockOSThread()
		l.metrics.countPass(err)
		return passCost{cpuTime: l.clock().Sub(began)}, l.retryAt(ctx, err)
	}
	observed := l.clock()
	compiled := l.cluster.Compile(o, began)
	plan := engine.Decide(compiled.Snapshot)
	if l.onPlan != nil {
		l.onPlan(compiled.Snapshot, plan)
	}
	decided := l.clock()
	cost = passCost{threadCPUTime() - before, countInFlight(plan)}
	runtime.UnlockOSThread()

	l.reporter.logProblems(compiled.Problems)
	outcome, err := l.cluster.Apply(ctx, compiled, plan)
	applied := l.clock()
	for _, d := range outcome.Applied {
		l.reporter.logActions(d.Actions)
		l.metrics.countActions(d)
	}
	statusDue, reportErr := l.reporter.reportPass(ctx, compiled, plan, outcome)
	inFlight := func(node string) bool { return o.IsInFlight(node) || l.cluster.IsInFlight(node) }
	l.metrics.observePass(began, observed, decided, applied, l.clock(), inFlight)

	next = node.Earlier(node.Earlier(plan.Next, o.RetryAt), node.Earlier(outcome.RetryAt, statusDue))
	err = errors.Join(o.Err, err, reportErr)
	l.metrics.countPass(err)
	if err != nil {
		return cost, node.Earlier(next, l.retryAt(ctx, err))
	}
	l.backoff.Reset(backoffKey)
	return cost, next
}

// countInFlight counts the targets that a plan finds in progress.
func countInFlight(plan rollout.Plan) (count int) {
	for _, g := range plan.Groups {
		count += g.InFlight
	}
	return count
}

// observe reads the cluster, within the time that a pass has.
func (l *Loop) observe(ctx context.Context) (*cluster.Objects, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	return l.cluster.Observe(ctx)
}

// retryAt logs why a pass failed, and returns when to try again.
func (l *Loop) retryAt(ctx context.Context, err error) time.Time {
	if errors.Is(ctx.Err(), context.Canceled) { // the process ends, or another one leads
		return time.Time{}
	}
	now := l.clock()
	l.backoff.Next(backoffKey, now)
	wait := l.backoff.Get(backoffKey)
	l.log.Error(err, "reconcile pass failed", "retryAfter", wait.String())
	return now.Add(wait)
}

// passRequests collects requests for a pass. A thousand of them make one pass.
type passRequests struct{ usual, urgent chan struct{} }

func newPassRequests() *passRequests {
	return &passRequests{usual: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// requestPass has the loop run when it has rested. It never blocks.
func (r *passRequests) requestPass() { signal(r.usual) }

// requestSoon has the loop run as soon as its pace allows, because work ended and a node waits for what comes next.
func (r *passRequests) requestSoon() { signal(r.urgent) }

// drainSignals removes all requests: the pass that begins serves them.
func (r *passRequests) drainSignals() {
	for _, c := range []chan struct{}{r.usual, r.urgent} {
		select {
		case <-c:
		default:
		}
	}
}

// signal sends unless a signal waits already.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func timeUntil(t, now time.Time) time.Duration {
	if t.IsZero() {
		return maxWait
	}
	return max(t.Sub(now), 0)
}

// sleep returns false when the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
