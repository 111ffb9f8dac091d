// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package nodepool hands out nodes to tests that run side by side, so that no two have the same node at the same time.
package nodepool

import (
	"slices"
	"sync"
)

// Pool is a set of nodes. It hands out none before it is opened.
type Pool struct {
	mu      sync.Mutex
	size    int
	free    []string
	owners  map[string]string // of each node that is handed out
	waiting []*Request        // those for more nodes first, then in the order in which they were queued
	granted []*Request
}

// Request is the wish of a test for nodes.
type Request struct {
	pool  *Pool
	test  string
	count int
	nodes []string
	ready chan struct{}
}

// Queue adds the request of a test for nodes. Requests that are queued before the pool is opened are served in an order that does not
// depend on when the tests begin to wait: those for more nodes first, then those that were queued first.
func (p *Pool) Queue(test string, count int) *Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Request{pool: p, test: test, count: count, ready: make(chan struct{})}
	p.waiting = append(p.waiting, r)
	slices.SortStableFunc(p.waiting, func(a, b *Request) int { return b.count - a.count })
	p.grant()
	return r
}

// Open puts the nodes into the pool. Requests for more nodes than that are never granted.
func (p *Pool) Open(nodes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size, p.free, p.owners = len(nodes), slices.Clone(nodes), map[string]string{}
	p.grant()
}

// Owner returns the test that has a node, or nothing.
func (p *Pool) Owner(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owners[node]
}

// Wait returns the nodes when the request is granted.
func (r *Request) Wait() []string {
	<-r.ready
	return slices.Clone(r.nodes)
}

// Release gives the nodes back.
func (r *Request) Release() {
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range r.nodes {
		delete(p.owners, n)
	}
	p.free = append(p.free, r.nodes...)
	p.granted = slices.DeleteFunc(p.granted, func(other *Request) bool { return other == r })
	p.grant()
}

// grant grants every request that has its turn.
func (p *Pool) grant() {
	for _, r := range slices.Clone(p.waiting) {
		if r.count > len(p.free) || p.delaysLarger(r) {
			continue
		}
		r.nodes, p.free = slices.Clone(p.free[:r.count]), p.free[r.count:]
		for _, n := range r.nodes {
			p.owners[n] = r.test
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(other *Request) bool { return other == r })
		p.granted = append(p.granted, r)
		close(r.ready)
	}
}

// delaysLarger reports whether a waiting request for more nodes would have to wait for this one too: smaller requests leave it the nodes
// that it needs, or they would pass it for ever.
func (p *Pool) delaysLarger(r *Request) bool {
	for _, larger := range p.waiting {
		if larger.count <= r.count || larger.count > p.size {
			continue
		}
		smaller := r.count
		for _, other := range p.granted {
			if other.count < larger.count {
				smaller += other.count
			}
		}
		if smaller > p.size-larger.count {
			return true
		}
	}
	return false
}
