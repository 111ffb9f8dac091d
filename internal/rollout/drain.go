// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// isQuiet says that a task may disturb its node: the rollout holds it, it is unschedulable, and nobody is in the way.
// If not, it does what brings that nearer, and says what it waits for.
func (f *fleet) isQuiet(b *bench, i int) bool {
	if !b.asked {
		b.asked, b.quiet = true, f.makeQuiet(b, i)
	}
	return b.quiet
}

func (f *fleet) makeQuiet(b *bench, i int) bool {
	p := b.p
	why := Why{Reason: ReasonQuiet, Text: label(&p.t.Tasks[i]) + " needs the node quiet"}
	switch {
	case !p.held:
		if full, ok := f.mayHold(p); !ok {
			b.say(sayWaiting, PhaseInFlight, full)
			return false
		}
		p.held = true
		f.act(p, VerbHold, why).Ledger = p.fence()
	case !p.n.Cordoned: // somebody uncordoned it meanwhile
		f.act(p, VerbHold, why)
	case !p.t.PodsSeen:
	case len(p.t.Pods) == 0:
		return true
	default:
		return f.drain(b, why)
	}
	b.say(sayBehind, PhaseInFlight, Why{Reason: ReasonUpNext, Text: "the node is held; the pods on it are looked at next"})
	return false
}

// drain asks the pods in the way to leave. Protected pods are waited for first, and nobody is asked to leave for
// nothing: not while a pod stays that may not be evicted.
func (f *fleet) drain(b *bench, why Why) bool {
	p := b.p
	late := p.q.Drain.Timeout > 0 && !p.t.HeldAt.IsZero() && !f.Now.Before(p.t.HeldAt.Add(p.q.Drain.Timeout))
	if p.q.Drain.Timeout > 0 && !p.t.HeldAt.IsZero() {
		f.wake(p.t.HeldAt.Add(p.q.Drain.Timeout))
	}
	wait := f.inTheWay(p)
	if late && p.q.Drain.OnTimeout == DrainSkip {
		f.skip(b, wait)
		return false
	}
	force := late && p.q.Drain.OnTimeout == DrainForce
	if wait.Reason != ReasonProtectedPod && wait.Reason != ReasonPodKept {
		f.evict(p, why, force)
	}
	if late {
		wait = Why{Reason: ReasonDrainTimeout, About: wait.About, Since: wait.Since,
			Text: bounded("the drain takes longer than " + p.q.Drain.Timeout.String() + ": " + wait.Text)}
	}
	b.say(sayWaiting, PhaseInFlight, wait)
	return false
}

// inTheWay says what the drain of a node waits for.
func (f *fleet) inTheWay(p *post) Why {
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
		for i := range p.t.Pods {
			if d := &p.t.Pods[i]; kind.is(d) {
				total++
				if first == nil || d.path() < first.path() {
					first = d
				}
			}
		}
		if first != nil {
			text := "pod " + first.path() + kind.text(first)
			if total > 1 {
				text += ", and " + count(total-1, "more pod is like that", "more pods are like that")
			}
			return Why{Reason: kind.reason, Text: bounded(text), About: "Pod " + first.path(), Since: p.t.HeldAt}
		}
	}
	return Why{}
}

func (d *Pod) path() string { return d.Namespace + "/" + d.Name }

// evict asks each pod in the way to leave, once; one that refused is asked again when its time has come. Force deletes.
func (f *fleet) evict(p *post, why Why, force bool) {
	pods := slices.Clone(p.t.Pods)
	slices.SortFunc(pods, func(a, b Pod) int {
		return slices.Compare([]string{a.Namespace, a.Name, a.UID}, []string{b.Namespace, b.Name, b.UID})
	})
	for _, d := range pods {
		switch {
		case f.Now.Before(d.RetryAt):
			f.wake(d.RetryAt)
		case force:
			a := f.act(p, VerbEvict, Why{Reason: ReasonDrainTimeout, About: "Pod " + d.path(),
				Text: bounded("pod " + d.path() + " had " + p.q.Drain.Timeout.String() + " to leave")})
			a.Pod, a.Force = d, true
		case !d.Leaving:
			a := f.act(p, VerbEvict, why)
			a.Pod, a.Why.About = d, "Pod "+d.path()
		}
	}
}

// skip gives a node back whose drain took too long. What runs there ends first.
func (f *fleet) skip(b *bench, wait Why) {
	p := b.p
	why := Why{Reason: ReasonDrainTimeout, About: wait.About, Since: wait.Since,
		Text: bounded("the drain took longer than " + p.q.Drain.Timeout.String() + " and the node is given back: " + wait.Text)}
	if b.working() {
		b.say(sayWaiting, PhaseInFlight, why)
		return
	}
	b.over = true
	if p.numbering() {
		b.say(sayWaiting, PhaseInFlight, p.verdict.Why)
		return
	}
	f.sweepFailing(b, why)
	if p.q.Deleting {
		why.Reason = ReasonGiveUp
		f.end(b, why)
	} else {
		f.act(p, VerbRelease, why)
		f.act(p, VerbRetire, why).Skip = true
	}
	b.say(sayFailed+1, PhaseFailed, why)
}
