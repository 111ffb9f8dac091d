// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// LongDrain is from when on the progress of a drain is recorded on its node and in status: quick drains cost no write.
const LongDrain = 10 * time.Second

// MaxSlowPods limits Drained.Slowest.
const MaxSlowPods = 3

// Drained is a target whose node is being drained and has pods in the way.
type Drained struct {
	Rollout Ref
	Node    string
	UID     string    // of the node
	Since   time.Time // zero if unknown
	Long    bool      // it takes longer than LongDrain
	Left    int       // pods that must still leave
	All     int       // pods that had to leave when the drain began
	Waiting []PodCount
	Slowest []SlowPod // those that are expected to leave last, at most MaxSlowPods
}

// PodCount counts the pods that have not left for one reason.
type PodCount struct {
	Reason Reason
	Pods   int
}

// SlowPod is a pod that has not left its node, and why.
type SlowPod struct {
	Pod    string // namespace/name
	Reason Reason
	Text   string    // a sentence without a full stop, without the name of the pod
	Ends   time.Time // when it should be gone; zero if nobody knows
}

// noteProgress adds the drain of the target to the plan. How many pods had to leave is recorded once it takes long.
func (d drainer) noteProgress() {
	t := d.target
	left := len(t.pods)
	out := Drained{
		Rollout: t.rollout.Ref, Node: t.target.Node, UID: t.target.UID, Since: t.target.drainBegan(), Left: left,
		All: max(left, cmp.Or(t.target.Drain.PodsCounted, t.target.Drain.PodsRecorded)),
	}
	out.Waiting, out.Slowest = d.plan.explainPods(t.pods)
	isTimed := !out.Since.IsZero() && d.plan.now.Sub(out.Since) >= LongDrain
	out.Long = t.target.Drain.PodsRecorded > 0 || isTimed
	if out.Long && out.All != t.target.Drain.PodsRecorded && t.hasTimedHold() {
		why := Why{Reason: ReasonQuiet, Text: countNoun(out.All, "pod has", "pods have") + " to leave the node"}
		d.plan.addAction(t, VerbCount, why).Pods = out.All
	}
	d.plan.Draining = append(d.plan.Draining, out)
}

// listDrains returns the drains of a rollout, those first that take the longest.
func (r *rolloutState) listDrains(all []Drained) []Drained {
	var out []Drained
	for i := range all {
		if all[i].Rollout == r.Ref {
			out = append(out, all[i])
		}
	}
	slices.SortFunc(out, func(a, b Drained) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return out
}

// explainPods counts pods by why they have not left, and finds the slowest ones.
func (p *draftPlan) explainPods(pods []Pod) (counts []PodCount, slowest []SlowPod) {
	type slow struct {
		SlowPod
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
			counts = append(counts, PodCount{Reason: s.Reason})
		}
		counts[len(counts)-1].Pods++
	}
	for _, s := range all[:min(len(all), MaxSlowPods)] {
		slowest = append(slowest, s.SlowPod)
	}
	return counts, slowest
}

// explainPod says why a pod has not left, and how important that is: the lowest rank first.
func explainPod(pod *Pod, now time.Time) (rank int, slow SlowPod) {
	rank = slices.IndexFunc(podObstacles, func(o podObstacle) bool { return o.applies(pod) })
	reason, text := podObstacles[rank].reason, podObstacles[rank].text(pod, now)
	isNext := reason == ReasonPodLeaving && !pod.Leaving && !pod.Asked
	if isNext {
		rank, reason, text = len(podObstacles), ReasonUpNext, "has not been asked to leave yet"
	}
	slow = SlowPod{Pod: pod.path(), Reason: reason, Text: truncate(strings.TrimSpace(text))}
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
func describeLeaving(pod *Pod, now time.Time) string {
	isOver := !pod.LeavesAt.IsZero() && now.After(pod.LeavesAt)
	switch {
	case isOver && len(pod.Finalizers) > 0:
		return " is being deleted, and waits for " + pluralOf(len(pod.Finalizers), "finalizer ", "finalizers ") + strings.Join(pod.Finalizers, ", ")
	case isOver:
		return " has not terminated yet, and its grace period is over"
	}
	return " has not terminated yet"
}

func pluralOf(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
