// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
)

// Refusal is an eviction that was refused, and when it is tried again.
type Refusal struct {
	Why     string // a sentence without a full stop; empty when the eviction was accepted and is not to be repeated at once
	Denied  bool   // by an admission policy, not by a disruption budget
	RetryAt time.Time
}

// maxRefusalWait bounds the wait after a refused eviction, whatever the API server asks for.
const maxRefusalWait = 30 * time.Second

// Refusals remembers refused evictions. Losing them costs one eviction too early.
type Refusals struct {
	backoff *flowcontrol.Backoff

	mu   sync.Mutex
	pods map[types.UID]Refusal
}

// NewRefusals remembers nothing yet.
func NewRefusals() *Refusals {
	backoff := flowcontrol.NewBackOff(5*time.Second, maxRefusalWait)
	backoff.HasExpiredFunc = func(time.Time, time.Time, time.Duration) bool { return false } // Of forgets pods that are gone
	return &Refusals{backoff: backoff, pods: map[types.UID]Refusal{}}
}

// Add records one more refusal. The server may ask for a longer wait than the backoff gives.
func (r *Refusals) Add(pod types.UID, refused Refusal, retryAfter time.Duration, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backoff.Next(string(pod), now)
	refused.RetryAt = now.Add(max(r.backoff.Get(string(pod)), min(retryAfter, maxRefusalWait)))
	r.pods[pod] = refused
}

// AddAccepted records that an eviction was accepted, so that it is not repeated before the pod can be seen to leave.
func (r *Refusals) AddAccepted(pod types.UID, now time.Time) { r.Add(pod, Refusal{}, 0, now) }

// Of returns the refusals of the pods that still exist, and forgets the others.
func (r *Refusals) Of(exists map[types.UID]bool) map[types.UID]Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pod := range r.pods {
		if !exists[pod] {
			delete(r.pods, pod)
			r.backoff.DeleteEntry(string(pod))
		}
	}
	return maps.Clone(r.pods)
}
