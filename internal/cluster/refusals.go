// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// maxRefusalText bounds the text of the API server in reasons.
const maxRefusalText = 300

// refusalMemory is how long a refused or failed request is remembered that nobody has repeated.
const refusalMemory = time.Hour

// errForeign means that an object of a name that is needed belongs to somebody else.
var errForeign = errors.New("it belongs to somebody else")

// isRefused reports whether the API server or an admission policy refuses a request for what it says: repeated at once it
// would be refused again. A conflict, an object that is gone, throttling, a timeout and an unknown sender say nothing about
// the request. An object that etcd does not take is answered as an error of the server.
func isRefused(err error) bool {
	if errors.Is(err, errForeign) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500 || isTooLarge(status.Status().Message)
	}
}

// isTooLarge reports whether an error of the API server says that an object is too large for etcd, or for the message to it.
func isTooLarge(message string) bool {
	return strings.Contains(message, "request is too large") || strings.Contains(message, "message larger than max")
}

// request names what is repeated after it was refused. Its fields are empty where they do not apply.
type request struct {
	rollout    rollout.Ref
	generation int64 // of the rollout's object: after an edit everything is tried again
	node       string
	task       string
	object     string
}

// refusals remembers refused requests. Losing them costs one more attempt of each.
type refusals struct {
	mu       sync.Mutex
	requests map[request]node.Refusal
}

func newRefusals() *refusals { return &refusals{requests: map[request]node.Refusal{}} }

// add records one more refusal.
func (r *refusals) add(q request, err error, now time.Time) node.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimSuffix(strings.TrimSpace(err.Error()), ".")
	refused := node.Refusal{Text: node.Truncate(text, maxRefusalText), At: now, Count: r.requests[q].Count + 1}
	r.requests[q] = refused
	return refused
}

// remove forgets a request that was accepted, or whose outcome is unknown.
func (r *refusals) remove(q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.requests, q)
}

// isWaiting reports whether a request was refused a moment ago, and until when it is not repeated.
func (r *refusals) isWaiting(q request, now time.Time) (until time.Time, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused, ok := r.requests[q]
	until = refused.RetryAt()
	return until, ok && now.Before(until)
}

// view returns what is remembered, and forgets what nobody has repeated for long.
func (r *refusals) view(now time.Time) map[request]node.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.requests, func(_ request, refused node.Refusal) bool {
		return now.Sub(refused.At) > refusalMemory
	})
	return maps.Clone(r.requests)
}

// try makes a request unless it was refused a moment ago. A refusal is remembered and is not returned as an error.
func (p *pass) try(q request, send func() error) (isAccepted bool, err error) {
	if until, waits := p.refused.isWaiting(q, p.now); waits {
		p.inFlight.retry(until)
		return false, nil
	}
	err = send()
	if isRefused(err) {
		p.inFlight.recordRefusal(q.rollout, p.refused.add(q, err, p.now))
		return false, nil
	}
	p.refused.remove(q)
	return err == nil, err
}
