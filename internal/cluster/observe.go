// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/cluster/drain"
	"github.com/skyhook-k8s/skyhook/internal/cluster/gates"
	"github.com/skyhook-k8s/skyhook/internal/cluster/writecache"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// observer lists what a decision needs. It remembers what it parsed, and what it saw before.
type observer struct {
	options      *Options
	writes       *writecache.Set
	inFlight     *inFlight
	refusals     *drain.Refusals
	refused      *refusals
	gates        *gates.Checker
	objectChecks *gates.ObjectChecker
	revisions    *revisions
	look         *lookList

	durations   *timing.Durations
	generations map[types.UID]int64       // of the objects when nodes were last listed live; nil before the first time
	parsed      map[string]*node.Node     // by name
	definitions map[types.UID]definition  // by ConfigMap
	missing     map[rollout.Ref]time.Time // owners of holds that were not found, and when that was seen first
	existing    []*node.Node              // nodes that existed at the last time
	places      map[string]int            // their places, by name; nil before the first time
	ordered     []*node.Node              // the cached nodes of the last time, in their order
	ranks       map[string]int            // their places
	leaving     map[string]bool           // nodes that were in flight then
	podOrder    podOrder
	pods        versions[corev1.Pod]
}

// Observe lists what a decision needs. The result contains everything that was written through this Cluster before. The
// first time it reads the API server itself, so that it contains what any other operator wrote before it stopped.
func (v *observer) Observe(ctx context.Context) (*Objects, error) {
	now := v.options.Clock()
	v.inFlight.forgetOld(now)
	inFlight, observedAt := v.inFlight.view(), time.Now() // before listing: what completes meanwhile may be seen in part
	lists, err := v.listAll(ctx)
	if err != nil {
		return nil, err
	}
	o := &Objects{
		Config: v.options.Config, Self: v.options.Self, Lists: *lists,
		observedAt: observedAt, opConfig: v.options.NodeOps, inFlight: inFlight, durations: v.durations,
	}
	if !o.arePodsStored { // in a store pointers are the same as long as nothing changes
		v.pods = keepVersions(v.pods, o.Pods)
	}
	v.mergeWrites(&o.Lists)
	if o.RetryAt, err = v.writes.Confirm(ctx, v.options.Live); err != nil {
		return nil, err
	}
	o.Pods = v.podOrder.sort(o.Pods)
	o.sort()
	o.chooseProfiles()
	o.indexNodes(v.existing, v.places)
	v.findVanished(o)
	o.Definitions = v.parseDefinitions(o.ConfigMaps)
	proving := findProvingNodes(o)
	var listErr error
	o.Workloads, listErr = v.options.Workloads.On(ctx, nodesOfInterest(o, proving, v.look.nodes))
	o.revisions = v.revisions
	v.checkGates(ctx, o, now)
	o.Err = errors.Join(v.findOrphans(ctx, o, now), listErr, v.revisions.load(ctx, v.options), v.checkProofs(ctx, o, proving, now))
	o.Refusals = v.refusals.Of(workloadUIDs(o.Workloads))
	v.addRefused(o, now)
	return o, nil
}

// listAll lists everything from the cache, or from the API server itself where there is none. The first time it keeps what
// the API server knows better than the cache, and so it does with nodes whenever a spec changes: who labels a node and then
// changes a spec expects both to count, but caches may show the spec before the label.
func (v *observer) listAll(ctx context.Context) (*Lists, error) {
	if v.options.Cached == nil {
		return v.list(ctx, v.options.Live, pageSize)
	}
	cached, err := v.list(ctx, v.options.Cached, 0)
	if err != nil {
		return nil, err
	}
	generations := generationsOf(cached)
	switch {
	case v.generations == nil:
		err = v.addLive(ctx, cached)
	case hasNewGeneration(generations, v.generations):
		err = v.addLiveNodes(ctx, cached.Nodes)
	}
	if err != nil {
		return nil, fmt.Errorf("listing from the API server itself: %w", err)
	}
	v.generations = generations
	return cached, nil
}

