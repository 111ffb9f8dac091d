// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// StageTime is when a stage ran on a node, as the node records it.
type StageTime struct {
	Stage   string    `json:"stage"`
	At      time.Time `json:"at"`               // its begin
	Seconds int64     `json:"took"`             // with all attempts
	Failed  int       `json:"failed,omitempty"` // attempts before the one that succeeded
}

// longest limits what counts, because annotations are written by people, too. It is the longest stageTimeout.
const longest = 7 * 24 * time.Hour

// Took is how long it ran.
func (s StageTime) Took() time.Duration {
	return time.Duration(min(max(0, s.Seconds), int64(longest/time.Second))) * time.Second
}

// Runs are the last stages of one package on a node.
type Runs struct {
	Package string // name|version; empty for the tasks of a NodeOp
	Stages  []StageTime
}

// Basis is from what an estimate is known, the best first.
type Basis int

// The bases.
const (
	BasisVersion Basis = iota // runs of the same package version
	BasisPackage              // runs of any version of the package
	BasisOthers               // runs of other packages
	BasisAssumed              // nothing is recorded: AssumedStage
)

// AssumedStage is how long a stage takes when nothing is recorded.
const AssumedStage = 2 * time.Minute

const (
	slots      = 20 // nodes of an estimate
	enoughRuns = 5  // of a package version, so that others do not count
	// visits of a rollout that are read, of each kind
	maxSampled = 100
)

// Estimate is how long something takes on twenty nodes, the fastest first: each stands for a twentieth of all nodes.
type Estimate struct {
	Slots [slots]time.Duration
	Basis Basis
	Runs  int // that were recorded
}

// SlotOf returns the slot of a node by its place in the rollout. Nodes that follow each other have different ones.
func SlotOf(order int) int { return int(uint(10+7*order) % slots) }

// Of returns how long it takes on the node with this place in the rollout.
func (e *Estimate) Of(order int) time.Duration { return e.Slots[SlotOf(order)] }

// Median is what half of the nodes need at most.
func (e *Estimate) Median() time.Duration { return e.Slots[slots/2] }

// SlowTenth is what the slowest tenth of the nodes needs at least.
func (e *Estimate) SlowTenth() time.Duration { return e.Slots[slots-2] }

// Slowest returns how long it takes until this many nodes, from a place on, that begin together have ended.
func (e *Estimate) Slowest(order, nodes int) (out time.Duration) {
	for i := range min(nodes, slots) {
		out = max(out, e.Of(order+i))
	}
	return out
}

// InWindow returns how long it takes until this many nodes have ended, of which a number is worked on at a time.
func (e *Estimate) InWindow(order, nodes, atATime int) time.Duration {
	var sum time.Duration
	for i := range nodes {
		sum += e.Of(order + i)
	}
	return max(sum/time.Duration(atATime), e.Slowest(order, nodes))
}

// add lets something else follow.
func (e *Estimate) add(other *Estimate) {
	for i := range e.Slots {
		e.Slots[i] += other.Slots[i]
	}
}

// extend lets something else run at the same time.
func (e *Estimate) extend(other *Estimate) {
	for i := range e.Slots {
		e.Slots[i] = max(e.Slots[i], other.Slots[i])
	}
}

// Times are how long stages took on the nodes, and the rest of the visits: cordon, drain, proof and the time between stages.
type Times struct{ known map[series]*Estimate }

// series names runs that are alike. Those of several packages or stages have "*" for them.
type series struct{ pkg, stage string }

const anything, restOfVisit = "*", ""

// NewTimes reads the times that targets recorded; none if no target has work. Of a large rollout it reads a sample.
func NewTimes(rollouts []Rollout) Times {
	hasWork := func(t *Target) bool { return len(t.Tasks) > 0 }
	if !slices.ContainsFunc(rollouts, func(r Rollout) bool { return slices.ContainsFunc(r.Targets, hasWork) }) {
		return Times{}
	}
	all := map[series][]time.Duration{}
	add := func(pkg, stage string, took time.Duration) {
		all[series{pkg, stage}] = append(all[series{pkg, stage}], took)
	}
	for i := range rollouts {
		own := "|" + rollouts[i].Ref.String()
		rollouts[i].eachSampled(func(v *Visit) {
			for _, runs := range v.Runs {
				for _, s := range runs.Stages {
					add(cmp.Or(runs.Package, own), s.Stage, s.Took())
				}
			}
			if rest, isKnown := v.rest(); isKnown {
				add(own, restOfVisit, rest)
			}
		})
	}
	return summarize(all)
}

// eachSampled calls a function with some visits that recorded stages: of targets that were admitted since the rollout has work, and of others.
func (r *Rollout) eachSampled(do func(*Visit)) {
	var total, seen [2]int
	each := func(do func(kind int, v *Visit)) {
		for _, t := range r.Targets {
			switch isNew := !r.Since.IsZero() && !t.Visit.LastAdmittedAt.Before(r.Since); {
			case len(t.Visit.Runs) == 0:
			case isNew:
				do(1, &t.Visit)
			default:
				do(0, &t.Visit)
			}
		}
	}
	each(func(kind int, _ *Visit) { total[kind]++ })
	each(func(kind int, v *Visit) {
		if seen[kind]%(1+(total[kind]-1)/maxSampled) == 0 {
			do(v)
		}
		seen[kind]++
	})
}

