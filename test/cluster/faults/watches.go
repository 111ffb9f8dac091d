// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"regexp"
	"sync"
)

// watches are the watches that pass through the proxy, and how to end each.
type watches struct {
	mu   sync.Mutex
	open map[*watch]bool
}

type watch struct {
	user string
	end  context.CancelFunc
}

// add returns a context that ends with the watch.
func (w *watches) add(ctx context.Context, user string) (context.Context, func()) {
	ctx, end := context.WithCancel(ctx)
	one := &watch{user: user, end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[*watch]bool{}
	}
	w.open[one] = true
	return ctx, func() {
		end()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, one)
	}
}

// CutWatches ends the watches of users whose name matches, as a lost connection does, and returns how many there were.
func (p *Proxy) CutWatches(user *regexp.Regexp) int {
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	n := 0
	for one := range p.watches.open {
		if user.MatchString(one.user) {
			one.end()
			n++
		}
	}
	return n
}