// generationsOf returns the generations of the objects in which people ask for something.
func generationsOf(o *Lists) map[types.UID]int64 {
	out := make(map[types.UID]int64, len(o.Skyhooks)+len(o.NodeOps)+len(o.Upgrades))
	for _, s := range o.Skyhooks {
		out[s.UID] = s.Generation
	}
	for _, op := range o.NodeOps {
		out[op.UID] = op.Generation
	}
	for _, u := range o.Upgrades {
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

// mergeWrites adds our own last writes.
func (v *observer) mergeWrites(o *Lists) {
	w := v.writes
	o.Nodes, o.Pods, o.ConfigMaps = w.Nodes.Merge(o.Nodes), w.Pods.Merge(o.Pods), w.ConfigMaps.Merge(o.ConfigMaps)
	o.Skyhooks, o.Policies = w.Skyhooks.Merge(o.Skyhooks), w.Policies.Merge(o.Policies)
	o.NodeOps, o.Upgrades = w.NodeOps.Merge(o.NodeOps), w.Upgrades.Merge(o.Upgrades)
	o.Jobs, o.NodeOpPods = w.Jobs.Merge(o.Jobs), w.OpPods.Merge(o.NodeOpPods)
}

func (v *observer) addLive(ctx context.Context, cached *Lists) error {
	live, err := v.list(ctx, v.options.Live, pageSize)
	if err != nil {
		return err
	}
	v.writes.Nodes.AddLive(live.Nodes, cached.Nodes)
	v.writes.Pods.AddLive(live.Pods, cached.Pods)
	v.writes.ConfigMaps.AddLive(live.ConfigMaps, cached.ConfigMaps)
	v.writes.Skyhooks.AddLive(live.Skyhooks, cached.Skyhooks)
	v.writes.Policies.AddLive(live.Policies, cached.Policies)
	v.writes.NodeOps.AddLive(live.NodeOps, cached.NodeOps)
	v.writes.Upgrades.AddLive(live.Upgrades, cached.Upgrades)
	v.writes.Jobs.AddLive(live.Jobs, cached.Jobs)
	v.writes.OpPods.AddLive(live.NodeOpPods, cached.NodeOpPods)
	return nil
}

func (v *observer) addLiveNodes(ctx context.Context, cached []*node.Node) error {
	live, err := v.listNodes(ctx, v.options.Live, pageSize)
	if err != nil {
		return err
	}
	v.writes.Nodes.AddLive(live, cached)
	return nil
}

// findVanished notes which nodes are gone since the last time.
func (v *observer) findVanished(o *Objects) {
	o.isFirst = v.places == nil
	isGone := func(name string) bool { return o.Node(name) == nil && !o.inFlight.nodes[name] }
	for _, n := range v.existing {
		if isGone(n.Name) {
			o.vanished = append(o.vanished, n.Name)
		}
	}
	for name := range v.leaving { // nodes in flight count as gone when they have completed
		if _, existed := v.places[name]; !existed && isGone(name) {
			o.vanished = append(o.vanished, name)
		}
	}
	v.existing, v.places, v.leaving = o.Nodes, o.places, o.inFlight.nodes
}

// lookList has the nodes whose pods the last plan asked for. It may be lost: then the next plan asks again.
type lookList struct{ nodes []string }

// set replaces the list, and reports whether it has a node that it had not.
func (l *lookList) set(nodes []string) (hasNew bool) {
	before := l.nodes
	l.nodes = nodes
	return slices.ContainsFunc(nodes, func(n string) bool { return !slices.Contains(before, n) })
}

// nodesOfInterest are the nodes that have a hold of ours, because only they are about to be disrupted, those on which a
// proof needs a pod, and last those that the engine looks at.
func nodesOfInterest(o *Objects, proving map[rollout.Ref]provingNodes, look []string) []string {
	isProving := map[string]bool{}
	for _, need := range proving {
		if !need.proofs.NeedsPods() {
			continue
		}
		for _, n := range need.nodes {
			isProving[n.Name] = true
		}
	}
	var out []string
	isListed := make(map[string]bool, len(look))
	for _, n := range o.Nodes {
		if n.MayBeDrained() || isProving[n.Name] {
			isListed[n.Name] = true
			out = append(out, n.Name)
		}
	}
	for _, name := range look {
		if !isListed[name] && o.Node(name) != nil {
			out = append(out, name)
		}
	}
	return out
}

func workloadUIDs(workloads map[string][]*corev1.Pod) map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, pods := range workloads {
		for _, p := range pods {
			uids[p.UID] = true
		}
	}
	return uids
}

// definition is a frozen definition and the version of the ConfigMap it was read from.
type definition struct {
	version string
	parsed  *plan.Definition // nil when the ConfigMap is none
}

// parseDefinitions parses the frozen definitions, each once.
func (v *observer) parseDefinitions(maps []*corev1.ConfigMap) map[string]*plan.Definition {
	known := make(map[types.UID]definition, len(maps))
	out := map[string]*plan.Definition{}
	for _, m := range maps {
		d, ok := v.definitions[m.UID]
		if !ok || d.version != m.ResourceVersion {
			d = definition{version: m.ResourceVersion}
			if parsed, is := plan.ParseDefinition(m); is {
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
