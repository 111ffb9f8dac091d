// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// ensureQuiet says that a task may disturb its node: the rollout holds it, it is unschedulable, and nobody is in the way.
// If not, it does what brings that nearer, and says what it waits for.
func (p *planner) ensureQuiet(b *taskBoard, i int) bool {
	if !b.quietChecked {
		b.quietChecked, b.isQuiet = true, p.holdAndDrain(b, i)
	}
	return b.isQuiet
}

func (p *planner) holdAndDrain(b *taskBoard, i int) bool {
	t := b.target
	why := Why{Reason: ReasonQuiet, Text: taskLabel(&t.target.Tasks[i]) + " needs the node quiet"}
	switch {
	case !t.isHeld:
		if full, ok := p.tryReserveSeat(t); !ok {
			b.setVerdict(weightWaiting, PhaseInFlight, full)
			return false
		}
		t.isHeld = true
		p.addAction(t, VerbHold, why).Ledger = t.requireLedgerWrite()
	case !t.node.Cordoned: // somebody uncordoned it meanwhile
		p.addAction(t, VerbHold, why)
	case !t.target.PodsSeen:
	case len(t.target.Pods) == 0:
		return true
	default:
		return p.drainNode(b, why)
	}
	b.setVerdict(weightBehind, PhaseInFlight, Why{Reason: ReasonUpNext, Text: "the node is held; the pods on it are looked at next"})
	return false
}

// drainNode asks the pods in the way to leave. Protected pods are waited for first, and nobody is asked to leave for
// nothing: not while a pod stays that may not be evicted.
func (p *planner) drainNode(b *taskBoard, why Why) bool {
	t := b.target
	late := t.rollout.Drain.Timeout > 0 && !t.target.HeldAt.IsZero() && !p.Now.Before(t.target.HeldAt.Add(t.rollout.Drain.Timeout))
	if t.rollout.Drain.Timeout > 0 && !t.target.HeldAt.IsZero() {
		p.requestNext(t.target.HeldAt.Add(t.rollout.Drain.Timeout))
	}
	wait := p.findBlockingPods(t)
	if late && t.rollout.Drain.OnTimeout == DrainSkip {
		p.skipNode(b, wait)
		return false
	}
	force := late && t.rollout.Drain.OnTimeout == DrainForce
	if wait.Reason != ReasonProtectedPod && wait.Reason != ReasonPodKept {
		p.evictPods(t, why, force)
	}
	if late {
		wait = Why{Reason: ReasonDrainTimeout, About: wait.About, Since: wait.Since,
			Text: truncate("the drain takes longer than " + t.rollout.Drain.Timeout.String() + ": " + wait.Text)}
	}
	b.setVerdict(weightWaiting, PhaseInFlight, wait)
	return false
}

// findBlockingPods says what the drain of a node waits for.
func (p *planner) findBlockingPods(t *targetState) Why {
	kinds := []struct {
		reason Reason
		is     func(*Pod) bool
		text   func(*Pod) string
	}{
		{ReasonProtectedPod, func(d *Pod) bool { return d.Wait }, func(*Pod) string { return " must not be interrupted" }},
		{ReasonPodKept, func(d *Pod) bool { return d.Keep != "" && !d.Leaving }, func(d *Pod) string { return " may not be evicted: " + d.Keep }},
		{ReasonPodDisruptionBudget, func(d *Pod) bool { return d.Refused != "" && !d.Leaving }, func(d *Pod) string { return " cannot be evicted now: " + d.Refused }},
		{ReasonPodLeaving, func(*Pod) bool { return true }, func(*Pod) string { return " has not gone yet" }},
	}
	for _, kind := range kinds {
		var first *Pod
		total := 0
		for i := range t.target.Pods {
			if d := &t.target.Pods[i]; kind.is(d) {
				total++
				if first == nil || d.path() < first.path() {
					first = d
				}
			}
		}
		if first != nil {
			text := "pod " + first.path() + kind.text(first)
			if total > 1 {
				text += ", and " + countNoun(total-1, "more pod is like that", "more pods are like that")
			}
			return Why{Reason: kind.reason, Text: truncate(text), About: "Pod " + first.path(), Since: t.target.HeldAt}
		}
	}
	return Why{}
}

func (d *Pod) path() string { return d.Namespace + "/" + d.Name }

// evictPods asks each pod in the way to leave, once; one that refused is asked again when its time has come. Force deletes.
func (p *planner) evictPods(t *targetState, why Why, force bool) {
	pods := slices.Clone(t.target.Pods)
	slices.SortFunc(pods, func(a, b Pod) int {
		return slices.Compare([]string{a.Namespace, a.Name, a.UID}, []string{b.Namespace, b.Name, b.UID})
	})
	for _, d := range pods {
		switch {
		case p.Now.Before(d.RetryAt):
			p.requestNext(d.RetryAt)
		case force:
			a := p.addAction(t, VerbEvict, Why{Reason: ReasonDrainTimeout, About: "Pod " + d.path(),
				Text: truncate("pod " + d.path() + " had " + t.rollout.Drain.Timeout.String() + " to leave")})
			a.Pod, a.Force = d, true
		case !d.Leaving:
			a := p.addAction(t, VerbEvict, why)
			a.Pod, a.Why.About = d, "Pod "+d.path()
		}
	}
}

// skipNode gives a node back whose drain took too long. What runs there ends first.
func (p *planner) skipNode(b *taskBoard, wait Why) {
	t := b.target
	why := Why{Reason: ReasonDrainTimeout, About: wait.About, Since: wait.Since,
		Text: truncate("the drain took longer than " + t.rollout.Drain.Timeout.String() + " and the node is given back: " + wait.Text)}
	if b.isWorking() {
		b.setVerdict(weightWaiting, PhaseInFlight, why)
		return
	}
	b.isNodeReturned = true
	if t.awaitNodeNumber() {
		b.setVerdict(weightWaiting, PhaseInFlight, t.verdict.Why)
		return
	}
	p.sweepFailing(b, why)
	if t.rollout.Deleting {
		why.Reason = ReasonGiveUp
		p.retireDone(b, why)
	} else {
		p.addAction(t, VerbRelease, why)
		p.addAction(t, VerbRetire, why).Skip = true
	}
	b.setVerdict(weightFailed+1, PhaseFailed, why)
}
