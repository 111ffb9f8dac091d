// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package timing measures how long things take, as one process of the operator observes it. It puts that into a Snapshot before the engine
// decides.
package timing

import (
	"maps"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Durations measures how long things take by the clock of one process: from when it observed them first. Recorded times come
// from other clocks, and so they can be wrong by hours, or were changed by hand. A deadline that ends something counts from the
// observation, so it can only be late, by the restart of an operator. A wait ends no later than if what is waited for had
// happened at the observation.
//
// It may be lost at any moment. A nil Durations has observed nothing: recorded times count, up to the present.
type Durations struct {
	pass   int
	seen   map[durationKey]observed
	limits map[durationKey]observed // of what was recorded with a time that was in the future then
	drains map[drainKey]podDrain    // the drains of the last plan
	waits  map[drainKey]podWait     // for protected pods

	// measured has the copies that were made of targets of the last snapshot to replace their times, without what drains change. A target
	// that is in the next snapshot too mostly has the same times there.
	measured map[*rollout.Target]*rollout.Target
}

// durationKey identifies what is measured.
type durationKey struct {
	kind    string
	rollout rollout.Ref
	node    string // UID
	item    string
	object  string // its name
	number  int
	began   int64 // as recorded
}

type observed struct {
	at   time.Time // when it was observed first
	pass int       // in which it was observed last
}

type drainKey struct {
	rollout rollout.Ref
	node    string // UID
}

// podDrain is since when a drain waits for pods, and how many there were.
type podDrain struct {
	since time.Time
	pods  int
}

// podWait is how long protected pods are waited for.
type podWait struct {
	since, seen time.Time
	pods        []string // UIDs of the protected pods that were seen last
}

// NewDurations returns Durations that have observed nothing.
func NewDurations() *Durations {
	return &Durations{seen: map[durationKey]observed{}, limits: map[durationKey]observed{}, drains: map[drainKey]podDrain{}}
}

// Since returns when something was observed first, given by the UID of its object and what it does: now, if that was never
// observed before. Without observations it returns the recorded time.
func (d *Durations) Since(uid, what string, recorded, now time.Time) time.Time {
	if d == nil {
		return recorded
	}
	return d.firstSeen(durationKey{kind: what, node: uid}, now)
}

func (d *Durations) firstSeen(key durationKey, now time.Time) time.Time {
	return d.observe(d.seen, key, now)
}

// observe returns when something was observed first, and notes that it was observed now.
func (d *Durations) observe(in map[durationKey]observed, key durationKey, now time.Time) time.Time {
	o, isKnown := in[key]
	if !isKnown || now.Before(o.at) {
		o.at = now
	}
	o.pass = d.pass
	in[key] = o
	return o.at
}

// limit returns the recorded time of something that has happened, but not later than it was observed.
func (d *Durations) limit(key durationKey, recorded, now time.Time) time.Time {
	if d == nil {
		return earlierOf(recorded, now)
	}
	if _, isKnown := d.limits[key]; !isKnown && recorded.Before(now) {
		return recorded
	}
	return earlierOf(recorded, d.observe(d.limits, key, now))
}

// isUnlimited reports whether limit returns a recorded time as it is.
func (d *Durations) isUnlimited(recorded, now time.Time) bool {
	return recorded.Before(now) && (d == nil || len(d.limits) == 0)
}

// Measure replaces the times of a snapshot by what was observed, and forgets what the snapshot no longer has.
func (d *Durations) Measure(s *rollout.Snapshot) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if d.isUnlimited(n.ReadyAt, s.Now) {
			continue
		}
		n.ReadyAt = d.limit(durationKey{kind: "ready", node: n.UID, began: n.ReadyAt.Unix()}, n.ReadyAt, s.Now)
	}
	d.measureLedgers(s)
	drains, waits := map[drainKey]podDrain{}, map[drainKey]podWait{}
	measured := map[*rollout.Target]*rollout.Target{}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for j := range r.Targets {
			t := targetMeasurer{Durations: d, rollout: r, at: j, now: s.Now}
			t.measureTimesAgain(measured)
			t.measureDrain(drains)
			t.measureWait(waits)
		}
	}
	if d == nil {
		return
	}
	d.drains, d.waits, d.measured = drains, waits, measured
	hasGone := func(_ durationKey, o observed) bool { return o.pass != d.pass }
	maps.DeleteFunc(d.seen, hasGone)
	maps.DeleteFunc(d.limits, hasGone)
	d.pass++
}

