// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strconv"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Refusal is a request that the API server or an admission policy has refused.
type Refusal struct {
	Text  string    // a sentence without a full stop
	At    time.Time // of the last attempt
	Count int       // attempts that were refused in a row
}

// What stands for pods that belong to no task where tasks are named: the one that checks a node, and the one that pulls images
// before their turn.
const (
	TaskCheck = "check"
	TaskPull  = "prepull"
)

// RetryAt is when the request is tried again.
func (r Refusal) RetryAt() time.Time { return r.At.Add(rollout.Backoff(r.Count)) }

// Why is the reason of what waits for the request.
func (r Refusal) Why() rollout.Why {
	text := r.Text + "; it is retried"
	if r.Count > 1 {
		text = r.Text + "; " + strconv.Itoa(r.Count) + " attempts were refused, it is retried"
	}
	return rollout.Why{Reason: rollout.ReasonRefused, Text: text}
}

// Refusals are the tasks whose objects were refused at their last attempt, by node and task.
type Refusals map[string]map[string]Refusal

// Add notes a refusal.
func (r Refusals) Add(node, task string, refused Refusal) {
	if r[node] == nil {
		r[node] = map[string]Refusal{}
	}
	r[node][task] = refused
}
