// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// LongDrain is from when on the progress of a drain is recorded on its node and in status: quick drains cost no write.
const LongDrain = 10 * time.Second

// MaxSlowPods limits Drained.Slowest.
const MaxSlowPods = 3

// noteProgress adds the drain of the target to the plan. How many pods had to leave is recorded once it takes long.
func (d drainer) noteProgress() {
	t := d.target
	left := len(t.pods)
	out := rollout.Drained{
		Rollout: t.rollout.Ref, Node: t.target.Node, UID: t.target.UID, Since: t.target.DrainBegan(), Left: left,
		All: max(left, cmp.Or(t.target.Drain.PodsCounted, t.target.Drain.PodsRecorded)),
	}
	out.Waiting, out.Slowest = d.plan.explainPods(t.pods)
	isTimed := !out.Since.IsZero() && d.plan.now.Sub(out.Since) >= LongDrain
	out.Long = t.target.Drain.PodsRecorded > 0 || isTimed
	if out.Long && out.All != t.target.Drain.PodsRecorded && t.hasTimedHold() {
		why := rollout.Why{Reason: rollout.ReasonQuiet, Text: countNoun(out.All, "pod has", "pods have") + " to leave the node"}
		d.plan.addAction(t, rollout.VerbCount, why).Pods = out.All
	}
	d.plan.Draining = append(d.plan.Draining, out)
}

// listDrains returns the drains of a rollout, those first that take the longest.
func (r *rolloutState) listDrains(all []rollout.Drained) []rollout.Drained {
	var out []rollout.Drained
	for i := range all {
		if all[i].Rollout == r.Ref {
			out = append(out, all[i])
		}
	}
	slices.SortFunc(out, func(a, b rollout.Drained) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// explainPods counts pods by why they have not left, and finds the slowest ones.
func (p *draftPlan) explainPods(pods []rollout.Pod) (counts []rollout.PodCount, slowest []rollout.SlowPod) {
	type slow struct {
		rollout.SlowPod
		rank int // the most important obstacle first
	}
	all := make([]slow, 0, len(pods))
	for i := range pods {
		rank, pod := explainPod(&pods[i], p.now)
		all = append(all, slow{pod, rank})
	}
	slices.SortFunc(all, func(a, b slow) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), compareEnds(p.now, a.Ends, b.Ends), cmp.Compare(a.Pod, b.Pod))
	})
	for _, s := range all {
		if n := len(counts); n == 0 || counts[n-1].Reason != s.Reason {
			counts = append(counts, rollout.PodCount{Reason: s.Reason})
		}
		counts[len(counts)-1].Pods++
	}
	for _, s := range all[:min(len(all), MaxSlowPods)] {
		slowest = append(slowest, s.SlowPod)
	}
	return counts, slowest
}

// explainPod says why a pod has not left, and how important that is: the lowest rank first.
func explainPod(pod *rollout.Pod, now time.Time) (rank int, slow rollout.SlowPod) {
	rank = slices.IndexFunc(podObstacles, func(o podObstacle) bool { return o.applies(pod) })
	reason, text := podObstacles[rank].reason, podObstacles[rank].text(pod, now)
	isNext := reason == rollout.ReasonPodLeaving && !pod.Leaving && !pod.Asked
	if isNext {
		rank, reason, text = len(podObstacles), rollout.ReasonUpNext, "has not been asked to leave yet"
	}
	slow = rollout.SlowPod{Pod: pod.Path(), Reason: reason, Text: rollout.Shorten(strings.TrimSpace(text))}
	switch {
	case pod.Leaving:
		slow.Ends = pod.LeavesAt
	case pod.Wait:
		slow.Ends = pod.EndsAt
	}
	return rank, slow
}

// compareEnds orders expected ends, the latest first. An end that nobody knows, or that is over, is later than all others.
func compareEnds(now, a, b time.Time) int {
	isUnknown := func(t time.Time) bool { return !t.After(now) }
	switch {
	case isUnknown(a) && isUnknown(b):
		return a.Compare(b)
	case isUnknown(a):
		return -1
	case isUnknown(b):
		return 1
	}
	return b.Compare(a)
}

// describeLeaving says what keeps a pod that is being deleted.
func describeLeaving(pod *rollout.Pod, now time.Time) string {
	isOver := !pod.LeavesAt.IsZero() && now.After(pod.LeavesAt)
	switch {
	case isOver && len(pod.Finalizers) > 0:
		return " is being deleted, and waits for its finalizers: " + strings.Join(pod.Finalizers, ", ")
	case isOver:
		return " has not terminated yet, and its grace period is over"
	case pod.TurnedAway:
		return ", which the labels of nodeMarks turn away, has not been deleted by its DaemonSet yet"
	}
	return " has not terminated yet"
}
