// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package schedule says which faults happen when in a run of chaos. A schedule is a function of its seed.
package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is what an event breaks.
type Kind string

// The kinds. Those of the first group kill the operator.
const (
	KillPods    Kind = "kill the operator's pods"
	KillProcess Kind = "kill the leader's process"
	DieBefore   Kind = "kill the operator before a write"
	DieAfter    Kind = "kill the operator after a write, before its response"

	FreezeLeader  Kind = "freeze the leader and let another one lead"
	StealLease    Kind = "take the lease away"
	RefuseWrites  Kind = "refuse writes of the operator"
	HangUpBefore  Kind = "lose requests of the operator"
	HangUpAfter   Kind = "lose responses to the operator"
	DelayRequests Kind = "delay requests of the operator"
	CutWatches    Kind = "cut the operator's watches"

	RestartAPIServer Kind = "restart the API server"
	RestartEtcd      Kind = "restart etcd"
	HideImages       Kind = "remove images from a node and from the registry"
	DeletePod        Kind = "delete a pod of a package by hand"
	DeleteWorkload   Kind = "delete a pod of the workload by hand"

	CutPower          Kind = "cut the power"
	CutCompact        Kind = "cut the power while a script of the compact Skyhook runs"
	HangReboot        Kind = "let a reboot hang"
	CutNetwork        Kind = "cut the network"
	RestartKubelet    Kind = "restart the kubelet"
	RestartContainerd Kind = "restart containerd"
	FillDisk          Kind = "fill the disk"
	WrongClock        Kind = "set the clock wrong"
)

// killing are the kinds that kill the operator.
var killing = []Kind{KillPods, KillProcess, DieBefore, DieAfter}

// Stages are the stages during which CutPower cuts the power, one after the other. When an event meets none of its stage for half of its
// time, it takes any.
var Stages = []string{"apply", "config", "interrupt", "post-interrupt", "upgrade", "uninstall"}

// CompactStages are the stages during which CutCompact cuts the power. An event takes the one that runs first of those that were cut
// least often so far, and after half of its time any.
var CompactStages = []string{"apply", "config", "upgrade", "interrupt", "post-interrupt"}

// codes are the HTTP statuses with which RefuseWrites answers, in turn.
var codes = []int{409, 422, 429, 500}

// Event is one fault.
type Event struct {
	At    time.Duration // since the beginning
	For   time.Duration // at most, until what it broke works again; 0 for what happens at once
	Kind  Kind
	Node  string        // of the faults of nodes
	Stage string        // CutPower: during this stage, on whatever node it runs first
	Index int           // DieBefore and DieAfter: so many writes pass first; DeletePod and DeleteWorkload: which one
	Code  int           // RefuseWrites: HTTP status
	Skew  time.Duration // WrongClock
}

// String is the event's line of a time line.
func (e Event) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%7s  %s", e.At.Round(time.Second), e.Kind)
	for _, detail := range []struct {
		isGiven bool
		text    string
	}{
		{e.Node != "", " on " + e.Node},
		{e.Stage != "", " during " + e.Stage},
		{e.Kind == DieBefore || e.Kind == DieAfter, fmt.Sprintf(" number %d", e.Index+1)},
		{e.Code != 0, fmt.Sprintf(" with %d", e.Code)},
		{e.Skew != 0, fmt.Sprintf(" by %s", e.Skew)},
		{e.For != 0, fmt.Sprintf(", %s", e.For.Round(time.Second))},
	} {
		if detail.isGiven {
			text.WriteString(detail.text)
		}
	}
	return text.String()
}

// IsKill reports whether the event kills the operator.
func (e Event) IsKill() bool { return slices.Contains(killing, e.Kind) }

// lane is a sequence of events of which one ends before the next begins.
type lane struct {
	kinds    []Kind
	min, max time.Duration // between two events
}

// lanes run beside each other. In the first every second event kills the operator. The third breaks one node at a time, so that
// the others make progress.
var lanes = []lane{
	{kinds: []Kind{FreezeLeader, StealLease, RefuseWrites, HangUpBefore, HangUpAfter, DelayRequests, CutWatches}, min: 3 * time.Second, max: 9 * time.Second},
	{kinds: []Kind{RestartAPIServer, RestartEtcd, HideImages, DeletePod, DeleteWorkload, DeletePod}, min: 12 * time.Second, max: 30 * time.Second},
	{kinds: []Kind{CutPower, HangReboot, CutNetwork, RestartKubelet, RestartContainerd, FillDisk, WrongClock, CutPower, CutCompact, CutCompact}, min: 8 * time.Second, max: 20 * time.Second},
}

