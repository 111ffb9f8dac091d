// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import "slices"

// Pruner decides again and again about a snapshot that only its own plans change, without looking at every target each
// time. A node is at rest when nothing is under way there and only an admission can change that. Nodes at rest are left
// out of what is decided about, except for the next candidates of each rollout and group, and counted as Omitted
// instead. When the last of these candidates is refused for a reason that holds for all behind it, the plan is the one
// for the whole snapshot; otherwise more candidates are looked at.
type Pruner struct {
	Width int // candidates of each rollout and group that are looked at first; 0 for one

	whole    *Snapshot
	nodes    []prunedNode // like Snapshot.Nodes
	lines    []candidateLine
	nodeless []targetIndex
	kept     []int   // nodes of the last decision
	from     []int64 // Memory.From of each group at the last decision

	out     Snapshot // shown to the last decision; the next one reuses it
	targets [][]Target
	chosen  [][]int // by rollout: the targets shown
	counts  []Omitted
}

type targetIndex struct{ rollout, target int }

type prunedNode struct {
	targets []prunedTarget // earlier rollouts first
	resting bool
	kept    bool
}

type prunedTarget struct {
	targetIndex
	line, at int // its place in a line
	role     restingRole
}

// restingRole is what a target on a node at rest counts as.
type restingRole int

const (
	roleFinished restingRole = iota
	roleWaiting
	roleBlocked
)

// candidateLine are the targets of one rollout in one group, in the order of their admission.
type candidateLine struct {
	rollout    int
	candidates []lineCandidate
	head       int     // nobody before waits on a node at rest
	omitted    Omitted // all that are on nodes at rest
}

type lineCandidate struct {
	node    int
	waiting bool // on a node at rest
}

// NewPruner returns nil for a snapshot in which targets disappear, because a rollout is being deleted, or in which two
// nodes have the same name. Such a snapshot is decided about as a whole.
func NewPruner(s *Snapshot) *Pruner {
	p := newPlanner(s)
	isDeleting := slices.ContainsFunc(s.Rollouts, func(r Rollout) bool { return r.Deleting })
	if isDeleting || len(p.byName) != len(s.Nodes) {
		return nil
	}
	pr := &Pruner{
		whole: s, nodes: make([]prunedNode, len(s.Nodes)), from: make([]int64, len(s.Groups)),
		targets: make([][]Target, len(s.Rollouts)), chosen: make([][]int, len(s.Rollouts)),
	}
	for i := range p.rollouts {
		pr.addLines(p, &p.rollouts[i])
	}
	for i := range pr.nodes {
		pr.keep(i)
	}
	return pr
}

// addLines adds the targets of a rollout to the lines of its groups and to their nodes.
func (pr *Pruner) addLines(p *planner, q *rolloutState) {
	r, first := p.indexOfRollout(q.Rollout), len(pr.lines)
	for i := range q.targets {
		if t := &q.targets[i]; t.node == nil {
			pr.nodeless = append(pr.nodeless, targetIndex{r, t.index})
		}
	}
	for _, t := range q.sortedTargets(func(*targetState) bool { return true }) {
		at := slices.IndexFunc(pr.lines[first:], func(l candidateLine) bool { return l.omitted.Group == t.target.Group })
		if at < 0 {
			at = len(pr.lines) - first
			pr.lines = append(pr.lines, candidateLine{rollout: r, omitted: Omitted{Group: t.target.Group}})
		}
		l := &pr.lines[first+at]
		n := &pr.nodes[t.node.index]
		n.targets = append(n.targets, prunedTarget{targetIndex: targetIndex{r, t.index}, line: first + at, at: len(l.candidates)})
		l.candidates = append(l.candidates, lineCandidate{node: t.node.index})
	}
}

// Decide returns the plan for the whole snapshot, and the part of it that was decided about. The reports of the plan
// cover that part only. Complete fills in what the whole snapshot does not hold. The part is valid until the next call.
func (pr *Pruner) Decide(complete func(*Snapshot)) (Snapshot, Plan) {
	pr.forgetOldBatches()
	for width := max(1, pr.Width); ; width *= 4 {
		last := pr.chooseNodes(width)
		s := pr.prune()
		complete(&s)
		p := newPlanner(&s)
		plan := p.decide()
		if pr.isWhole(p, last) {
			pr.updateResting(p, plan)
			return s, plan
		}
	}
}

