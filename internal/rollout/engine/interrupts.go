// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// interruptStarter starts interrupts: tasks that must run alone on their node. One interrupt can cover others, so that
// they need not run.
type interruptStarter struct{ starter }

// findBegun returns an interrupt that was started and has not ended, though no object runs it now; nil if there is
// none. It may have taken effect, so it continues before anything else, with the interrupts that it covered when it
// started. One that failed for good does not delay the others.
func (s interruptStarter) findBegun() *boardTask {
	return s.find(func(k *boardTask) bool {
		mayContinue := k.isOpenInterrupt() && !k.isHopeless
		return mayContinue && s.isReady(k) && k.hasBegun()
	})
}

// findCovered returns the tasks that a task covers.
func (s interruptStarter) findCovered(by *boardTask) []*boardTask {
	return s.findAll(func(k *boardTask) bool { return k.CoveredBy == by.ID && k.isPending() })
}

// findReady returns the interrupts whose packages are complete up to the interrupt, including those that another one
// covers. They are urgent if they can succeed. Interrupts that failed for good run only when no other is ready, and
// delay nothing.
func (s interruptStarter) findReady() (ready []*boardTask, isUrgent bool) {
	ready = s.findAll(func(k *boardTask) bool {
		return k.isOpenInterrupt() && !k.isHopeless && s.isReady(k)
	})
	if len(ready) > 0 {
		return ready, true
	}
	failed := s.findAll(func(k *boardTask) bool {
		return k.isOpenInterrupt() && !k.Bounded && s.isReady(k)
	})
	return failed, false
}

// startStrongest starts the strongest of the interrupts that are ready, which covers the others. It waits for all
// tasks that can still continue without an interrupt.
func (s interruptStarter) startStrongest(ready []*boardTask) {
	if k := s.findDelaying(); k != nil {
		s.reportBehind(rollout.ReasonInterruptGroup, ready[0].Title()+" waits for "+k.Title())
		return
	}
	strongest := slices.MaxFunc(ready, func(a, b *boardTask) int {
		return cmp.Compare(a.Strength, b.Strength)
	})
	if strongest.hasBegun() {
		s.start(strongest, s.findCovered(strongest))
		return
	}
	others := slices.DeleteFunc(ready, func(k *boardTask) bool { return k == strongest })
	s.start(strongest, others)
}

// findDelaying returns the first task that can still continue without an interrupt; nil if there is none. Final
// failures delay nothing, nor do tasks that wait for an interrupt themselves.
func (s interruptStarter) findDelaying() *boardTask {
	awaitsInterrupt := make([]bool, len(s.tasks))
	for _, i := range s.target.graph.Order {
		k := &s.tasks[i]
		awaits := func(j int) bool { return awaitsInterrupt[j] }
		awaitsInterrupt[i] = k.isOpenInterrupt() || slices.ContainsFunc(s.dependenciesOf(k), awaits)
	}
	return s.find(func(k *boardTask) bool {
		return k.isPending() && !k.isHopeless && !awaitsInterrupt[k.index]
	})
}

// start runs an interrupt that covers others. No other object of ours may run on the node, whichever rollout it
// belongs to.
func (s interruptStarter) start(k *boardTask, covered []*boardTask) {
	why := rollout.Why{Reason: rollout.ReasonInterruptGroup, Text: k.Title() + " waits until nothing else runs on the node"}
	s.sweepFailing(why)
	if s.target.node.objects > 0 {
		s.reportVerdict(weightWaiting, rollout.PhaseInFlight, why)
		return
	}
	if !s.checkDue(k) || !drainer(s.starter).ensureDrained(k) || s.shareReboot(k, covered) {
		return
	}
	s.startAlone(k, covered)
}

// startAlone runs an interrupt on a node on which nothing else runs.
func (s interruptStarter) startAlone(k *boardTask, covered []*boardTask) *rollout.Action {
	var ids []string
	for _, c := range covered {
		ids = append(ids, c.ID)
		if c.CoveredBy != k.ID {
			s.addCover(c, k)
		}
	}
	a := s.startTask(k)
	a.Covers = ids
	return a
}

func (s interruptStarter) addCover(k, by *boardTask) {
	a := s.plan.addAction(s.target, rollout.VerbCover, rollout.Why{Reason: rollout.ReasonCovered, Text: by.Title() + " covers it"})
	a.Task, a.By = k.ID, by.ID
}
