// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Refusal is an eviction that was refused, and when it is tried again.
type Refusal struct {
	Why     string // a sentence without a full stop; empty when it was accepted, and is not to be repeated at once
	RetryAt time.Time
}

// The wait after a refused eviction doubles from shortestRefusal to longestRefusal.
const (
	shortestRefusal = 5 * time.Second
	longestRefusal  = 30 * time.Second
)

// refusals remembers refused evictions. Losing them costs one eviction too early.
type refusals struct {
	mu    sync.Mutex
	pods  map[types.UID]Refusal
	waits map[types.UID]time.Duration
}

// note remembers one more refusal, and waits longer than after the one before. The server may ask for more.
func (r *refusals) note(pod types.UID, why string, asked time.Duration, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods == nil {
		r.pods, r.waits = map[types.UID]Refusal{}, map[types.UID]time.Duration{}
	}
	wait := max(shortestRefusal, min(2*r.waits[pod], longestRefusal))
	r.waits[pod] = wait
	r.pods[pod] = Refusal{Why: why, RetryAt: now.Add(max(wait, min(asked, longestRefusal)))}
}

// accepted remembers that a pod was told to go, so that nobody tells it again before it can be seen to leave.
func (r *refusals) accepted(pod types.UID, now time.Time) {
	r.note(pod, "", 0, now)
}

// of gives the refusals of pods that still exist, and forgets the others.
func (r *refusals) of(exists func(types.UID) bool) map[types.UID]Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pod := range r.pods {
		if !exists(pod) {
			delete(r.pods, pod)
			delete(r.waits, pod)
		}
	}
	return maps.Clone(r.pods)
}
