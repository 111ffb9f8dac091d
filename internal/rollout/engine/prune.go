// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Pruner makes decisions about a snapshot that only its own plans change, without evaluating every target each time. A
// node is idle when nothing is under way there and only an admission can change that. Idle nodes are left out of the
// decision, except for the next candidates of each rollout and group, and counted as Omitted instead. If the last of
// these candidates is refused for a reason that holds for all behind it, the plan is the one for the whole snapshot.
// Otherwise the decision is repeated with more candidates.
type Pruner struct {
	Width int // candidates of each rollout and group in the first attempt; 0 for one

	whole    *rollout.Snapshot
	nodes    []prunedNode // like Snapshot.Nodes
	queues   []candidateQueue
	nodeless []targetIndex
	kept     []int   // nodes of the last decision
	from     []int64 // Memory.From of each group at the last decision

	out     rollout.Snapshot // of the last decision; the next one reuses it
	targets [][]rollout.Target
	chosen  [][]int // by rollout: the targets of the last decision
	counts  []rollout.Omitted
}

type targetIndex struct{ rollout, target int }

type prunedNode struct {
	targets []prunedTarget // earlier rollouts first
	isIdle  bool
	isKept  bool
}

type prunedTarget struct {
	targetIndex
	queue, position int
	role            idleRole
}

// candidateQueue has the targets of one rollout in one group, in the order of their admission.
type candidateQueue struct {
	rollout    int
	candidates []queuedCandidate
	head       int             // no candidate before it waits on an idle node
	omitted    rollout.Omitted // all targets on idle nodes
}

type queuedCandidate struct {
	node    int
	isReady bool // on an idle node, with work, and only the limits stop it
}

// NewPruner returns nil for a snapshot in which targets disappear, because a rollout is being deleted, in which two
// nodes have the same name, or in which several rollouts share groups that come after others. Such a snapshot cannot be pruned.
func NewPruner(s *rollout.Snapshot) *Pruner {
	p := newPlanner(s, &buffers{})
	isDeleting := slices.ContainsFunc(s.Rollouts, func(r rollout.Rollout) bool { return r.Deleting })
	if isDeleting || len(p.ranks) != len(s.Nodes) || p.hasSharedWaves() {
		return nil
	}
	pr := &Pruner{
		whole:   s,
		nodes:   make([]prunedNode, len(s.Nodes)),
		from:    make([]int64, len(s.Groups)),
		targets: make([][]rollout.Target, len(s.Rollouts)),
		chosen:  make([][]int, len(s.Rollouts)),
	}
	for i := range p.rollouts {
		pr.addRollout(&p.rollouts[i])
	}
	for i := range pr.nodes {
		pr.keep(i)
	}
	return pr
}

// addRollout adds the targets of a rollout to their nodes and to one queue for each group.
func (pr *Pruner) addRollout(r *rolloutState) {
	for i := range r.targets {
		if t := &r.targets[i]; t.node == nil {
			pr.nodeless = append(pr.nodeless, targetIndex{r.index, t.index})
		}
	}
	queues := map[rollout.GroupRef]int{}
	for _, t := range r.sortedTargets(func(*targetState) bool { return true }) {
		at, isKnown := queues[t.target.Group]
		if !isKnown {
			at = len(pr.queues)
			queues[t.target.Group] = at
			pr.queues = append(pr.queues, candidateQueue{rollout: r.index, omitted: rollout.Omitted{Group: t.target.Group}})
		}
		pr.addTarget(t, at)
	}
}

func (pr *Pruner) addTarget(t *targetState, queue int) {
	q, n := &pr.queues[queue], &pr.nodes[t.node.index]
	n.targets = append(n.targets, prunedTarget{
		targetIndex: targetIndex{t.rollout.index, t.index},
		queue:       queue,
		position:    len(q.candidates),
	})
	q.candidates = append(q.candidates, queuedCandidate{node: t.node.index})
}

// Decide returns the plan for the whole snapshot, and the part of it that was evaluated. The reports of the plan cover
// that part only. Complete adds to the part what the whole snapshot does not contain. The part is valid until the next
// call.
func (pr *Pruner) Decide(complete func(*rollout.Snapshot)) (rollout.Snapshot, rollout.Plan) {
	pr.forgetOldBatches()
	for width := max(1, pr.Width); ; width *= 4 {
		last := pr.chooseNodes(width)
		s := pr.prune()
		complete(&s)
		p := newPlanner(&s, &buffers{})
		plan := p.decide()
		if pr.isComplete(p, last) {
			pr.updateIdle(p, plan)
			return s, plan
		}
	}
}

// isComplete reports whether no target that was left out would have been admitted. Last are the last candidates of
// queues in which others follow.
func (pr *Pruner) isComplete(p *planner, last []prunedTarget) bool {
	return !slices.ContainsFunc(last, func(l prunedTarget) bool {
		r := &pr.whole.Rollouts[l.rollout]
		t := p.findTarget(r.Ref, r.Targets[l.target].Node)
		return !isRefusedForAllBehind(t)
	})
}

