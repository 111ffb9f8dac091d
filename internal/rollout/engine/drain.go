// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// drainer cordons and drains the node of a target.
type drainer struct{ *taskBoard }

// ensureDrained adds the next actions after which a task may disturb its node, reports what is waited for, and reports whether nothing is:
// the rollout holds the node, it is unschedulable, and no pod is in the way.
func (d drainer) ensureDrained(k *boardTask) bool {
	if !d.isDrainedKnown {
		d.isDrainedKnown = true
		d.isDrained = d.holdAndDrain(k)
		d.target.isDrained, d.target.isDraining = d.isDrained, !d.isDrained
	}
	return d.isDrained
}

func (d drainer) holdAndDrain(k *boardTask) bool {
	t := d.target
	why := rollout.Why{Reason: rollout.ReasonQuiet, Text: k.Title() + " needs the node drained"}
	if t.isHeld && t.node.Cordoned && t.target.Drain.PodsSeen {
		if len(t.target.Drain.Pods) == 0 {
			return d.ensureHandedOver() && !d.awaitLoadBalancers()
		}
		return d.drainNode(why)
	}
	if t.waitsFirst() && !d.ensureMayCordon() {
		return false
	}
	if !t.isHeld {
		waits := d.checkHeld()
		if waits == nil {
			waits = t.group.reserve(t)
		}
		if waits != nil {
			if t.waitsFirst() {
				d.plan.lookAt(t) // otherwise the next pass would wait for its pods
			}
			d.reportVerdict(weightWaiting, rollout.PhaseInFlight, *waits)
			return false
		}
		t.isHeld = true
		a := d.plan.addAction(t, rollout.VerbHold, why)
		a.Ledger = t.requireLedgerWrite()
		if visit := d.plan.times.Visit(t.rollout.Rollout, t.target.Tasks); visit.Basis != rollout.BasisAssumed {
			a.Expected = visit.Median()
		}
	} else if !t.node.Cordoned { // it was uncordoned since
		d.plan.addAction(t, rollout.VerbHold, why)
	}
	d.reportVerdict(weightBehind, rollout.PhaseInFlight, rollout.Why{
		Reason: rollout.ReasonUpNext,
		Text:   "the node is held; its pods are listed next",
	})
	return false
}

// ensureMayCordon gives the node of an admitted target back if a protected pod keeps it from being cordoned, has its pods listed if they
// are not, and reports whether it may be cordoned now.
func (d drainer) ensureMayCordon() bool {
	t := d.target
	if !t.target.Drain.PodsSeen {
		d.plan.lookAt(t)
		d.reportVerdict(weightBehind, rollout.PhaseInFlight, rollout.Why{Reason: rollout.ReasonUpNext, Text: "its pods are listed before it is cordoned"})
		return false
	}
	outcome, wait := d.plan.checkProtected(t)
	switch outcome {
	case waitOver:
		return true
	case waitGiveUp:
		retirer(d).retireSkipped(wait)
	case waitOn:
		d.plan.lookAt(t)
		retirer(d).postpone(wait)
	}
	return false
}

// waitForProtected gives the node back if protected pods are waited for no longer, and reports whether the drain does not go on because of
// them. With Drain.WaitFirst the node is given back, too, when one began to run at the time of the cordon.
func (d drainer) waitForProtected() bool {
	outcome, wait := d.plan.checkProtected(d.target)
	switch {
	case outcome == waitGiveUp:
		retirer(d).retireSkipped(wait)
	case outcome == waitOver:
		return false
	case d.target.rollout.Drain.WaitFirst && !d.hasBegunDrained():
		d.plan.lookAt(d.target)
		retirer(d).postpone(wait)
	case wait.Reason == rollout.ReasonDrainTimeout:
		d.reportVerdict(weightWaiting, rollout.PhaseInFlight, wait)
	}
	return true
}

// drainNode evicts the pods in the way, and reports whether there are none after all. While one of them is protected or may
// not be evicted, no pod is: the eviction would be in vain.
func (d drainer) drainNode(why rollout.Why) (isDrained bool) {
	t := d.target
	waits := d.waitForProtected()
	if d.isNodeReturned {
		return false
	}
	if !waits && t.target.HasProtectedPod() { // they were waited for long enough
		t.pods = unprotectedPods(t.pods)
		if len(t.pods) == 0 {
			return d.ensureHandedOver() && !d.awaitLoadBalancers()
		}
	}
	if !waits && !d.ensureHandedOver() {
		return false
	}
	d.noteProgress()
	drain := t.rollout.Drain
	wait := t.drainReason(d.plan.now)
	isLate := d.checkDeadline()
	if isLate && drain.OnTimeout == rollout.DrainSkip {
		wait.Reason = rollout.ReasonDrainTimeout
		wait.Text = rollout.Shorten("the drain took longer than " + drain.Timeout.String() + ", so the node is released: " + wait.Text)
		retirer(d).retireSkipped(wait)
		return false
	}
	mayEvict := wait.Reason != rollout.ReasonProtectedPod && wait.Reason != rollout.ReasonPodKept
	if mayEvict && d.awaitLoadBalancers() {
		return false
	}
	if mayEvict {
		d.evictPods(why, isLate && drain.OnTimeout == rollout.DrainForce)
	}
	if isLate {
		wait.Reason = rollout.ReasonDrainTimeout
		wait.Text = rollout.Shorten("the drain takes longer than " + drain.Timeout.String() + ": " + wait.Text)
	}
	d.reportVerdict(weightWaiting, rollout.PhaseInFlight, wait)
	return false
}