// measureLedgers lets a reservation count for its full term after it was observed.
func (d *Durations) measureLedgers(s *rollout.Snapshot) {
	for i := range s.Ledgers {
		l := &s.Ledgers[i]
		admitting := make([]rollout.Reservation, len(l.Admitting))
		for j, r := range l.Admitting {
			if d != nil {
				key := durationKey{kind: "reservation", rollout: r.Rollout, node: r.Node, item: l.Owner.String(), number: int(r.Batch), began: r.Since.Unix()}
				r.Observed = d.firstSeen(key, s.Now)
			}
			admitting[j] = r
		}
		l.Admitting = admitting
	}
}

// targetMeasurer measures the times of one target.
type targetMeasurer struct {
	*Durations
	rollout  *rollout.Rollout
	at       int // in Rollout.Targets
	now      time.Time
	isCopied bool
}

// target returns the target to read.
func (m *targetMeasurer) target() *rollout.Target { return m.rollout.Targets[m.at] }

// change returns the target to change: a copy, since other snapshots may have it.
func (m *targetMeasurer) change() *rollout.Target {
	if !m.isCopied {
		m.isCopied = true
		m.rollout.CopyTarget(m.at)
	}
	return m.target()
}

func (m *targetMeasurer) key() durationKey {
	t := m.target()
	return durationKey{rollout: m.rollout.Ref, node: t.UID, number: t.Visit.Admission}
}

// measureTimesAgain measures the times of a target. It begins from what they were in the last snapshot, and keeps that for the next one.
func (m *targetMeasurer) measureTimesAgain(measured map[*rollout.Target]*rollout.Target) {
	given := m.target()
	if m.Durations != nil && m.Durations.measured[given] != nil {
		m.rollout.Targets[m.at] = m.Durations.measured[given]
	}
	m.measureTimes()
	if m.target() != given {
		measured[given], m.isCopied = m.target(), false
	}
}

func (m *targetMeasurer) measureTimes() {
	m.limitTime("held", func(t *rollout.Target) *time.Time { return &t.Drain.HeldAt })
	m.limitTime("admitted", func(t *rollout.Target) *time.Time { return &t.Visit.AdmittedAt })
	m.limitTime("finished", func(t *rollout.Target) *time.Time { return &t.Visit.FinishedAt })
	m.measureProof()
	m.measureHandover()
	m.measureDrift()
	m.measurePull()
	isShared := true // with other targets
	for i := range m.target().Tasks {
		given := &m.target().Tasks[i]
		hasAttempt := given.Object.Name != "" && given.HasDeadline()
		if !hasAttempt && given.Attempts.FailedAt.IsZero() {
			continue
		}
		k := *given
		m.measureTask(&k, m.key(), m.now)
		if k.HasTimesOf(given) {
			continue
		}
		if isShared {
			t := m.change()
			t.Tasks, isShared = slices.Clone(t.Tasks), false
		}
		m.target().Tasks[i] = k
	}
}

// limitTime limits the time of something that has happened to when it was observed.
func (m *targetMeasurer) limitTime(kind string, of func(*rollout.Target) *time.Time) {
	recorded := *of(m.target())
	if recorded.IsZero() || m.isUnlimited(recorded, m.now) {
		return
	}
	key := m.key()
	key.kind = kind
	if limited := m.limit(key, recorded, m.now); !limited.Equal(recorded) {
		*of(m.change()) = limited
	}
}

// firstSeenOf returns when something of the target was observed first that began at a recorded time, and notes that it was observed now.
func (m *targetMeasurer) firstSeenOf(kind, object string, began time.Time) time.Time {
	key := m.key()
	key.kind, key.object, key.began = kind, object, began.Unix()
	return m.firstSeen(key, m.now)
}

// measureProof measures how long a proof is waited for.
func (m *targetMeasurer) measureProof() {
	p := m.target().Proof
	if m.Durations == nil || p == nil || p.Since.IsZero() {
		return
	}
	if observed := m.firstSeenOf("proof", "", p.Since); !observed.Equal(p.Observed) {
		proof := *p
		proof.Observed = observed
		m.change().Proof = &proof
	}
}

// measureHandover measures how long a step of a handover is asked.
func (m *targetMeasurer) measureHandover() {
	h := m.target().Handover
	if m.Durations == nil || h == nil || h.Done {
		return
	}
	if observed := m.firstSeenOf("handover", h.Step, h.Since); !observed.Equal(h.Observed) {
		handover := *h
		handover.Observed = observed
		m.change().Handover = &handover
	}
}

