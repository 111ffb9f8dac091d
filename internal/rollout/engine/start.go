// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// starter starts the tasks that may run now, on an admitted target that passed the gates.
type starter struct{ *taskBoard }

// startTasks starts what may run now and reports what the other tasks wait for. Nothing starts beside an interrupt.
func (s starter) startTasks() {
	s.continues = true
	s.reportVerdict(weightUpNext, rollout.PhaseInFlight, rollout.Why{Reason: rollout.ReasonUpNext, Text: "nothing blocks the target"})
	for i := range s.tasks {
		s.reportTask(&s.tasks[i])
	}
	if s.isInterrupted() {
		return
	}
	if why, waits := s.checkTurn(); waits {
		s.sweepFailing(why)
		s.reportVerdict(weightStuck, rollout.PhaseInFlight, why)
		return
	}
	if why, waits := s.checkNode(); waits {
		s.reportVerdict(weightWaiting, rollout.PhaseInFlight, why)
		return
	}
	interrupts := interruptStarter{s}
	if begun := interrupts.findBegun(); begun != nil {
		interrupts.start(begun, interrupts.findCovered(begun))
		return
	}
	ready, isUrgent := interrupts.findReady()
	s.startPlainTasks(isUrgent)
	if len(ready) > 0 && !s.isNodeReturned {
		interrupts.startStrongest(ready)
	}
}

// checkNode returns what the whole node waits for.
func (s starter) checkNode() (why rollout.Why, waits bool) {
	node := s.target.node
	isInterrupted := node.interrupted != nil && node.interrupted != s.target
	if isInterrupted {
		return node.interrupted.rollout.reasonToWait(rollout.ReasonOccupied), true
	}
	if !node.Ready {
		return notReadyReason(node.Node), true
	}
	return rollout.Why{}, false
}

// reportTask adds to the verdict that a task is running, is waiting or has failed. A failure is reported until the task succeeds,
// also while it runs again.
func (s starter) reportTask(k *boardTask) {
	if !k.isPending() {
		return
	}
	hasFailed := k.planned == rollout.StateFailing || k.failures > 0
	isFinal := hasFailed && k.isFinal()
	switch {
	case isFinal:
		s.reportVerdict(weightFailed, rollout.PhaseFailed, s.failureReason(k))
	case hasFailed:
		s.reportVerdict(weightFailing, rollout.PhaseFailing, s.failureReason(k))
	case k.planned == rollout.StateRunning:
		s.reportRunning(k)
	case k.Object.Leaving && s.isReady(k):
		s.reportVerdict(weightWaiting, rollout.PhaseInFlight, rollout.WithDefaultReason(k.Why, rollout.ReasonPodLost))
	}
}

func (s starter) reportRunning(k *boardTask) {
	if k.Object.Queued {
		s.reportVerdict(weightBehind, rollout.PhaseInFlight, rollout.Why{Reason: rollout.ReasonDependency, Text: k.Title() + " is next", About: k.Object.Name})
		return
	}
	if k.Why != nil {
		s.reportVerdict(weightStuck, rollout.PhaseInFlight, rollout.WithDefaultReason(k.Why, rollout.ReasonWorking))
		return
	}
	s.reportVerdict(weightWorking, rollout.PhaseInFlight, rollout.Why{
		Reason: rollout.ReasonWorking,
		Text:   k.Title() + " is running",
		About:  k.Object.Name,
		Since:  k.Attempts.Started,
	})
}

// failureReason describes the last failure of a task, how often it failed, and whether it is tried again.
func (s starter) failureReason(k *boardTask) rollout.Why {
	why := rollout.Why{Reason: rollout.ReasonStageFailed, Text: k.Title() + " failed"}
	if k.Why != nil {
		why = rollout.WithDefaultReason(k.Why, rollout.ReasonStageFailed)
	}
	if k.IsExpired(s.plan.now) {
		why = k.ExpiredReason(s.target.node.Node)
	}
	if why.Since.IsZero() {
		why.Since = k.lastFailure
	}
	outlook := "it is retried"
	switch {
	case k.planned == rollout.StateRunning:
		outlook = "it is running again"
	case !k.mayRetry():
		outlook = "it is not retried until its definition changes"
	}
	if k.failures > 1 {
		outlook = strconv.Itoa(k.failures) + " attempts failed, " + outlook
	}
	why.Text = rollout.Shorten(why.Text + "; " + outlook)
	return why
}

