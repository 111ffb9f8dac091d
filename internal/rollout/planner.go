// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"time"
)

// planner is a snapshot made ready to decide about: everything in a total order that does not depend on the order it
// came in, everything looked up once, and the plan as far as it is made.
type planner struct {
	*Snapshot
	nodes    []nodeState // in order of age, then name
	byName   map[string]*nodeState
	rollouts []rolloutState // earlier rollouts first
	targets  []targetState  // by queue, then by site
	groups   []groupState   // like Snapshot.Groups
	ledgers  []ledgerState  // like Snapshot.Ledgers, and those that groups name and nobody wrote yet
	board    taskBoard
	plan     Plan
}

// nodeState is a node and who is there.
type nodeState struct {
	*Node
	index       int          // in Snapshot.Nodes
	isReserved  bool         // an admission there is written in a ledger and not seen yet
	hasActions  bool         // in the plan; known once it is made
	rank        int          // in the total order
	isDuplicate bool         // an older node has the same name; nothing happens here
	firstTarget *targetState // targets on this node, earlier rollouts first
	occupant    *targetState // the admitted one
	objects     int          // objects of ours that may be at work here
	interrupted *targetState // whose interrupt may be at work here
	tainting    bool         // by this plan
	untainted   bool         // by this plan
}

// rolloutState is a rollout and its targets.
type rolloutState struct {
	*Rollout
	targets     []targetState
	unfinished  int           // targets that are not finished
	barrier     *rolloutState // an earlier rollout of the kind that lets nobody pass
	nextOrder   int           // order of the next admission, past all that were given or are promised
	givenOrder  int           // past those that were given
	title       string
	waitReasons map[Reason]Why
	graphs      []*graph
}

// targetState is one target: what it is, where it stands, and what the engine makes of it.
type targetState struct {
	target        *Target
	rollout       *rolloutState
	node          *nodeState // nil when there is no node of that name
	group         *groupState
	nextOnNode    *targetState // on the same node, of a later rollout
	index         int          // among the targets of the rollout
	invalid       *Why         // it makes no sense as it is
	graph         *graph
	exists        bool // the node is there, and is the one it was compiled for
	hasWork       bool
	hasFailed     bool // its outcome is a final failure
	isHeld        bool // by its rollout
	isSoaking     bool
	soakedAt      time.Time // when soaking ends
	isReserved    bool      // its seat is written in the ledger
	reservedOrder int       // as written there
	passesGates   bool      // all gates
	isRetired     bool      // retired by this plan with nothing owed
	isAdmittedNow bool      // admitted by this plan
	verdict       Verdict
}

// takesSeat says that a target takes a seat of its group. One that failed for good keeps it while its node is held or not
// ready, and while it is written to, which may be a hold; one that is not proven yet keeps it too.
func (t *targetState) takesSeat() bool {
	if !t.exists {
		return false
	}
	if t.target.Admitted {
		return !t.hasFailed || t.isHeld || t.node.Sending || !t.node.Ready
	}
	return t.isUnproven()
}

// isUnproven says that everything is done and does not count yet.
func (t *targetState) isUnproven() bool {
	return !t.hasWork && (t.isSoaking || t.target.Unproven != nil && t.group.isOfOpenBatch(t))
}

// isUnfinished says that the rollout still has something to do on the node.
func (t *targetState) isUnfinished() bool {
	switch {
	case t.target.Leaving:
		return t.target.Admitted
	case t.rollout.Once && t.target.Skipped:
		return false
	}
	return t.hasWork || t.target.Admitted || t.invalid != nil
}

// isUnreadable says that nobody knows what the target owes.
func (t *targetState) isUnreadable() bool {
	return t.target.Blocked != nil && t.target.Blocked.Reason == ReasonStateUnreadable
}

// isBypassed says that later rollouts do not wait for what this one owes: somebody disabled it, or it is wrong.
func (q *rolloutState) isBypassed() bool { return q.Paused && q.Yields || q.Broken != nil }

func newPlanner(s *Snapshot) *planner {
	p := &planner{Snapshot: s}
	p.addNodes()
	p.addLedgers()
	p.addGroups()
	p.addRollouts()
	for i := range p.targets {
		p.inspectTarget(&p.targets[i])
	}
	p.findBarriers()
	p.countOmitted()
	p.countBusyNodes()
	return p
}

func (p *planner) addNodes() {
	p.nodes = make([]nodeState, len(p.Nodes))
	for i := range p.Nodes {
		p.nodes[i].Node, p.nodes[i].index = &p.Nodes[i], i
	}
	older := func(a, b nodeState) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	}
	if !slices.IsSortedFunc(p.nodes, older) {
		slices.SortFunc(p.nodes, older)
	}
	p.byName = make(map[string]*nodeState, len(p.nodes))
	for i := range p.nodes {
		n := &p.nodes[i]
		n.rank = i
		if p.byName[n.Name] != nil {
			n.isDuplicate = true
			continue
		}
		p.byName[n.Name] = n
	}
}

