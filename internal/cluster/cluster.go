// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster is the back end: it observes an API server and applies plans to it. It decides nothing.
//
//	objects, err := c.Observe(ctx)                       // I/O
//	snapshot, problems := cluster.Snapshot(objects, now) // pure: compiles the front ends
//	plan := rollout.Decide(snapshot)                     // pure: the only place where anything is decided
//	outcome, err := c.Apply(ctx, objects, plan)          // I/O
//
// A Cluster remembers a few things between passes: what it wrote last, so that its reads contain its own writes though
// a cache lags behind; what it parsed; which evictions were refused. All of it may be lost at any moment.
package cluster

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Cluster is one cluster as this process sees it: where it reads and writes, and what it remembers between passes.
// Its methods are for one goroutine at a time, but for Land and Sending.
type Cluster struct {
	options  Options
	asked    map[types.UID]int64 // what people asked for, by generation, when the API server itself was looked at; nil before the first time
	writes   *writecache.Set
	refusals *drain.Refusals
	stumbles stumbles
	parsed   map[string]*skyhook.Node
	defined  map[types.UID]definition
	views    map[string]view           // of nodes, as NodeOps see them
	missing  map[rollout.Ref]time.Time // owners of holds that were not found, and when that was seen first
	names    map[string]bool           // nodes of the last look; nil before the first
	gates    gates.Checker
	lastNode string // that was worked on when there were more than could be
	flights  *flights
	ledgers  map[rollout.Ref]time.Time // that were written a moment ago, and when
}

// Options say how to reach a cluster. Live is enough to observe; Client and Core are needed to apply.
type Options struct {
	Config    skyhook.Config
	NodeOps   nodeop.Config
	Live      client.Reader              // the API server itself
	Cached    client.Reader              // lists that may lag behind; nil to look at Live each time
	CachedOps client.Reader              // lists the Jobs and pods of NodeOps; Cached when nil
	Workloads Workloads                  // pods on held nodes; listed from Live when nil
	Client    client.Client              // writes to the API server
	Core      coreclient.CoreV1Interface // does, too: it does not read the answers to deletions
	Self      string                     // name of the node this operator runs on; empty when unknown
	Parallel  int                        // nodes that are written to at the same time; 16 when 0
	Clock     func() time.Time           // time.Now when nil
	Creating  func(node string)          // called before a pod is created on a node; nil to be silent
	Landed    func()                     // called when what was sent to a node, or a status, has arrived or failed; Apply and Tell wait for that when nil
	Limit     time.Duration              // how long after an observation something planned from it may be sent; 0 for ever

	// Gather is the least time between two writes of one ledger: who is admitted meanwhile is admitted together, and those
	// whose work ends do not wait behind each. 0 to write every admission at once.
	Gather time.Duration

	// Newest is the newest version of a node that is, in all that is read of it, the one that was observed. nil when the
	// caches of nodes show every version.
	Newest func(uid, version string) string
}

// Workloads lists the pods of every namespace on some nodes. It is called in every pass with exactly the nodes of
// interest, so it may keep watching them; a node it cannot speak for yet is missing from the answer, also with an error.
type Workloads interface {
	On(ctx context.Context, nodes []string) (map[string][]*corev1.Pod, error)
}

// Objects is what was observed at one moment. Nothing in it may be changed.
type Objects struct {
	Config      skyhook.Config
	Self        string
	Nodes       []*skyhook.Node     // by creation, then name
	Skyhooks    []*v1alpha1.Skyhook // by priority, then name
	Policies    []*v1alpha1.DeploymentPolicy
	Pods        []*corev1.Pod // in our namespace, labelled as a Skyhook's
	ConfigMaps  []*corev1.ConfigMap
	Definitions map[string]*skyhook.Definition
	NodeOps     []*opv1.NodeOp // by creation, then name
	Upgrades    []*opv1.NodeOpUpgrade
	Jobs        []*batchv1.Job              // of NodeOps
	OpPods      []*corev1.Pod               // of NodeOps and of their Jobs
	Workloads   map[string][]*corev1.Pod    // by node, of the nodes that are held; missing: not seen yet
	Refusals    map[types.UID]drain.Refusal // evictions that were refused, by pod
	Gates       map[string]gates.Result     // what health gates found, by policy
	Orphans     map[rollout.Ref]bool        // owners of holds that are proven gone
	Trouble     error                       // what could not be looked at; everything else here is true nevertheless
	Again       time.Time                   // when to observe again though nothing has changed; zero for never

	looked   time.Time           // when observing began
	sending  map[string]bool     // nodes that were in flight then
	words    map[types.UID]bool  // objects whose status was being written then: what was observed of them is about to change
	busy     map[rollout.Ref]int // rollouts for which, with the number past the orders that are on their way
	snapshot rollout.Snapshot    // as last made
	nodes    map[string]*skyhook.Node
	first    bool                              // nothing was observed before
	vanished []string                          // nodes that were there before
	compiled map[rollout.Ref]*skyhook.Compiled // by rollout; filled by Snapshot
	opConfig nodeop.Config
	opNodes  []*nodeop.Node // as Nodes
	opNode   map[string]*nodeop.Node
	ops      map[rollout.Ref]*nodeop.Compiled // by rollout; filled by Snapshot
}

// Problem is something wrong with one object. It never stops the others.
type Problem struct {
	Rollout rollout.Ref
	Text    string
}

// Outcome says what became of a plan.
type Outcome struct {
	Done   []Deeds                // carried out, and known to be since the last outcome
	Undone map[rollout.Ref]bool   // rollouts whose reports are not true, because they were not admitted or not worked on
	Failed map[rollout.Ref]string // by rollout: the first error
	Again  time.Time              // when to try again what failed or was put off; zero for never
}

// Deeds are actions that were carried out, those of one node in order, and what they were decided from.
type Deeds struct {
	From    *Objects
	Actions []rollout.Action
}

// Actions are all that was carried out.
func (o Outcome) Actions() []rollout.Action {
	var out []rollout.Action
	for _, d := range o.Done {
		out = append(out, d.Actions...)
	}
	return out
}

// Sending says that the node was in flight when this was observed: nothing is decided about it.
func (o *Objects) Sending(node string) bool { return o.sending[node] }

// sends says that something was being sent for a rollout when this was observed.
func (o *Objects) sends(name rollout.Ref) bool {
	_, ok := o.busy[name]
	return ok
}

// Decided is what was decided about: what Snapshot made of these objects.
func (o *Objects) Decided() rollout.Snapshot { return o.snapshot }

// New makes a Cluster that has seen nothing yet. Its first look is at the API server itself.
func New(o Options) *Cluster {
	if o.Workloads == nil {
		o.Workloads = listed{o.Live}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Parallel == 0 {
		o.Parallel = 16
	}
	if o.Creating == nil {
		o.Creating = func(string) {}
	}
	return &Cluster{
		options: o, writes: writecache.NewSet(o.Clock), refusals: drain.NewRefusals(), parsed: map[string]*skyhook.Node{},
		defined: map[types.UID]definition{}, missing: map[rollout.Ref]time.Time{}, flights: newFlights(o.Parallel),
		ledgers: map[rollout.Ref]time.Time{},
	}
}

// Observe looks at a cluster once, through a plain client.
func Observe(ctx context.Context, r client.Reader, config skyhook.Config) (*Objects, error) {
	return New(Options{Live: r, Config: config}).Observe(ctx)
}
