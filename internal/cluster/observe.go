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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// Observe lists what a decision needs. What it gives contains everything written through this Cluster before; the
// first look reads the API server itself, so that it contains what any other operator wrote before it stopped.
func (c *Cluster) Observe(ctx context.Context) (*Objects, error) {
	now, looked := c.options.Clock(), time.Now()
	sending, busy, words := c.flights.sending() // before looking: what lands meanwhile may be seen in part
	seen, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	o := &Objects{
		Config: c.options.Config, Self: c.options.Self, looked: looked, sending: sending, busy: busy, words: words,
		Nodes: c.writes.Nodes.Merge(seen.nodes), Pods: c.writes.Pods.Merge(seen.pods), ConfigMaps: c.writes.ConfigMaps.Merge(seen.configMaps),
		Skyhooks: c.writes.Skyhooks.Merge(seen.skyhooks), Policies: c.writes.Policies.Merge(seen.policies),
		NodeOps: c.writes.NodeOps.Merge(seen.nodeOps), Upgrades: c.writes.Upgrades.Merge(seen.upgrades),
		Jobs: c.writes.Jobs.Merge(seen.jobs), OpPods: c.writes.OpPods.Merge(seen.opPods), opConfig: c.options.NodeOps,
		nodes: make(map[string]*skyhook.Node, len(seen.nodes)),
	}
	if o.Again, err = c.writes.Confirm(ctx, c.options.Live); err != nil {
		return nil, err
	}
	o.sort()
	c.viewNodes(o)
	c.notice(o)
	o.Definitions = c.definitions(o.ConfigMaps)
	unproven := o.unprovenNodes()
	var listErr error
	o.Workloads, listErr = c.options.Workloads.On(ctx, o.nodesOfInterest(unproven))
	o.Trouble = errors.Join(c.findOrphans(ctx, o, now), listErr, c.checkGates(ctx, o, unproven, now))
	o.Refusals = c.refusals.Of(o.workloadUIDs())
	return o, nil
}

// look lists everything. The first time it looks at the API server itself, and keeps what the cache does not know yet;
// and so it does with nodes whenever somebody asks for something new.
func (c *Cluster) look(ctx context.Context) (*lists, error) {
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
		err = c.learn(ctx, cached)
	case anew(asked, c.asked):
		err = c.learnNodes(ctx, cached.nodes)
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
func (c *Cluster) learn(ctx context.Context, cached *lists) error {
	live, err := c.list(ctx, c.options.Live, page)
	if err != nil {
		return err
	}
	c.writes.Nodes.AddLive(live.nodes, cached.nodes)
	c.writes.Pods.AddLive(live.pods, cached.pods)
	c.writes.ConfigMaps.AddLive(live.configMaps, cached.configMaps)
	c.writes.Skyhooks.AddLive(live.skyhooks, cached.skyhooks)
	c.writes.Policies.AddLive(live.policies, cached.policies)
	c.writes.NodeOps.AddLive(live.nodeOps, cached.nodeOps)
	c.writes.Upgrades.AddLive(live.upgrades, cached.upgrades)
	c.writes.Jobs.AddLive(live.jobs, cached.jobs)
	c.writes.OpPods.AddLive(live.opPods, cached.opPods)
	return nil
}

// learnNodes looks at the nodes. Who labels a node and then asks for something expects it to be done with that label; but
// a cache may show what was asked for before it shows the node.
func (c *Cluster) learnNodes(ctx context.Context, cached []*skyhook.Node) error {
	live, err := c.listNodes(ctx, c.options.Live, page)
	if err != nil {
		return err
	}
	shown := make([]*skyhook.Node, len(cached))
	for i, n := range cached {
		shown[i] = c.newest(n)
	}
	c.writes.Nodes.AddLive(live, shown)
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

// nodesOfInterest are the nodes that have a hold of ours, because only they are about to be disrupted, and those on which
// a health gate needs a pod.
func (o *Objects) nodesOfInterest(unproven map[string][]*corev1.Node) []string {
	isUnproven := map[string]bool{}
	for _, nodes := range unproven {
		for _, n := range nodes {
			isUnproven[n.Name] = true
		}
	}
	var out []string
	for _, n := range o.Nodes {
		if len(skyhook.Holds(n)) > 0 || nodeop.Busy(o.opNode[n.Name]) || isUnproven[n.Name] {
			out = append(out, n.Name)
		}
	}
	return out
}

func (o *Objects) workloadUIDs() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, pods := range o.Workloads {
		for _, p := range pods {
			uids[p.UID] = true
		}
	}
	return uids
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
