// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

// observer lists what a decision needs. It remembers what it parsed, and what it saw before.
type observer struct {
	options  *Options
	writes   *writecache.Set
	inFlight *inFlight
	refusals *drain.Refusals
	gates    *gates.Checker

	generations map[types.UID]int64       // of the objects when nodes were last listed live; nil before the first time
	parsed      map[string]*skyhook.Node  // by name
	definitions map[types.UID]definition  // by ConfigMap
	views       map[string]view           // of nodes, as NodeOps see them
	missing     map[rollout.Ref]time.Time // owners of holds that were not found, and when that was seen first
	names       map[string]bool           // nodes that existed at the last time; nil before the first
}

// Observe lists what a decision needs. The result contains everything that was written through this Cluster before. The
// first time it reads the API server itself, so that it contains what any other operator wrote before it stopped.
func (v *observer) Observe(ctx context.Context) (*Objects, error) {
	now := v.options.Clock()
	o := &Objects{
		Config: v.options.Config, Self: v.options.Self, opConfig: v.options.NodeOps, observedAt: time.Now(),
		inFlight: v.inFlight.view(), // before listing: what completes meanwhile may be seen in part
	}
	listed, err := v.listAll(ctx)
	if err != nil {
		return nil, err
	}
	o.Nodes, o.Pods, o.ConfigMaps = v.writes.Nodes.Merge(listed.nodes), v.writes.Pods.Merge(listed.pods), v.writes.ConfigMaps.Merge(listed.configMaps)
	o.Skyhooks, o.Policies = v.writes.Skyhooks.Merge(listed.skyhooks), v.writes.Policies.Merge(listed.policies)
	o.NodeOps, o.Upgrades = v.writes.NodeOps.Merge(listed.nodeOps), v.writes.Upgrades.Merge(listed.upgrades)
	o.Jobs, o.NodeOpPods = v.writes.Jobs.Merge(listed.jobs), v.writes.OpPods.Merge(listed.opPods)
	if o.RetryAt, err = v.writes.Confirm(ctx, v.options.Live); err != nil {
		return nil, err
	}
	o.sort()
	v.addNodeOpViews(o)
	v.findVanished(o)
	o.Definitions = v.parseDefinitions(o.ConfigMaps)
	unproven := o.unprovenNodes()
	var listErr error
	o.Workloads, listErr = v.options.Workloads.On(ctx, o.nodesOfInterest(unproven))
	o.Err = errors.Join(v.findOrphans(ctx, o, now), listErr, v.checkGates(ctx, o, unproven, now))
	o.Refusals = v.refusals.Of(o.workloadUIDs())
	return o, nil
}

// listAll lists everything from the cache, or from the API server itself where there is none. The first time it keeps what
// the API server knows better than the cache, and so it does with nodes whenever somebody changes a spec: who labels a node
// and then asks for something expects it to be done with that label, but caches may show the spec before the node.
func (v *observer) listAll(ctx context.Context) (*lists, error) {
	if v.options.Cached == nil {
		return v.list(ctx, v.options.Live, pageSize)
	}
	cached, err := v.list(ctx, v.options.Cached, 0)
	if err != nil {
		return nil, err
	}
	generations := cached.generations()
	switch {
	case v.generations == nil:
		err = v.addLive(ctx, cached)
	case hasNewGeneration(generations, v.generations):
		err = v.addLiveNodes(ctx, cached.nodes)
	}
	if err != nil {
		return nil, fmt.Errorf("listing from the API server itself: %w", err)
	}
	v.generations = generations
	return cached, nil
}

// generations are those of the objects in which people ask for something.
func (l *lists) generations() map[types.UID]int64 {
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

func hasNewGeneration(generations, before map[types.UID]int64) bool {
	for uid, generation := range generations {
		if was, ok := before[uid]; !ok || was != generation {
			return true
		}
	}
	return false
}

func (v *observer) addLive(ctx context.Context, cached *lists) error {
	live, err := v.list(ctx, v.options.Live, pageSize)
	if err != nil {
		return err
	}
	v.writes.Nodes.AddLive(live.nodes, cached.nodes)
	v.writes.Pods.AddLive(live.pods, cached.pods)
	v.writes.ConfigMaps.AddLive(live.configMaps, cached.configMaps)
	v.writes.Skyhooks.AddLive(live.skyhooks, cached.skyhooks)
	v.writes.Policies.AddLive(live.policies, cached.policies)
	v.writes.NodeOps.AddLive(live.nodeOps, cached.nodeOps)
	v.writes.Upgrades.AddLive(live.upgrades, cached.upgrades)
	v.writes.Jobs.AddLive(live.jobs, cached.jobs)
	v.writes.OpPods.AddLive(live.opPods, cached.opPods)
	return nil
}

func (v *observer) addLiveNodes(ctx context.Context, cached []*skyhook.Node) error {
	live, err := v.listNodes(ctx, v.options.Live, pageSize)
	if err != nil {
		return err
	}
	shown := make([]*skyhook.Node, len(cached))
	for i, n := range cached {
		shown[i] = v.options.newestVersion(n)
	}
	v.writes.Nodes.AddLive(live, shown)
	return nil
}

// findVanished notes which nodes are gone since the last time.
func (v *observer) findVanished(o *Objects) {
	o.isFirst = v.names == nil
	for name := range v.names {
		if o.nodes[name] == nil && !o.inFlight.nodes[name] {
			o.vanished = append(o.vanished, name)
		}
	}
	v.names = maps.Clone(o.inFlight.nodes) // nodes in flight count as gone when they have completed
	for _, n := range o.Nodes {
		v.names[n.Name] = true
	}
}

// definition is a frozen definition and the version of the ConfigMap it was read from.
type definition struct {
	version string
	parsed  *skyhook.Definition // nil when the ConfigMap is none
}

// parseDefinitions parses the frozen definitions, each once.
func (v *observer) parseDefinitions(maps []*corev1.ConfigMap) map[string]*skyhook.Definition {
	known := make(map[types.UID]definition, len(maps))
	out := map[string]*skyhook.Definition{}
	for _, m := range maps {
		d, ok := v.definitions[m.UID]
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
	v.definitions = known
	return out
}