// isWhole reports whether nobody who was left out would have been admitted. Last are candidates with others behind them.
func (pr *Pruner) isWhole(p *planner, last []prunedTarget) bool {
	for _, l := range last {
		r := &pr.whole.Rollouts[l.rollout]
		if !p.refusesAllBehind(p.findTarget(r.Ref, r.Targets[l.target].Node)) {
			return false
		}
	}
	return true
}

// EachTarget calls do with the rollout and the target, by index in the whole snapshot, of all targets that were decided
// about last. Nothing is under way for any other target.
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

// forgetOldBatches looks at every node again when a batch begins with an earlier number than the last: other targets
// are its members now.
func (pr *Pruner) forgetOldBatches() {
	for i := range pr.whole.Groups {
		from := pr.whole.Groups[i].Memory.From
		if from < pr.from[i] {
			for j := range pr.nodes {
				pr.setResting(j, false)
				pr.keep(j)
			}
		}
		pr.from[i] = from
	}
}

// chooseNodes keeps all nodes that are not at rest, and those of the first candidates of each line. It returns the last
// of these candidates where others follow.
func (pr *Pruner) chooseNodes(width int) []prunedTarget {
	pr.kept = slices.DeleteFunc(pr.kept, func(i int) bool { // whoever else was not at rest would be among them
		pr.nodes[i].kept = !pr.nodes[i].resting
		return pr.nodes[i].resting
	})
	var last []prunedTarget
	for i := range pr.lines {
		if at, omits := pr.keepCandidates(&pr.lines[i], width); omits {
			last = append(last, pr.targetAt(i, at))
		}
	}
	slices.Sort(pr.kept)
	return last
}

func (pr *Pruner) keep(node int) {
	if !pr.nodes[node].kept {
		pr.nodes[node].kept = true
		pr.kept = append(pr.kept, node)
	}
}

// keepCandidates keeps the first candidates of a line and returns the position of the last of them, and whether others
// follow.
func (pr *Pruner) keepCandidates(l *candidateLine, width int) (last int, omits bool) {
	for l.head < len(l.candidates) && !l.candidates[l.head].waiting {
		l.head++
	}
	kept := 0
	for i := l.head; i < len(l.candidates); i++ {
		if !l.candidates[i].waiting {
			continue
		}
		if kept == width {
			return last, true
		}
		kept++
		last = i
		pr.keep(l.candidates[i].node)
	}
	return last, false
}

func (pr *Pruner) targetAt(line, at int) prunedTarget {
	targets := pr.nodes[pr.lines[line].candidates[at].node].targets
	return targets[slices.IndexFunc(targets, func(t prunedTarget) bool { return t.line == line && t.at == at })]
}

// prune makes the snapshot of the nodes that are kept.
func (pr *Pruner) prune() Snapshot {
	s := &pr.out
	nodes, groups, ledgers, rollouts := s.Nodes[:0], s.Groups[:0], s.Ledgers[:0], s.Rollouts[:0]
	*s = Snapshot{
		Now: pr.whole.Now, Nodes: nodes, Groups: append(groups, pr.whole.Groups...),
		Ledgers: append(ledgers, pr.whole.Ledgers...), Rollouts: append(rollouts, pr.whole.Rollouts...),
	}
	pr.counts = pr.counts[:0]
	for i := range pr.lines {
		pr.counts = append(pr.counts, pr.lines[i].omitted)
	}
	for r := range pr.chosen {
		pr.chosen[r] = pr.chosen[r][:0]
	}
	for _, i := range pr.kept {
		s.Nodes = append(s.Nodes, pr.whole.Nodes[i])
		for _, t := range pr.nodes[i].targets {
			if pr.nodes[i].resting {
				pr.counts[t.line].add(t.role, -1)
			}
		}
	}
	pr.EachTarget(func(r, t int) { pr.chosen[r] = append(pr.chosen[r], t) })
	for r := range s.Rollouts {
		slices.Sort(pr.chosen[r])
		targets := pr.targets[r][:0]
		for _, t := range pr.chosen[r] {
			targets = append(targets, pr.whole.Rollouts[r].Targets[t])
		}
		pr.targets[r], s.Rollouts[r].Targets, s.Rollouts[r].Omitted = targets, targets, nil
	}
	for i, o := range pr.counts {
		if o.Finished+o.Waiting+o.Blocked > 0 {
			r := &s.Rollouts[pr.lines[i].rollout]
			r.Omitted = append(r.Omitted, o)
		}
	}
	return *s
}

