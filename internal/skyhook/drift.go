// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// driftSlots is into how many parts the interval is divided: checks begin together at the end of one, so that they share passes.
const driftSlots = 500

func checkLimit(s *v1alpha1.Skyhook) int {
	if s.Spec.Drift == nil && s.Spec.Preflight != v1alpha1.PreflightAsk {
		return 0
	}
	return plan.MaxChecks
}

// compileDrift says when a node is checked for drift, and how far a check is. Nothing else is checked meanwhile: what a node needs is asked
// before its turn, and after it.
func (c *nodeCompiler) compileDrift(t *plan.Target, out *rollout.Target) {
	pods := c.pods.Checks
	if c.facts.Skyhook.Spec.Drift == nil && t.On.DriftText != "" && t.Selected {
		e := node.Edit{}
		e.RemoveAnnotation(t.Node, v1alpha1.PrefixDrift+c.facts.Skyhook.Name)
		c.edit(node.NamedEdit{Node: t.Node.Name, Edit: e})
	}
	if c.facts.Skyhook.Spec.Drift == nil || !t.Selected || !c.facts.HasPackageToCheck(&t.Record) {
		for _, pod := range pods {
			if !pod.Leaving {
				out.Objects.Orphans = append(out.Objects.Orphans, pod.Name)
			}
		}
		return
	}
	rec := c.facts.DriftOf(t)
	c.result.readsClock = c.result.readsClock || t.On.Drift.IsInFuture(c.facts.Now)
	out.Check = &rollout.Check{Due: c.driftDue(t, rec), Limit: plan.DriftPodTimeout}
	if pod := c.findCheck(out.Check, c.facts.DriftPodName(t), rec.Pod); pod != nil {
		found := c.facts.ReadDrift(t, pod)
		out.Check.Keep = len(node.DriftRecord{Packages: found}.Drifted()) > 0
	}
}

// findCheck says how far the check of this name is, and what else checks the node, but for a pod that is kept. It returns the pod, if
// there is one.
func (c *nodeCompiler) findCheck(k *rollout.Check, name, kept string) (found *corev1.Pod) {
	for _, pod := range c.pods.Checks {
		phase := pod.Aside.Status.Phase
		hasEnded := phase == corev1.PodSucceeded || phase == corev1.PodFailed
		switch {
		case pod.Leaving, pod.Name != name:
			if !hasEnded {
				k.Going, k.GoneBy = true, slices.MaxFunc([]time.Time{k.GoneBy, pod.Created.Add(k.Limit), pod.Deleted.Add(k.Limit)}, time.Time.Compare)
			}
			if !pod.Leaving && pod.Name != kept {
				k.Old = append(k.Old, pod.Name)
			}
		default:
			k.Object, k.Created, k.Ended, found = pod.Name, pod.Created, hasEnded, pod.Aside
		}
	}
	return found
}

// driftDue returns when a node is checked next: within the interval after its last check or, the first time, after its work was done.
// Hashes spread that, so that it is the same for every operator.
func (c *nodeCompiler) driftDue(t *plan.Target, rec node.DriftRecord) time.Time {
	every, base, from := plan.DriftInterval(c.facts.Skyhook), rec.CheckedAt, 0.8
	if f := t.Record.FinishedAt; f != nil && f.After(base) {
		base, from = *f, 0.1
	}
	for _, a := range t.Record.Preflight { // what needed nothing was done when it said so
		if a.At.After(base) {
			base, from = a.At, 0.1
		}
	}
	hash := fnv.New32a()
	hash.Write([]byte(t.Node.UID + "\n" + string(c.facts.Skyhook.UID) + "\n" + strconv.FormatInt(base.Unix(), 10)))
	share := float64(hash.Sum32()) / (1 << 32)
	wait := time.Duration(float64(every) * (from + (1-from)*share))
	slot := max(every/driftSlots, time.Second)
	due := base.Add(wait).Truncate(slot)
	if refused, isRefused := c.refused[node.TaskCheck]; isRefused && refused.RetryAt().After(due) {
		return refused.RetryAt()
	}
	return due
}