func (p *planner) addRollouts() {
	p.rollouts = make([]rolloutState, len(p.Rollouts))
	total := 0
	for i := range p.Rollouts {
		p.rollouts[i].Rollout = &p.Rollouts[i]
		total += len(p.Rollouts[i].Targets)
	}
	slices.SortFunc(p.rollouts, func(a, b rolloutState) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Ref.Compare(b.Ref),
			cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.UID, b.UID))
	})
	p.targets = make([]targetState, 0, total)
	for i := range p.rollouts {
		q := &p.rollouts[i]
		q.title, q.nextOrder, q.givenOrder = q.Ref.Title(), max(q.NextOrder, q.OnTheirWay), q.NextOrder
		q.unfinished = q.omittedWork()
		from := len(p.targets)
		p.addTargets(q)
		q.targets = p.targets[from:]
		for j := range q.targets {
			if i > 0 && p.rollouts[i-1].Ref == q.Ref {
				q.targets[j].invalid = invalidReason("two rollouts are called " + q.Ref.String())
			}
			if j > 0 && q.targets[j].target.Node == q.targets[j-1].target.Node {
				q.targets[j].invalid = invalidReason("node " + q.targets[j].target.Node + " is listed twice")
			}
		}
	}
	for i := len(p.targets) - 1; i >= 0; i-- { // backwards, so that earlier rollouts come first
		if t := &p.targets[i]; t.node != nil {
			t.nextOnNode, t.node.firstTarget = t.node.firstTarget, t
		}
	}
}

// addTargets adds the targets of one rollout, in the order of their nodes; those without a node come last.
func (p *planner) addTargets(q *rolloutState) {
	from, at := len(p.targets), 0
	var g *groupState
	for i := range q.Targets {
		t := targetState{target: &q.Targets[i], rollout: q, index: i}
		name := t.target.Node
		if at < len(p.nodes) && p.nodes[at].Name == name && !p.nodes[at].isDuplicate { // mostly they come in the order of the nodes
			t.node = &p.nodes[at]
		} else {
			t.node = p.byName[name]
		}
		if t.node != nil {
			at = t.node.rank + 1
		}
		if g == nil || g.Ref != t.target.Group {
			g = p.findGroup(t.target.Group)
		}
		t.group = g
		p.targets = append(p.targets, t)
	}
	byNode := func(a, b targetState) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.target.Node, b.target.Node), cmp.Compare(a.target.UID, b.target.UID))
	}
	if added := p.targets[from:]; !slices.IsSortedFunc(added, byNode) {
		slices.SortStableFunc(added, byNode)
	}
}

func (t *targetState) rank() int {
	if t.node == nil {
		return 1 << 62
	}
	return t.node.rank
}

// inspectTarget finds out where one target stands.
func (p *planner) inspectTarget(t *targetState) {
	target := t.target
	t.exists = t.node != nil && !target.Gone && (target.UID == "" || t.node.UID == "" || target.UID == t.node.UID)
	if t.group == nil {
		t.group = &groupState{Group: &Group{Limit: 0}}
		if t.invalid == nil {
			t.invalid = invalidReason("its group " + target.Group.String() + " is unknown")
		}
	}
	t.hasFailed, t.hasWork = target.Skipped, t.isUnreadable()
	for i := range target.Tasks {
		task := &target.Tasks[i]
		if task.State != StateDone {
			t.hasWork = true
			t.hasFailed = t.hasFailed || target.Admitted && task.hasFinallyFailed()
		}
		if t.exists && (task.Object != "" && task.State != StateDone && task.State != StateSucceeded || task.Object == "" && task.Leaving) {
			t.node.objects++
			if task.Need == NeedAlone && t.node.interrupted == nil {
				t.node.interrupted = t
			}
		}
	}
	if !t.exists {
		t.hasWork = t.hasWork && t.rollout.Deleting
		return
	}
	t.node.objects += len(target.Strays) + len(target.Going)
	t.isHeld = isHeldBy(t.node.Node, t.rollout.Ref)
	if t.hasWork && t.invalid == nil {
		if t.graph = t.rollout.findGraph(target.Tasks); t.graph.problem != "" {
			t.invalid = invalidReason(t.graph.problem)
		}
	}
	if target.Admitted {
		if t.node.occupant == nil {
			t.node.occupant = t
		}
		t.rollout.givenOrder = max(t.rollout.givenOrder, target.Order+1)
		t.rollout.nextOrder = max(t.rollout.nextOrder, t.rollout.givenOrder)
	}
	if t.group.Soak > 0 && !t.hasWork && !target.Admitted && !target.FinishedAt.IsZero() {
		t.soakedAt = laterOf(target.FinishedAt, t.node.ReadyAt).Add(t.group.Soak)
		t.isSoaking = !t.node.Ready || p.Now.Before(t.soakedAt)
		p.requestNext(t.soakedAt)
	}
	if t.isUnfinished() {
		t.rollout.unfinished++
	}
}

func isHeldBy(n *Node, owner Ref) bool {
	for i := range n.Holds {
		if n.Holds[i].Owner == owner {
			return true
		}
	}
	return false
}

// findBarriers finds, for each rollout, the first earlier one of its kind that lets nobody pass.
func (p *planner) findBarriers() {
	for i := range p.rollouts {
		for j := 0; j < i && p.rollouts[i].barrier == nil; j++ {
			e := &p.rollouts[j]
			if e.Barrier && e.unfinished > 0 && e.Sequence == p.rollouts[i].Sequence && !e.isBypassed() {
				p.rollouts[i].barrier = e
			}
		}
	}
}

// requestNext makes sure that somebody looks again at that time.
func (p *planner) requestNext(at time.Time) {
	if at.After(p.Now) && (p.plan.Next.IsZero() || at.Before(p.plan.Next)) {
		p.plan.Next = at
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
