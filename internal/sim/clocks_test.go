// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// longestWait is longer than every deadline, timeout, back-off and soak of these tests.
const longestWait = 2 * time.Hour

// farFuture is a time that a person wrote to a node by hand.
var farFuture = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

// restart makes the operator a new process: it has observed nothing, and its clock may be wrong.
func (o *operator) restart() {
	o.s.processes++
	o.pending, o.inFlight, o.process = nil, nil, o.s.processes
	o.durations, o.asked, o.skew = timing.NewDurations(), map[string]bool{}, 0
	if o.s.chance(o.s.rates.clock) {
		choices := []time.Duration{-3 * time.Hour, -time.Minute, 30 * time.Second, 2 * time.Hour, 26 * time.Hour}
		o.skew = choices[o.s.random.Intn(len(choices))]
		o.s.logf("the clock of %s is wrong by %s", o.name, o.skew)
	}
}

// readClock sets the time of the view by the operator's clock, and removes what only another process knows.
func (o *operator) readClock() {
	o.view.Now = o.view.Now.Add(o.skew)
	for i := range o.view.Rollouts {
		for j := range o.view.Rollouts[i].Targets {
			pods := o.view.Rollouts[i].Targets[j].Drain.Pods
			for k := range pods {
				pods[k].Asked = o.asked[pods[k].UID]
				pods[k].RetryAt = pods[k].RetryAt.Add(o.skew)
			}
		}
	}
}

// correctTimes replaces recorded times in the future, as the front ends do.
func (o *operator) correctTimes() {
	now := o.s.cluster.State.Now.Add(o.skew)
	correct := func(at *time.Time) {
		if at.After(now.Add(10 * time.Second)) {
			*at = now
		}
	}
	o.s.eachRecordedTime(correct)
}

// eachRecordedTime calls a function with every time that operators record on nodes.
func (s *faultTest) eachRecordedTime(do func(*time.Time)) {
	for i := range s.cluster.State.Rollouts {
		for j := range s.cluster.State.Rollouts[i].Targets {
			t := s.cluster.State.Rollouts[i].Targets[j]
			do(&t.Visit.AdmittedAt)
			do(&t.Visit.FinishedAt)
			do(&t.Drain.HeldAt)
			if t.Proof != nil {
				proof := *t.Proof
				do(&proof.Since)
				t.Proof = &proof
			}
			for k := range t.Tasks {
				do(&t.Tasks[k].Attempts.FailedAt)
			}
		}
	}
}

// forgeTimes moves recorded times of one node to the far future.
func (s *faultTest) forgeTimes() {
	s.logf("somebody forges times")
	s.eachRecordedTime(func(at *time.Time) {
		if !at.IsZero() && s.chance(20) {
			*at = farFuture
		}
	})
}

// checkTimes checks that an action is not too early by the clock of the cluster, whatever the clock of the operator says.
func (s *faultTest) checkTimes(o *operator, a rollout.Action) string {
	t, r := s.cluster.FindTarget(a.Rollout, a.Node), s.cluster.FindRollout(a.Rollout)
	if t == nil || r == nil {
		return ""
	}
	key, now := a.Rollout.String()+" "+t.UID, s.cluster.State.Now
	switch a.Verb {
	case rollout.VerbHold:
		if t.Drain.HeldAt.IsZero() {
			s.heldSince[key] = now
		}
	case rollout.VerbEvict:
		if a.Force && !o.asked[a.Pod.UID] && !a.Pod.Leaving {
			return "it never asked the pod to leave"
		}
		if a.Force && now.Before(s.heldSince[key].Add(r.Drain.Timeout)) {
			return "the drain has not taken that long"
		}
	case rollout.VerbRecord:
		return s.checkDeadline(o, a, t)
	}
	return ""
}

// checkDeadline checks that an attempt is ended by its deadline after that, and by each process once.
func (s *faultTest) checkDeadline(o *operator, a rollout.Action, t *rollout.Target) string {
	k := sim.FindTask(t, a.Task)
	isDeadline := a.State == rollout.StateFailing &&
		(a.Why.Reason == rollout.ReasonDeadline || a.Why.Reason == rollout.ReasonRebootNotStarted || a.Why.Reason == rollout.ReasonRebootTimeout)
	if k == nil || k.Object.Name == "" || !isDeadline {
		return ""
	}
	if s.cluster.State.Now.Before(k.Attempts.Started.Add(k.Limit)) {
		return "the attempt has not taken that long"
	}
	if s.expired[k.Object.Name] == o.process {
		return "this attempt is recorded already"
	}
	s.expired[k.Object.Name] = o.process
	return ""
}