// rest returns the part of a visit in which no stage ran; it is unknown when none is recorded.
func (v *Visit) rest() (rest time.Duration, isKnown bool) {
	if v.Took <= 0 {
		return 0, false
	}
	var stages []StageTime
	for _, runs := range v.Runs {
		for _, s := range runs.Stages {
			if !s.At.Before(v.LastAdmittedAt) {
				stages = append(stages, s)
			}
		}
	}
	slices.SortFunc(stages, func(a, b StageTime) int { return a.At.Compare(b.At) })
	end := v.LastAdmittedAt
	rest = v.Took
	for _, s := range stages { // several may run at the same time
		if ends := s.At.Add(s.Took()); ends.After(end) {
			rest -= ends.Sub(LaterOf(s.At, end))
			end = ends
		}
	}
	return min(max(0, rest), longest), len(stages) > 0
}

// summarize makes estimates of runs, and of what several of them have in common.
func summarize(all map[series][]time.Duration) Times {
	t, common, runs := Times{map[series]*Estimate{}}, map[series][]time.Duration{}, map[series]int{}
	for key, took := range all {
		e := newEstimate(took, BasisVersion, len(took))
		t.known[key] = e
		name, _, _ := strings.Cut(key.pkg, "|")
		above := []series{{name, key.stage}}
		if key.stage != restOfVisit {
			above = append(above, series{anything, key.stage}, series{anything, anything})
		}
		for _, a := range above {
			common[a], runs[a] = append(common[a], e.Slots[:]...), runs[a]+len(took)
		}
	}
	for key, took := range common {
		basis := BasisPackage
		if key.pkg == anything {
			basis = BasisOthers
		}
		t.known[key] = newEstimate(took, basis, runs[key])
	}
	return t
}

func newEstimate(took []time.Duration, basis Basis, runs int) *Estimate {
	slices.Sort(took)
	e := &Estimate{Basis: basis, Runs: runs}
	for i := range e.Slots {
		e.Slots[i] = took[(2*i+1)*len(took)/(2*slots)]
	}
	return e
}

// Task estimates a task of a rollout.
func (t Times) Task(r *Rollout, id string) *Estimate {
	pkg, stage := "|"+r.Ref.String(), id
	if at := strings.LastIndexByte(id, '/'); at >= 0 {
		pkg, stage = id[:at], id[at+1:]
	}
	if e := t.find(pkg, stage); e != nil {
		return e
	}
	for _, key := range []series{{anything, stage}, {anything, anything}} {
		if e := t.known[key]; e != nil {
			return e
		}
	}
	e := &Estimate{Basis: BasisAssumed}
	for i := range e.Slots {
		e.Slots[i] = AssumedStage
	}
	return e
}

// Rest estimates the part of a visit in which no stage runs; nothing if no visit is recorded.
func (t Times) Rest(r *Rollout) *Estimate {
	if e := t.find("|"+r.Ref.String(), restOfVisit); e != nil {
		return e
	}
	return &Estimate{Basis: BasisAssumed}
}

// find returns the estimate of a package version, or of all versions if there are few runs of this one; nil if there are none.
func (t Times) find(pkg, stage string) *Estimate {
	name, _, _ := strings.Cut(pkg, "|")
	e, all := t.known[series{pkg, stage}], t.known[series{name, stage}]
	if e != nil && (e.Runs >= enoughRuns || e.Runs == all.Runs) {
		return e
	}
	return all
}

// Visit estimates a visit of a node on which these tasks are not done, by the longest chain of tasks that wait for each other. Its basis
// is that of the task of which least is known.
func (t Times) Visit(r *Rollout, tasks []Task) Estimate {
	v := visitEstimator{t, r, tasks, map[string]*Estimate{}}
	out := Estimate{Runs: math.MaxInt}
	for i := range tasks {
		if tasks[i].State == StateDone {
			continue
		}
		k := t.Task(r, tasks[i].ID)
		if k.Basis > out.Basis {
			out.Basis, out.Runs = k.Basis, k.Runs
		}
		if k.Basis == out.Basis {
			out.Runs = min(out.Runs, k.Runs)
		}
		if r.Serial {
			out.add(k)
		} else {
			out.extend(v.endOf(tasks[i].ID))
		}
	}
	out.add(t.Rest(r))
	return out
}

// visitEstimator knows when the tasks of a visit end, after its first one began.
type visitEstimator struct {
	times   Times
	rollout *Rollout
	tasks   []Task
	ends    map[string]*Estimate
}

func (v visitEstimator) endOf(id string) *Estimate {
	if end := v.ends[id]; end != nil {
		return end
	}
	end := &Estimate{}
	v.ends[id] = end // of a task that waits for itself
	at := slices.IndexFunc(v.tasks, func(k Task) bool { return k.ID == id })
	if at < 0 || v.tasks[at].State == StateDone {
		return end
	}
	for _, before := range v.tasks[at].After {
		end.extend(v.endOf(before))
	}
	end.add(v.times.Task(v.rollout, id))
	return end
}
