// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Observe lists what a decision needs. What it gives contains everything written through this Cluster before; the
// first look reads the API server itself, so that it contains what any other operator wrote before it stopped.
func (c *Cluster) Observe(ctx context.Context) (*Objects, error) {
	now, looked := c.options.Clock(), time.Now()
	sending, busy, words := c.flights.sending() // before looking: what lands meanwhile may be seen in part
	seen, err := c.look(ctx, now)
	if err != nil {
		return nil, err
	}
	o := &Objects{
		Config: c.options.Config, Self: c.options.Self, looked: looked, sending: sending, busy: busy, words: words,
		Nodes: c.written.nodes.lay(seen.nodes), Pods: c.written.pods.lay(seen.pods), ConfigMaps: c.written.configMaps.lay(seen.configMaps),
		Skyhooks: c.written.skyhooks.lay(seen.skyhooks), Policies: c.written.policies.lay(seen.policies),
		NodeOps: c.written.nodeOps.lay(seen.nodeOps), Upgrades: c.written.upgrades.lay(seen.upgrades),
		Jobs: c.written.jobs.lay(seen.jobs), OpPods: c.written.opPods.lay(seen.opPods), opConfig: c.options.NodeOps,
		nodes: make(map[string]*skyhook.Node, len(seen.nodes)),
	}
	if o.Again, err = c.askAgain(ctx, now); err != nil {
		return nil, err
	}
	o.sort()
	c.viewNodes(o)
	c.notice(o)
	o.Definitions = c.definitions(o.ConfigMaps)
	var unseen error
	proving := o.proving()
	o.Workloads, unseen = c.options.Workloads.On(ctx, o.ofInterest(proving))
	o.Trouble = errors.Join(c.findOrphans(ctx, o, now), unseen, c.askGates(ctx, o, proving, now))
	o.Refusals = c.refusals.of(o.podExists())
	return o, nil
}

// look lists everything. The first time it looks at the API server itself, and keeps what the cache does not know yet;
// and so it does with nodes whenever somebody asks for something new.
func (c *Cluster) look(ctx context.Context, now time.Time) (*lists, error) {
	if c.options.Cached == nil {
		return c.list(ctx, c.options.Live, page)
	}
	cached, err := c.list(ctx, c.options.Cached, 0)
	if err != nil {
		return nil, err
	}
	asked := cached.asked()
	switch {
	case c.asked == nil:
		err = c.learn(ctx, cached, now)
	case anew(asked, c.asked):
		err = c.learnNodes(ctx, cached.nodes, now)
	}
	if err != nil {
		return nil, fmt.Errorf("looking at the API server itself: %w", err)
	}
	c.asked = asked
	return cached, nil
}

// asked is what people ask for: the generation of each object.
func (l *lists) asked() map[types.UID]int64 {
	out := make(map[types.UID]int64, len(l.skyhooks)+len(l.nodeOps)+len(l.upgrades))
	for _, s := range l.skyhooks {
		out[s.UID] = s.Generation
	}
	for _, o := range l.nodeOps {
		out[o.UID] = o.Generation
	}
	for _, u := range l.upgrades {
		out[u.UID] = u.Generation
	}
	return out
}

// anew says that something is asked for that was not asked for before.
func anew(asked, before map[types.UID]int64) bool {
	for uid, generation := range asked {
		if was, ok := before[uid]; !ok || was != generation {
			return true
		}
	}
	return false
}

// learn looks at everything.
func (c *Cluster) learn(ctx context.Context, cached *lists, now time.Time) error {
	live, err := c.list(ctx, c.options.Live, page)
	if err != nil {
		return err
	}
	c.written.nodes.learn(live.nodes, cached.nodes, now)
	c.written.pods.learn(live.pods, cached.pods, now)
	c.written.configMaps.learn(live.configMaps, cached.configMaps, now)
	c.written.skyhooks.learn(live.skyhooks, cached.skyhooks, now)
	c.written.policies.learn(live.policies, cached.policies, now)
	c.written.nodeOps.learn(live.nodeOps, cached.nodeOps, now)
	c.written.upgrades.learn(live.upgrades, cached.upgrades, now)
	c.written.jobs.learn(live.jobs, cached.jobs, now)
	c.written.opPods.learn(live.opPods, cached.opPods, now)
	return nil
}

// learnNodes looks at the nodes. Who labels a node and then asks for something expects it to be done with that label; but
// a cache may show what was asked for before it shows the node.
func (c *Cluster) learnNodes(ctx context.Context, cached []*skyhook.Node, now time.Time) error {
	live, err := c.listNodes(ctx, c.options.Live, page)
	if err != nil {
		return err
	}
	shown := make([]*skyhook.Node, len(cached))
	for i, n := range cached {
		shown[i] = c.newest(n)
	}
	c.written.nodes.learn(live, shown, now)
	return nil
}