// longest is how long each kind lasts at most; kinds that are left out happen at once.
var longest = map[Kind]time.Duration{
	DieBefore: 15 * time.Second, DieAfter: 15 * time.Second, FreezeLeader: 20 * time.Second,
	RefuseWrites: 10 * time.Second, HangUpBefore: 12 * time.Second, HangUpAfter: 12 * time.Second, DelayRequests: 12 * time.Second,
	HideImages: 25 * time.Second,
	CutPower:   40 * time.Second, CutCompact: 90 * time.Second, HangReboot: 80 * time.Second, CutNetwork: 2 * time.Minute, FillDisk: 30 * time.Second, WrongClock: 45 * time.Second,
}

// New returns the events of a run of this length on these nodes. All are over when it ends.
func New(seed uint64, length time.Duration, nodes []string) []Event {
	random := rand.New(rand.NewPCG(seed, 0))
	var all []Event
	for i, l := range lanes {
		all = append(all, l.fill(random, length, nodes, i == 0)...)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all
}

// fill draws the events of a lane. All kinds come before one comes again.
func (l lane) fill(random *rand.Rand, length time.Duration, nodes []string, alternatesWithKills bool) (events []Event) {
	others, kills := &bag{kinds: l.kinds}, &bag{kinds: killing}
	cuts, refusals := random.IntN(len(Stages)), random.IntN(len(codes))
	for at := between(random, l.min, l.max); ; {
		kinds := others
		if alternatesWithKills && len(events)%2 == 0 {
			kinds = kills
		}
		e := drawEvent(random, kinds.draw(random), nodes)
		e.At = at
		switch e.Kind {
		case CutPower:
			e.Stage = Stages[cuts%len(Stages)]
			cuts++
		case RefuseWrites:
			e.Code = codes[refusals%len(codes)]
			refusals++
		}
		if e.Kind == CutNetwork && length < 10*time.Minute {
			e.For = 40 * time.Second // a short run is not spent on waiting
		}
		if at+e.For > length {
			return events
		}
		events = append(events, e)
		at += e.For + between(random, l.min, l.max)
	}
}

func drawEvent(random *rand.Rand, kind Kind, nodes []string) Event {
	e := Event{Kind: kind, Index: random.IntN(12), Node: nodes[random.IntN(len(nodes))]}
	skew := []time.Duration{-2 * time.Hour, -time.Minute, time.Minute, 26 * time.Hour}[random.IntN(4)]
	if most := longest[kind]; most > 0 {
		e.For = between(random, most/2, most)
	}
	switch kind {
	case WrongClock:
		e.Skew = skew
	case FreezeLeader, CutNetwork:
		e.For = longest[kind] // longer than the lease of the leader, and the full two minutes
	}
	if !slices.Contains(lanes[2].kinds, kind) && kind != HideImages {
		e.Node = ""
	}
	return e
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(random.Int64N(int64(most-least)+1))).Round(100 * time.Millisecond)
}

// bag gives each of its kinds once, in random order, and then all of them again.
type bag struct{ kinds, left []Kind }

func (b *bag) draw(random *rand.Rand) Kind {
	if len(b.left) == 0 {
		b.left = slices.Clone(b.kinds)
		random.Shuffle(len(b.left), func(i, j int) { b.left[i], b.left[j] = b.left[j], b.left[i] })
	}
	kind := b.left[0]
	b.left = b.left[1:]
	return kind
}

// TimeLine prints events, one on each line.
func TimeLine(events []Event) string {
	var text strings.Builder
	for _, e := range events {
		text.WriteString(e.String() + "\n")
	}
	return text.String()
}

// Lane is the number of the sequence that the event belongs to: of its events one ends before the next begins.
func (e Event) Lane() int {
	for i, l := range lanes {
		if slices.Contains(l.kinds, e.Kind) {
			return i
		}
	}
	return 0
}

// BreaksNode reports whether a node, or its pods, do not work until the event is over.
func (e Event) BreaksNode() bool { return slices.Contains(lanes[2].kinds, e.Kind) }