// unprotectedPods returns the pods that have to leave a node when protected pods are no longer waited for.
func unprotectedPods(pods []rollout.Pod) []rollout.Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p rollout.Pod) bool { return p.Stays })
	for i := range pods {
		pods[i].Wait = false
	}
	return pods
}

// checkDeadline requests a pass for the end of the drain's timeout, and reports whether it is over.
func (d drainer) checkDeadline() bool {
	timeout, began := d.target.rollout.Drain.Timeout, d.target.target.DrainBegan()
	if timeout <= 0 || began.IsZero() {
		return false
	}
	deadline := began.Add(timeout)
	d.plan.requestNext(deadline)
	return !d.plan.now.Before(deadline)
}

// podObstacle is a reason why a pod is still on a node, and its sentence.
type podObstacle struct {
	reason  rollout.Reason
	applies func(*rollout.Pod) bool
	text    func(*rollout.Pod, time.Time) string
}

// podObstacles are the reasons why pods are still on a node, the most important first, and their sentences.
var podObstacles = []podObstacle{
	{
		rollout.ReasonProtectedPod,
		func(d *rollout.Pod) bool { return d.Wait },
		func(*rollout.Pod, time.Time) string { return " must not be interrupted" },
	},
	{
		rollout.ReasonPodKept,
		func(d *rollout.Pod) bool { return d.Keep != "" && !d.Leaving },
		func(d *rollout.Pod, _ time.Time) string { return " may not be evicted: " + d.Keep },
	},
	{
		rollout.ReasonRefused,
		func(d *rollout.Pod) bool { return d.Refused != "" && d.Denied && !d.Leaving },
		func(d *rollout.Pod, _ time.Time) string { return " cannot be evicted: " + d.Refused },
	},
	{
		rollout.ReasonPodDisruptionBudget,
		func(d *rollout.Pod) bool { return d.Refused != "" && !d.Leaving },
		func(d *rollout.Pod, _ time.Time) string { return " cannot be evicted now: " + d.Refused },
	},
	{
		rollout.ReasonPodLeaving,
		func(*rollout.Pod) bool { return true },
		describeLeaving,
	},
}

// drainReason returns what the drain of the node waits for: the most important obstacle.
func (t *targetState) drainReason(now time.Time) rollout.Why {
	for _, obstacle := range podObstacles {
		var pods []*rollout.Pod
		for i := range t.pods {
			if d := &t.pods[i]; obstacle.applies(d) {
				pods = append(pods, d)
			}
		}
		if len(pods) == 0 {
			continue
		}
		first := slices.MinFunc(pods, func(a, b *rollout.Pod) int { return cmp.Compare(a.Path(), b.Path()) })
		text := "pod " + first.Path() + obstacle.text(first, now)
		if others := len(pods) - 1; others > 0 {
			text += ", and " + countNoun(others, "more pod", "more pods")
		}
		return rollout.Why{
			Reason: obstacle.reason,
			Text:   rollout.Shorten(text),
			About:  "Pod " + first.Path(),
			By:     first.Protection,
			Since:  t.target.DrainBegan(),
		}
	}
	return rollout.Why{}
}

// evictPods evicts each pod in the way once. After a refusal it waits until RetryAt. With force it deletes pods that were asked
// to leave and did not terminate in time. By priority, those of higher ones are asked later, and each has its grace period.
func (d drainer) evictPods(why rollout.Why, force bool) {
	pods := slices.Clone(d.target.pods)
	slices.SortFunc(pods, func(a, b rollout.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID),
		)
	})
	if d.target.rollout.Drain.ByPriority {
		pods = lowestPriority(pods)
	}
	for i := range pods {
		d.evictPod(&pods[i], why, force)
	}
}

// lowestPriority returns the pods of the lowest priority.
func lowestPriority(pods []rollout.Pod) []rollout.Pod {
	lowest := slices.MinFunc(pods, func(a, b rollout.Pod) int { return cmp.Compare(a.Priority, b.Priority) }).Priority
	return slices.DeleteFunc(pods, func(p rollout.Pod) bool { return p.Priority != lowest })
}

func (d drainer) evictPod(pod *rollout.Pod, why rollout.Why, force bool) {
	if d.plan.now.Before(pod.RetryAt) {
		d.plan.requestNext(pod.RetryAt)
		return
	}
	force = force && (pod.Asked || pod.Leaving)
	if isInGrace := d.target.rollout.Drain.ByPriority && d.plan.now.Before(pod.LeavesAt); isInGrace { // it may have been asked a moment ago
		d.plan.requestNext(pod.LeavesAt)
		force = false
	}
	if pod.Leaving && !force {
		return
	}
	if force {
		timeout := d.target.rollout.Drain.Timeout.String()
		why = rollout.Why{
			Reason: rollout.ReasonDrainTimeout,
			Text:   rollout.Shorten("pod " + pod.Path() + " did not terminate within " + timeout),
		}
	}
	why.About = "Pod " + pod.Path()
	evicted := *pod
	a := d.plan.addAction(d.target, rollout.VerbEvict, why)
	a.Pod, a.Force = &evicted, force || d.target.rollout.Drain.Delete
}