// EachTarget calls do with the rollout and the target, by index in the whole snapshot, of all targets that were
// evaluated last. Nothing is under way for any other target.
func (pr *Pruner) EachTarget(do func(rollout, target int)) {
	for _, i := range pr.kept {
		for _, t := range pr.nodes[i].targets {
			do(t.rollout, t.target)
		}
	}
	for _, t := range pr.nodeless {
		do(t.rollout, t.target)
	}
}

// forgetOldBatches evaluates every node again when a batch begins with an earlier number than the last: other targets
// are its members now.
func (pr *Pruner) forgetOldBatches() {
	for i := range pr.whole.Groups {
		from := pr.whole.Groups[i].Memory.From
		if from < pr.from[i] {
			pr.keepAll()
		}
		pr.from[i] = from
	}
}

func (pr *Pruner) keepAll() {
	for i := range pr.nodes {
		pr.setIdle(i, false)
		pr.keep(i)
	}
}

func (pr *Pruner) keep(node int) {
	n := &pr.nodes[node]
	if !n.isKept {
		n.isKept = true
		pr.kept = append(pr.kept, node)
	}
}

// chooseNodes keeps all nodes that are not idle, and those of the first candidates of each queue. It returns the last
// of these candidates where others follow.
func (pr *Pruner) chooseNodes(width int) []prunedTarget {
	pr.kept = slices.DeleteFunc(pr.kept, func(i int) bool { // a node that is not kept is idle
		n := &pr.nodes[i]
		n.isKept = !n.isIdle
		return n.isIdle
	})
	var last []prunedTarget
	for i := range pr.queues {
		if position, hasMore := pr.keepCandidates(&pr.queues[i], width); hasMore {
			last = append(last, pr.findCandidate(i, position))
		}
	}
	slices.Sort(pr.kept)
	return last
}

// keepCandidates keeps the first candidates of a queue and returns the position of the last of them, and whether others
// follow.
func (pr *Pruner) keepCandidates(q *candidateQueue, width int) (last int, hasMore bool) {
	kept := 0
	for i := q.firstReady(); i < len(q.candidates); i++ {
		if !q.candidates[i].isReady {
			continue
		}
		if kept == width {
			return last, true
		}
		kept++
		last = i
		pr.keep(q.candidates[i].node)
	}
	return last, false
}

// firstReady returns the position of the first candidate that is ready, and remembers it.
func (q *candidateQueue) firstReady() int {
	for q.head < len(q.candidates) && !q.candidates[q.head].isReady {
		q.head++
	}
	return q.head
}

func (pr *Pruner) findCandidate(queue, position int) prunedTarget {
	node := pr.queues[queue].candidates[position].node
	return *find(pr.nodes[node].targets, func(t *prunedTarget) bool {
		return t.queue == queue && t.position == position
	})
}

// prune returns the snapshot of the nodes that are kept.
func (pr *Pruner) prune() rollout.Snapshot {
	s := &pr.out
	s.Now = pr.whole.Now
	s.Groups = append(s.Groups[:0], pr.whole.Groups...)
	s.Ledgers = append(s.Ledgers[:0], pr.whole.Ledgers...)
	s.Rollouts = append(s.Rollouts[:0], pr.whole.Rollouts...)
	s.Nodes = s.Nodes[:0]
	for _, i := range pr.kept {
		s.Nodes = append(s.Nodes, pr.whole.Nodes[i])
	}
	pr.addTargets(s)
	pr.addOmitted(s)
	return *s
}

// addTargets adds the targets on the nodes that are kept, and those without a node.
func (pr *Pruner) addTargets(s *rollout.Snapshot) {
	for r := range pr.chosen {
		pr.chosen[r] = pr.chosen[r][:0]
	}
	pr.EachTarget(func(r, t int) { pr.chosen[r] = append(pr.chosen[r], t) })
	for r := range s.Rollouts {
		slices.Sort(pr.chosen[r])
		copies := slices.Grow(pr.targets[r][:0], len(pr.chosen[r]))
		targets := make([]*rollout.Target, len(pr.chosen[r]))
		for i, t := range pr.chosen[r] {
			copies = append(copies, *pr.whole.Rollouts[r].Targets[t])
			targets[i] = &copies[i]
		}
		pr.targets[r] = copies
		s.Rollouts[r].Targets, s.Rollouts[r].Omitted = targets, nil
	}
}

// addOmitted adds the counts of the targets on idle nodes that are not kept.
func (pr *Pruner) addOmitted(s *rollout.Snapshot) {
	pr.counts = pr.counts[:0]
	for i := range pr.queues {
		pr.counts = append(pr.counts, pr.queues[i].omitted)
	}
	for _, i := range pr.kept {
		if !pr.nodes[i].isIdle {
			continue
		}
		for _, t := range pr.nodes[i].targets {
			countRole(&pr.counts[t.queue], t.role, -1)
		}
	}
	for i, o := range pr.counts {
		if o.Total() > 0 {
			r := &s.Rollouts[pr.queues[i].rollout]
			r.Omitted = append(r.Omitted, o)
		}
	}
}
