// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// compilePreflight says until when it is known how much of its work a node needs, and how far it is that its packages are asked. It
// reports whether they are.
func (c *nodeCompiler) compilePreflight(t *plan.Target, out *rollout.Target) bool {
	if out.Visit.Admitted {
		return false
	}
	asked := c.facts.PackagesToAsk(t)
	if len(asked) == 0 {
		return false
	}
	k := &rollout.Check{Before: len(t.Steps) > 0, Due: c.facts.AnswersUntil(t, asked), Limit: plan.PreflightPodTimeout}
	if refused, isRefused := c.refused[node.TaskCheck]; isRefused && refused.RetryAt().After(k.Due) {
		k.Due = refused.RetryAt() // nothing can be asked: all stages run
	}
	if name, a := c.facts.FindBlocked(t, asked); name != "" {
		k.Refused = &rollout.Why{Reason: rollout.ReasonPreflight, Text: rollout.Shorten("package " + name + " says that the node must not be worked on now: " + a.Reason), Since: a.At}
	}
	c.findCheck(k, c.facts.PreflightPodName(t, asked), t.On.Drift.Pod)
	out.Check = k
	return true
}
