// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// visit is what was seen of one node: from its admission until it is given back, and how long it was cordoned.
type visit struct {
	began, ended     time.Time
	cordoned, opened time.Time
}

func (v visit) duration() time.Duration { return v.ended.Sub(v.began) }

// held is how long the node was cordoned.
func (v visit) held() time.Duration { return v.opened.Sub(v.cordoned) }

// stopwatch follows the nodes of one Skyhook.
type stopwatch struct {
	skyhook string
	done    chan struct{} // closed when all nodes are given back

	mu     sync.Mutex
	visits map[string]*visit
}

func newStopwatch(skyhook string, nodes []string) *stopwatch {
	s := &stopwatch{skyhook: skyhook, done: make(chan struct{}), visits: map[string]*visit{}}
	for _, n := range nodes {
		s.visits[n] = &visit{}
	}
	return s
}

// see notes what a node looks like now.
func (s *stopwatch) see(n *corev1.Node, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[n.Name]
	if v == nil {
		return
	}
	status := v1alpha1.Status(n.Annotations[v1alpha1.PrefixStatus+s.skyhook])
	isHeld := n.Spec.Unschedulable
	switch {
	case v.began.IsZero() && (status == v1alpha1.StatusInProgress || n.Annotations[v1alpha1.PrefixCordon+s.skyhook] == "true"):
		v.began = now
	case v.began.IsZero():
		return
	}
	if isHeld && v.cordoned.IsZero() {
		v.cordoned = now
	}
	if !isHeld && !v.cordoned.IsZero() && v.opened.IsZero() {
		v.opened = now
	}
	if status != v1alpha1.StatusComplete || isHeld || !v.ended.IsZero() {
		return
	}
	v.ended = now
	for _, other := range s.visits {
		if other.ended.IsZero() {
			return
		}
	}
	close(s.done)
}

// ended returns the visits in the order of the nodes' names.
func (s *stopwatch) list() (out []visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.visits {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, *s.visits[name])
	}
	return out
}

// measure runs one Skyhook on both nodes and returns their visits. Each has a name of its own, so that neither nodes nor hosts know it.
func (c *testCluster) measure(ctx context.Context, r result, number int, limit time.Duration) ([]visit, error) {
	if r.images == cold {
		if err := c.removeImages(ctx); err != nil {
			return nil, err
		}
	}
	name := strings.ToLower(fmt.Sprintf("%s-%s-%s-%d", r.kind, r.layout, r.images, number))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	clock := newStopwatch(name, measuredNodes)
	if c.verbose {
		if err := c.printContainers(ctx); err != nil {
			return nil, err
		}
	}
	nodes := informers.NewSharedInformerFactory(c.client, 0).Core().V1().Nodes().Informer()
	see := func(o any) {
		if n, isNode := o.(*corev1.Node); isNode {
			clock.see(n, time.Now())
		}
	}
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, n any) { see(n) }}); err != nil {
		return nil, err
	}
	go nodes.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
		return nil, fmt.Errorf("listing nodes: %w", ctx.Err())
	}
	if _, err := c.kubectl(ctx, manifest(name, r.kind), "apply", "-f", "-"); err != nil {
		return nil, err
	}
	select {
	case <-clock.done:
	case <-ctx.Done():
		why, _ := c.kubectl(context.WithoutCancel(ctx), "", "get", "skyhook", name, "-o", "jsonpath={.status.status}: {.status.conditions}")
		return nil, fmt.Errorf("skyhook %s did not complete within %s: %s", name, limit, why)
	}
	_, err := c.kubectl(ctx, "", "delete", "skyhook", name, "--timeout=5m")
	return clock.list(), err
}

// printContainers prints when a container of a stage is seen in another state, until ctx ends.
func (c *testCluster) printContainers(ctx context.Context) error {
	begin, seen := time.Now(), map[string]string{}
	see := func(o any) {
		p, isPod := o.(*corev1.Pod)
		if !isPod || !slices.Contains(measuredNodes, p.Spec.NodeName) {
			return
		}
		for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			state := "waits"
			switch {
			case status.State.Running != nil:
				state = "runs"
			case status.State.Terminated != nil:
				state = fmt.Sprintf("ended with %d", status.State.Terminated.ExitCode)
			}
			if key := string(p.UID) + "/" + status.Name; seen[key] != state {
				seen[key] = state
				fmt.Fprintf(c.progress, "  +%6.2f s %s %s %s %s\n", time.Since(begin).Seconds(), p.Spec.NodeName, p.Name, status.Name, state)
			}
		}
	}
	pods := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace)).Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, p any) { see(p) }})
	go pods.RunWithContext(ctx)
	return err
}