// measureDrift measures how long a check takes.
func (m *targetMeasurer) measureDrift() {
	d := m.target().Check
	if m.Durations == nil || d == nil || d.Object == "" {
		return
	}
	if observed := m.firstSeenOf("drift", d.Object, d.Created); !observed.Equal(d.Observed) {
		drift := *d
		drift.Observed = observed
		m.change().Check = &drift
	}
}

// measureTask measures the running attempt, and bounds the time of the last failure.
func (d *Durations) measureTask(k *rollout.Task, key durationKey, now time.Time) {
	key.item = k.ID
	if !k.Attempts.FailedAt.IsZero() {
		key.kind, key.number = "failed", k.Attempts.Failed
		k.Attempts.FailedAt = d.limit(key, k.Attempts.FailedAt, now)
	}
	if d == nil || k.Object.Name == "" || !k.HasDeadline() {
		return
	}
	key.number, key.object, key.began = 0, k.Object.Name, k.Attempts.Started.Unix()
	if k.Limit > 0 {
		key.kind = "attempt"
		k.Attempts.Observed = d.firstSeen(key, now)
	}
	if k.Object.Unpulled {
		key.kind = "unpulled"
		k.Object.UnpulledSince = d.firstSeen(key, now)
	}
}

// measureDrain sets since when the drain of a target waits for pods, and for how many, and keeps that until no pod is left.
func (m *targetMeasurer) measureDrain(drains map[drainKey]podDrain) {
	if m.Durations == nil || m.target().Drain.HeldAt.IsZero() {
		return
	}
	t := m.change()
	t.Drain.Since = m.now
	key := drainKey{m.rollout.Ref, t.UID}
	began, isKnown := m.drains[key]
	isOver := t.Drain.PodsSeen && len(t.Drain.Pods) == 0
	if !isKnown || isOver {
		return
	}
	t.Drain.Since, t.Drain.PodsCounted = earlierOf(began.since, m.now), began.pods
	drains[key] = podDrain{t.Drain.Since, began.pods}
}

// measureWait measures since when protected pods of a target are waited for, until they are seen to have ended: there are none, or only
// others. These may have come when nobody looked, so they are not evicted for what ran before them.
func (m *targetMeasurer) measureWait(waits map[drainKey]podWait) {
	t, now := m.target(), m.now
	if m.Durations == nil || !t.Drain.PodsSeen && !m.rollout.Drain.WaitFirst {
		return
	}
	key := drainKey{m.rollout.Ref, t.UID}
	wait, isKnown := m.waits[key]
	pods := t.ProtectedPods()
	goesOn := slices.ContainsFunc(pods, func(uid string) bool { return slices.Contains(wait.pods, uid) })
	switch {
	case goesOn:
		wait = podWait{earlierOf(wait.since, now), now, pods}
	case len(pods) > 0:
		wait = podWait{now, now, pods}
	case t.Drain.PodsSeen, !isKnown:
		return
	}
	waits[key] = wait
	t = m.change()
	t.Drain.ProtectedSince, t.Drain.ProtectedAt = wait.since, wait.seen
}

// RecordDrains notes which drains a plan has begun and which it no longer needs.
func (d *Durations) RecordDrains(s rollout.Snapshot, p rollout.Plan) {
	if d == nil || len(p.Draining)+len(d.drains) == 0 {
		return
	}
	drains := map[drainKey]int{} // pods
	for _, drain := range p.Draining {
		drains[drainKey{drain.Rollout, drain.UID}] = drain.All
	}
	sending := map[string]bool{}
	for i := range s.Nodes {
		sending[s.Nodes[i].Name] = s.Nodes[i].Sending
	}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		for _, t := range r.Targets {
			key := drainKey{r.Ref, t.UID}
			_, isKnown := d.drains[key]
			switch {
			case drains[key] > 0:
				d.drains[key] = podDrain{t.Drain.Since, drains[key]}
			case isKnown && t.Drain.PodsSeen && !sending[t.Node]:
				delete(d.drains, key)
			}
		}
	}
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// measurePull measures since when images are pulled.
func (m *targetMeasurer) measurePull() {
	p := m.target().Pull
	if m.Durations == nil || p == nil || p.Object == "" {
		return
	}
	if observed := m.firstSeenOf("pull", p.Object, p.Created); !observed.Equal(p.Observed) {
		pull := *p
		pull.Observed = observed
		m.change().Pull = &pull
	}
}
