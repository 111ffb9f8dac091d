// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster is the back end: it observes an API server and applies plans to it. It decides nothing.
//
//	objects, err := c.Observe(ctx)              // I/O
//	compiled := c.Compile(objects, now)         // the front ends; pure but for what was measured
//	plan := engine.Decide(compiled.Snapshot)    // pure: the only place where anything is decided
//	outcome, err := c.Apply(ctx, compiled, plan) // I/O
//
// A Cluster remembers a few things between passes: what it wrote last, so that its reads contain its own writes though
// a cache lags behind; what it parsed; which evictions were refused. All of it may be lost at any moment.
package cluster

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Cluster observes one cluster and applies plans to it. Its methods are for one goroutine at a time, except IsInFlight and
// WaitForInFlight.
type Cluster struct {
	*observer
	*applier
	statusWriter
	options  *Options
	inFlight *inFlight
	compiled map[rollout.Ref]*skyhook.Compiled // the last time
	answers  careAnswers                       // likewise
}

// Options say how to reach a cluster. Live is enough to observe; Client is needed to apply.
type Options struct {
	Config        plan.Config
	NodeOps       nodeop.Config
	Live          client.Reader     // the API server itself
	Objects       client.Reader     // objects of any kind, for proofs and health gates; nil where they cannot be read
	Cached        client.Reader     // lists that may lag behind; nil to read Live each time
	CachedNodeOps client.Reader     // lists the Jobs and pods of NodeOps; Cached when nil
	Stores        Stores            // list what Cached and CachedNodeOps hold
	Workloads     Workloads         // pods on held nodes; listed from Live when nil
	Parsed        []*node.Node      // nodes that were parsed before, which are not parsed again; may be nil
	Client        client.Client     // writes to the API server
	Self          string            // name of the node this operator runs on; empty when unknown
	Parallel      int               // nodes that are written to at the same time; 16 when 0
	Clock         func() time.Time  // time.Now when nil
	OnPodCreate   func(node string) // called before a pod is created on a node; may be nil
	OnComplete    func(node string) // called when the work on a node is complete, or a status or ledger without one; Apply and UpdateStatus wait for that when nil

	// OnRequest is called before the first request for a node of a plan, with when what it was planned from was observed; may be nil.
	OnRequest func(node string, observed time.Time)

	ApplyTimeout time.Duration // how long after an observation something planned from it may be sent; 0 for no limit

	// LedgerInterval is the least time between two writes of one ledger: nodes that may start meanwhile are admitted
	// together. 0 to write every admission at once.
	LedgerInterval time.Duration

	// PrometheusTokenFile has the bearer token for Prometheus servers that the configuration names; empty for none.
	PrometheusTokenFile string

	// OnDifference is called when what was kept from an earlier pass is not what would be compiled anew, which is compiled in addition
	// then: it is for tests. nil to trust it.
	OnDifference func(text string)
}

// Stores list what caches hold, without copying it as lists of Cached and CachedNodeOps do. A cache is asked for a list if there is no
// function for it, or if that returns nil.
type Stores struct {
	Nodes      func() []*corev1.Node
	Pods       func() []*corev1.Pod // of Skyhooks, in their namespace
	Jobs       func() []*batchv1.Job
	NodeOpPods func() []*corev1.Pod
}

// newDurations returns what measures durations; nil for a reader, which knows no more than what is recorded.
func (o *Options) newDurations() *timing.Durations {
	if o.Client == nil {
		return nil
	}
	return timing.NewDurations()
}

// Workloads lists the pods of every namespace on some nodes. It is called in every pass with exactly the nodes of
// interest, so it may keep watching them; a node whose pods are not listed yet is missing from the answer, also with an error.
type Workloads interface {
	On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error)
}

// New makes a Cluster that has observed nothing yet.
func New(o Options) *Cluster {
	if o.Workloads == nil {
		o.Workloads = liveWorkloads{o.Live}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Parallel == 0 {
		o.Parallel = 16
	}
	if o.OnPodCreate == nil {
		o.OnPodCreate = func(string) {}
	}
	if o.OnRequest == nil {
		o.OnRequest = func(string, time.Time) {}
	}
	inFlight, evictions, refused, checker := newInFlight(o.Parallel), drain.NewRefusals(), newRefusals(), &gates.Checker{}
	history, look := &revisions{}, &lookList{}
	api := apiWriter{options: &o, writes: writecache.NewSet(o.Clock)}
	return &Cluster{
		options: &o, inFlight: inFlight, statusWriter: statusWriter{api, inFlight, &sync.Once{}},
		observer: &observer{
			options: &o, parsed: byName(o.Parsed), writes: api.writes, inFlight: inFlight, refusals: evictions, refused: refused, gates: checker, objectChecks: &gates.ObjectChecker{}, revisions: history, look: look, missing: map[rollout.Ref]time.Time{}, durations: o.newDurations(),
		},
		applier: &applier{
			apiWriter: api, inFlight: inFlight, refusals: evictions, refused: refused, revisions: history, look: look, accepted: map[string]time.Time{}, gates: checker,
			ledgers: &ledgerTimes{at: map[rollout.Ref]time.Time{}}, metadata: &sync.Map{},
		},
	}
}

// IsInFlight reports whether a node is in flight.
func (c *Cluster) IsInFlight(node string) bool { return c.inFlight.hasNode(node) }

// AwaitInFlight has a pass follow what is in flight for a rollout, and reports whether there is something, or was when this was observed:
// more may be true by now. Checks for drift do not count.
func (c *Cluster) AwaitInFlight(o *Objects, ref rollout.Ref) bool {
	return c.inFlight.await(ref) || o.hasInFlight(ref)
}

// WaitForInFlight waits until nothing is in flight any more.
func (c *Cluster) WaitForInFlight() { c.inFlight.senders.Wait() }