// startPlainTasks starts the tasks that are not interrupts. While an interrupt is urgent, tasks whose failure is final
// are not tried again before it.
func (s starter) startPlainTasks(isInterruptUrgent bool) {
	var next *boardTask // the only one that may start, if the rollout is serial
	if s.target.rollout.Serial {
		next = s.findNextSerial(isInterruptUrgent)
		if next == nil {
			return
		}
	}
	for _, k := range s.findAll((*boardTask).isPlain) {
		if s.isNodeReturned {
			return
		}
		isOther := next != nil && next != k
		isPostponed := isInterruptUrgent && k.isHopeless
		switch {
		case k.isBusy:
		case !s.isReady(k):
			s.reportBehind(rollout.ReasonDependency, k.Title()+" waits for its dependencies")
		case isPostponed:
		case isOther:
			s.reportBehind(rollout.ReasonSerial, k.Title()+" waits for "+next.Title())
		case s.checkDue(k) && s.checkExclusive(k):
			s.startPlainTask(k)
		}
	}
}

// startPlainTask starts a task, once the node is drained if it needs that.
func (s starter) startPlainTask(k *boardTask) {
	needsDrain := k.Need == rollout.NeedDrained
	if needsDrain && !drainer(s).ensureDrained(k) {
		return
	}
	s.startTask(k)
}

func (s starter) reportBehind(reason rollout.Reason, text string) {
	s.reportVerdict(weightBehind, rollout.PhaseInFlight, rollout.Why{Reason: reason, Text: text})
}

// findNextSerial returns the task that starts next when only one may run at a time: the first with the lowest rank. It
// returns nil while one runs.
func (s starter) findNextSerial(isInterruptUrgent bool) *boardTask {
	plain := s.findAll((*boardTask).isPlain)
	if slices.ContainsFunc(plain, func(k *boardTask) bool { return k.isBusy }) {
		return nil
	}
	candidates := slices.DeleteFunc(plain, func(k *boardTask) bool {
		isGivenUp := k.isHopeless && (isInterruptUrgent || k.Bounded)
		return isGivenUp || !s.isReady(k)
	})
	if len(candidates) == 0 {
		return nil
	}
	return slices.MinFunc(candidates, func(a, b *boardTask) int {
		return cmp.Compare(a.serialRank(), b.serialRank())
	})
}

// serialRank orders tasks of which one may start: retries that can still succeed, then new ones, then final failures.
func (k *boardTask) serialRank() int {
	switch {
	case k.isHopeless:
		return 2
	case k.planned == rollout.StateFailing:
		return 0
	}
	return 1
}

// checkDue requests a pass for when a task may be tried again, and reports whether it may be now.
func (s starter) checkDue(k *boardTask) bool {
	hasObject := k.Object.Name != "" && k.isPending()
	if hasObject || k.isBusy || k.Object.Leaving {
		return false
	}
	switch {
	case k.failures == 0:
		return true
	case !k.mayRetry():
		return false
	}
	at := k.lastFailure.Add(rollout.Backoff(k.failures))
	s.plan.requestNext(at)
	return !s.plan.now.Before(at)
}

func (s starter) startTask(k *boardTask) *rollout.Action {
	why := rollout.Why{Reason: rollout.ReasonOwed, Text: k.Title()}
	switch {
	case k.failures > 0:
		why = rollout.Why{Reason: rollout.ReasonRetry, Text: k.Title() + ", attempt " + strconv.Itoa(k.failures+1)}
	case k.Lost:
		why.Text += " again: its object is gone"
	}
	s.reserveExclusive(k)
	k.planned, k.isBusy = rollout.StateRunning, true
	s.target.node.objects++
	s.reportVerdict(weightWorking, rollout.PhaseInFlight, rollout.Why{Reason: rollout.ReasonWorking, Text: k.Title() + " is starting"})
	a := s.plan.addAction(s.target, rollout.VerbRun, why)
	a.Task, a.Drained = k.ID, k.Need != rollout.NeedNothing
	s.joinFollowing(k, a)
	return a
}