// updateResting finds out which of the nodes that were decided about are at rest now.
func (pr *Pruner) updateResting(p *planner, plan Plan) {
	for i := range plan.Actions {
		if n := p.byName[plan.Actions[i].Node]; n != nil {
			n.hasActions = true
		}
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		at := pr.kept[n.index]
		pr.setResting(at, false)
		if !p.isResting(n) {
			continue
		}
		for j, t := 0, n.firstTarget; t != nil; j, t = j+1, t.nextOnNode {
			pr.nodes[at].targets[j].role = p.restingRole(t)
		}
		pr.setResting(at, true)
	}
}

// setResting counts the targets of a node as omitted, or as omitted no longer.
func (pr *Pruner) setResting(node int, resting bool) {
	n := &pr.nodes[node]
	if n.resting == resting {
		return
	}
	n.resting = resting
	by := -1
	if resting {
		by = 1
	}
	for _, t := range n.targets {
		l := &pr.lines[t.line]
		l.omitted.add(t.role, by)
		if l.candidates[t.at].waiting = resting && t.role == roleWaiting; l.candidates[t.at].waiting {
			l.head = min(l.head, t.at)
		}
	}
}

func (o *Omitted) add(role restingRole, n int) {
	switch role {
	case roleFinished:
		o.Finished += n
	case roleWaiting:
		o.Waiting += n
	case roleBlocked:
		o.Blocked += n
	}
}

// countOmitted counts the targets that a snapshot leaves out.
func (p *planner) countOmitted() {
	for i := range p.rollouts {
		q := &p.rollouts[i]
		admits := !q.Paused && q.Broken == nil && q.barrier == nil
		for _, o := range q.Omitted {
			g := p.findGroup(o.Group)
			if g == nil {
				continue
			}
			g.total += o.Finished + o.Waiting + o.Blocked
			g.finished += o.Finished
			if admits {
				g.candidates += o.Waiting
			}
		}
	}
}

// omittedWork is how many targets with work a snapshot leaves out.
func (r *Rollout) omittedWork() int {
	n := 0
	for _, o := range r.Omitted {
		n += o.Waiting + o.Blocked
	}
	return n
}

// isResting reports whether only an admission can change anything on a node.
func (p *planner) isResting(n *nodeState) bool {
	isBusy := n.hasActions || n.Sending || n.isReserved || n.objects > 0 || len(n.Holds) > 0 || n.occupant != nil
	if isBusy || !n.Ready {
		return false
	}
	for t := n.firstTarget; t != nil; t = t.nextOnNode {
		if !t.isResting() {
			return false
		}
	}
	return true
}

// isResting reports whether a target counts for nothing but what Omitted counts.
func (t *targetState) isResting() bool {
	switch {
	case t.invalid != nil, !t.exists, t.isSoaking:
		return false
	case t.target.Admitted, t.target.Leaving, t.target.Skipped, t.target.Unproven != nil:
		return false
	case t.group.taken[t.target.Node] > 0: // it counts for its topology
		return false
	}
	return !t.group.usesBatches() || t.target.Batch < max(1, t.group.Memory.From) // it is no member of the open batch
}

func (p *planner) restingRole(t *targetState) restingRole {
	if !t.hasWork {
		return roleFinished
	}
	for i := range gates {
		if gates[i].ofRollout {
			continue
		}
		if _, blocks := gates[i].blocks(p, t); blocks {
			return roleBlocked
		}
	}
	return roleWaiting
}

// refusesAllBehind reports whether a candidate was refused for a reason that holds for all candidates of its rollout and
// group behind it. The candidate is on a node at rest, so only a gate of the whole rollout can have stopped it.
func (p *planner) refusesAllBehind(t *targetState) bool {
	if !t.passesGates {
		return true
	}
	if t.verdict.Phase != PhaseWaiting {
		return false
	}
	switch t.verdict.Why.Reason {
	case ReasonBudget, ReasonBatch, ReasonStopped, ReasonLedger:
		return true
	}
	return t.group.Frozen != nil
}
