// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"
	"time"
)

// After an error a node is left alone, from shortestStumble doubling to longestStumble.
const (
	shortestStumble = time.Second
	longestStumble  = 30 * time.Second
)

// stumbles remembers which nodes could not be worked on a moment ago, so that one that fails again and again costs
// nothing to the others.
type stumbles struct {
	mu    sync.Mutex
	nodes map[string]stumble
}

type stumble struct {
	until time.Time
	wait  time.Duration
}

func (s *stumbles) until(node string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].until
}

func (s *stumbles) note(node string, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string]stumble{}
	}
	wait := max(shortestStumble, min(2*s.nodes[node].wait, longestStumble))
	s.nodes[node] = stumble{until: now.Add(wait), wait: wait}
	return now.Add(wait)
}

func (s *stumbles) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
}