// newest is a node with the newest version of it that says the same.
func (c *Cluster) newest(n *skyhook.Node) *skyhook.Node {
	if c.options.Newest == nil {
		return n
	}
	out := *n
	out.ResourceVersion = c.options.Newest(n.UID, n.ResourceVersion)
	return &out
}

// askAgain asks the API server about what we created and no cache shows: somebody may have deleted it at once. It says
// when to look again: at once if so, otherwise when the next of them becomes doubtful.
func (c *Cluster) askAgain(ctx context.Context, now time.Time) (time.Time, error) {
	var again time.Time
	for _, doubt := range []func() (time.Time, error){
		func() (time.Time, error) {
			return askAbout(ctx, c, &c.written.pods, func() *corev1.Pod { return &corev1.Pod{} }, now)
		},
		func() (time.Time, error) {
			return askAbout(ctx, c, &c.written.configMaps, func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, now)
		},
		func() (time.Time, error) {
			return askAbout(ctx, c, &c.written.jobs, func() *batchv1.Job { return &batchv1.Job{} }, now)
		},
		func() (time.Time, error) {
			return askAbout(ctx, c, &c.written.opPods, func() *corev1.Pod { return &corev1.Pod{} }, now)
		},
		func() (time.Time, error) {
			return askAbout(ctx, c, &c.written.nodeOps, func() *opv1.NodeOp { return &opv1.NodeOp{} }, now)
		},
	} {
		due, err := doubt()
		if err != nil {
			return time.Time{}, err
		}
		again = sooner(again, due)
	}
	return again, nil
}

func askAbout[T client.Object](ctx context.Context, c *Cluster, o *overlay[T], empty func() T, now time.Time) (again time.Time, err error) {
	objects, again := o.doubts(now)
	for _, known := range objects {
		exists, err := ask(ctx, c, o, known, empty(), now)
		if err != nil {
			return time.Time{}, err
		}
		if !exists {
			again = now
		}
	}
	return again, nil
}

func ask[T client.Object](ctx context.Context, c *Cluster, o *overlay[T], known, into T, now time.Time) (exists bool, err error) {
	err = c.options.Live.Get(ctx, client.ObjectKeyFromObject(known), into)
	switch {
	case apierrors.IsNotFound(err):
		o.forget(o.of(known))
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s/%s: %w", known.GetNamespace(), known.GetName(), err)
	}
	o.put(into, true, now)
	return true, nil
}

// sort puts everything in a total order.
func (o *Objects) sort() {
	slices.SortFunc(o.Nodes, func(a, b *skyhook.Node) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for _, n := range o.Nodes {
		o.nodes[n.Name] = n
	}
	slices.SortFunc(o.Skyhooks, func(a, b *v1alpha1.Skyhook) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(o.Policies, func(a, b *v1alpha1.DeploymentPolicy) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(o.ConfigMaps, func(a, b *corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
}

// notice tells which nodes are gone since the last look.
func (c *Cluster) notice(o *Objects) {
	o.first = c.names == nil
	for name := range c.names {
		if o.nodes[name] == nil && !o.sending[name] {
			o.vanished = append(o.vanished, name)
		}
	}
	c.names = maps.Clone(o.sending) // of these it is noticed when they have landed
	for _, n := range o.Nodes {
		c.names[n.Name] = true
	}
}

// ofInterest lists the nodes on which somebody has a hold of ours, which are the only ones that are about to be disrupted,
// and those that have to prove themselves with a pod.
func (o *Objects) ofInterest(proving map[string]map[string]bool) []string {
	var out []string
	for _, n := range o.Nodes {
		if len(skyhook.Holds(n)) > 0 || nodeop.Busy(o.opNode[n.Name]) || proves(proving, n.Name) {
			out = append(out, n.Name)
		}
	}
	return out
}

func (o *Objects) podExists() func(types.UID) bool {
	uids := map[types.UID]bool{}
	for _, pods := range o.Workloads {
		for _, p := range pods {
			uids[p.UID] = true
		}
	}
	return func(uid types.UID) bool { return uids[uid] }
}

// definition is a frozen definition and the version of the ConfigMap it was read from.
type definition struct {
	version string
	parsed  *skyhook.Definition // nil when the ConfigMap is none
}

// definitions reads the frozen definitions, each once.
func (c *Cluster) definitions(maps []*corev1.ConfigMap) map[string]*skyhook.Definition {
	known := make(map[types.UID]definition, len(maps))
	out := map[string]*skyhook.Definition{}
	for _, m := range maps {
		d, ok := c.defined[m.UID]
		if !ok || d.version != m.ResourceVersion {
			d = definition{version: m.ResourceVersion}
			if parsed, is := skyhook.ParseDefinition(m); is {
				d.parsed = parsed
			}
		}
		known[m.UID] = d
		if d.parsed != nil {
			out[d.parsed.Hash] = d.parsed
		}
	}
	c.defined = known
	return out
}
