// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"sync"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/graph"
)

// planner is a snapshot with everything looked up once, in a total order that does not depend on the order of the
// input, and the plan as far as it is made.
type planner struct {
	*rollout.Snapshot
	nodes    []nodeState    // by age, then name
	ranks    map[string]int // by name
	rollouts []rolloutState // by priority, then reference
	targets  []targetState  // by rollout, then by node
	groups   []groupState   // like Snapshot.Groups
	ledgers  []ledgerState  // like Snapshot.Ledgers, and those that groups name and that are not written yet
	board    taskBoard      // reused for each target
	plan     draftPlan
}

// nodeState is a node and the targets on it.
type nodeState struct {
	*rollout.Node
	index       int          // in Snapshot.Nodes
	isReserved  bool         // an admission to it is written in a ledger and not observed yet
	hasActions  bool         // in the plan; known once the plan is complete
	rank        int          // in the total order
	isDuplicate bool         // an older node has the same name; nothing is planned for this one
	firstTarget *targetState // targets on this node, earlier rollouts first
	occupant    *targetState // the admitted one
	// an admitted target here shares its reboots, or did, or several are admitted: one at a time works here
	sharesReboots bool
	awaitsReboot  bool         // with sharesReboots: all that are admitted only await it
	turn          *targetState // with sharesReboots: the one that works here; nil if all that can work await the reboot
	joining       *targetState // admitted by this plan, to share the reboot
	objects       int          // objects of ours that may be running here
	interrupted   *targetState // whose interrupt may be running here
	tainting      bool         // by this plan
	untainted     bool         // by this plan
}

// rolloutState is a rollout and its targets.
type rolloutState struct {
	*rollout.Rollout
	index      int // in Snapshot.Rollouts
	targets    []targetState
	unfinished int           // targets that are not finished
	barrier    *rolloutState // the earlier rollout of the sequence that must finish on all nodes first
	// an unfinished target, in a group that others come after, waits for another rollout
	isBehindOther bool
	candidates    []*targetState // for admission, in the order in which they are admitted
	nextOrder     int            // order of the next admission, above all orders that are given or reserved
	givenOrder    int            // above all orders that are given
	title         string
	waitReasons   map[waitKey]rollout.Why
	rollback      *rollout.Why             // a target rolls or rolled back, so that nothing new begins; see stopReason
	exclusive     map[string]exclusiveTask // by key; found when the first task asks for it
	graphs        graph.Shapes
}

// isBypassed reports whether later rollouts do not wait for this one: it is disabled, or cannot be compiled.
func (r *rolloutState) isBypassed() bool {
	isDisabled := r.Paused && r.Yields
	return isDisabled || r.Broken != nil
}

// buffers have what a planner looks up of nodes and targets. Decisions reuse them one after the other, because there are several a second.
type buffers struct {
	nodes   []nodeState
	targets []targetState
	ranks   map[string]int
	names   []string // of nodes by rank; ranks has these
}

var spareBuffers = sync.Pool{New: func() any { return &buffers{} }}

// release gives the buffers to another planner. No plan refers to them.
func (b *buffers) release() {
	clear(b.nodes)
	clear(b.targets)
	spareBuffers.Put(b)
}

// newPlanner looks up everything in a snapshot. It decides nothing.
func newPlanner(s *rollout.Snapshot, b *buffers) *planner {
	p := &planner{Snapshot: s}
	p.plan.now, p.plan.times = s.Now, s.Times
	p.addNodes(b)
	p.addLedgers()
	p.addGroups()
	p.addRollouts(b)
	for i := range p.targets {
		inspector{&p.targets[i]}.inspect(&p.plan)
	}
	p.findBarriers()
	p.findWaves()
	usageCounter{p}.countUsage()
	rebootSharer{p}.findTurns()
	return p
}

func (p *planner) addNodes(b *buffers) {
	b.nodes = resize(b.nodes, len(p.Nodes))
	p.nodes = b.nodes
	for i := range p.Nodes {
		p.nodes[i].Node, p.nodes[i].index = &p.Nodes[i], i
	}
	byAge := func(a, b nodeState) int {
		return cmp.Or(
			a.Created.Compare(b.Created),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID),
		)
	}
	sortStable(p.nodes, byAge)
	b.rankNodes()
	p.ranks = b.ranks
}

// rankNodes gives the nodes their ranks. Of several with one name the first counts.
func (b *buffers) rankNodes() {
	isSame := len(b.nodes) == len(b.names) && len(b.nodes) == len(b.ranks) // no two have one name
	for i := range b.nodes {
		b.nodes[i].rank = i
		isSame = isSame && b.nodes[i].Name == b.names[i]
	}
	if isSame {
		return
	}
	b.ranks, b.names = make(map[string]int, len(b.nodes)), make([]string, len(b.nodes))
	for i := range b.nodes {
		n := &b.nodes[i]
		if _, n.isDuplicate = b.ranks[n.Name]; !n.isDuplicate {
			b.ranks[n.Name] = i
		}
		b.names[i] = n.Name
	}
}

// resize returns a slice of this length whose items are zero, like all items of the given one.
func resize[T any](s []T, length int) []T { return slices.Grow(s[:0], length)[:length] }

func (p *planner) addLedgers() {
	p.ledgers = make([]ledgerState, len(p.Ledgers), len(p.Ledgers)+len(p.Groups))
	for i := range p.Ledgers {
		p.ledgers[i].Ledger = p.Ledgers[i]
	}
}

func (p *planner) addGroups() {
	groups := slices.Clone(p.Groups)
	p.groups = make([]groupState, len(groups))
	for i := range groups {
		g := &p.groups[i]
		g.Group, g.memory, g.now = &groups[i], groups[i].Memory, p.Now
		g.forgetWindow()
		if g.Frozen != nil {
			why := rollout.WithDefaultReason(g.Frozen, rollout.ReasonPaused)
			g.Frozen = &why
		}
		if g.Failed != nil {
			why := rollout.WithDefaultReason(g.Failed, rollout.ReasonHealthGate)
			g.Failed = &why
		}
		if !g.Ledger.IsZero() {
			g.ledger = p.findOrAddLedger(g.Ledger)
		}
	}
}

func (p *planner) addRollouts(b *buffers) {
	p.rollouts = make([]rolloutState, len(p.Rollouts))
	total := 0
	for i := range p.Rollouts {
		p.rollouts[i].Rollout, p.rollouts[i].index = &p.Rollouts[i], i
		total += len(p.Rollouts[i].Targets)
	}
	slices.SortFunc(p.rollouts, func(a, b rolloutState) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			a.Ref.Compare(b.Ref),
			cmp.Compare(a.Sequence, b.Sequence),
			cmp.Compare(a.UID, b.UID),
		)
	})
	b.targets = resize(b.targets, total)
	p.targets = b.targets[:0]
	for i := range p.rollouts {
		r := &p.rollouts[i]
		r.title = r.Ref.Title()
		r.givenOrder = r.Numbering.Next
		r.nextOrder = max(r.Numbering.Next, r.Numbering.OnTheirWay)
		r.unfinished = r.OmittedWork()
		p.addTargets(r)
		r.markListedTwice()
		if i > 0 && p.rollouts[i-1].Ref == r.Ref {
			r.markDuplicate()
		}
	}
	p.linkTargets()
}

// addTargets adds the targets of one rollout, in the order of their nodes; those without a node come last.
func (p *planner) addTargets(r *rolloutState) {
	from, next, isSorted := len(p.targets), 0, true
	var g *groupState
	for i := range r.Targets {
		p.targets = append(p.targets, targetState{target: r.Targets[i], rollout: r, index: i})
		t := &p.targets[from+i]
		t.node = p.findNode(t.target.Node, next)
		isSorted = isSorted && t.rank() >= next
		next = t.rank() + 1
		if g == nil || g.Ref != t.target.Group {
			g = p.findGroup(t.target.Group)
		}
		t.group = g
	}
	r.targets = p.targets[from:]
	if !isSorted {
		slices.SortStableFunc(r.targets, compareTargets)
	}
}

// compareTargets orders the targets of a rollout by their nodes.
func compareTargets(a, b targetState) int {
	return cmp.Or(
		cmp.Compare(a.rank(), b.rank()),
		cmp.Compare(a.target.Node, b.target.Node),
		cmp.Compare(a.target.UID, b.target.UID),
	)
}

// findNode returns the node of a name; nil if there is none. Targets are mostly listed in the order of the nodes, so
// it looks at the next rank first.
func (p *planner) findNode(name string, next int) *nodeState {
	isNext := next < len(p.nodes) && p.nodes[next].Name == name
	if isNext && !p.nodes[next].isDuplicate {
		return &p.nodes[next]
	}
	return p.nodeNamed(name)
}

// nodeNamed returns the node of a name; nil if there is none.
func (p *planner) nodeNamed(name string) *nodeState {
	if rank, isKnown := p.ranks[name]; isKnown {
		return &p.nodes[rank]
	}
	return nil
}

// markListedTwice marks the targets of nodes that the rollout lists more than once, except for the first of each.
func (r *rolloutState) markListedTwice() {
	for i := range r.targets {
		node := r.targets[i].target.Node
		if i > 0 && r.targets[i-1].target.Node == node {
			r.targets[i].invalid = invalidReason("node " + node + " is listed twice")
		}
	}
}

// markDuplicate marks the targets of a rollout whose name an earlier rollout has as well.
func (r *rolloutState) markDuplicate() {
	for i := range r.targets {
		if t := &r.targets[i]; t.invalid == nil {
			t.invalid = invalidReason("two rollouts have the name " + r.Ref.String())
		}
	}
}

// linkTargets lists the targets of each node, earlier rollouts first.
func (p *planner) linkTargets() {
	for i := len(p.targets) - 1; i >= 0; i-- {
		if t := &p.targets[i]; t.node != nil {
			t.nextOnNode, t.node.firstTarget = t.node.firstTarget, t
		}
	}
}

// findBarriers finds, for each rollout, the first earlier one of its sequence that must finish on all nodes first.
func (p *planner) findBarriers() {
	for i := range p.rollouts {
		r := &p.rollouts[i]
		r.barrier = find(p.rollouts[:i], func(e *rolloutState) bool {
			isOpen := e.Barrier && e.unfinished > 0 && !e.isBypassed()
			return isOpen && e.Sequence == r.Sequence
		})
	}
}

// findGroup returns the first group with this reference; nil if there is none.
func (p *planner) findGroup(ref rollout.GroupRef) *groupState {
	return find(p.groups, func(g *groupState) bool { return g.Ref == ref })
}

// findRollout returns the first rollout with this reference; nil if there is none.
func (p *planner) findRollout(ref rollout.Ref) *rolloutState {
	return find(p.rollouts, func(r *rolloutState) bool { return r.Ref == ref })
}

// findOrAddLedger returns the ledger of an owner. One that nobody has written yet is added.
func (p *planner) findOrAddLedger(owner rollout.Ref) *ledgerState {
	known := find(p.ledgers, func(l *ledgerState) bool { return l.Owner == owner })
	if known != nil {
		return known
	}
	p.ledgers = append(p.ledgers, ledgerState{Ledger: rollout.Ledger{Owner: owner}})
	return &p.ledgers[len(p.ledgers)-1]
}

// findTarget returns the target of a rollout on a node; nil if there is none.
func (p *planner) findTarget(rollout rollout.Ref, node string) *targetState {
	n := p.nodeNamed(node)
	if n == nil {
		return nil
	}
	return n.findTarget(func(t *targetState) bool { return t.rollout.Ref == rollout })
}

// findTarget returns the first target on the node that matches, earlier rollouts first; nil if there is none.
func (n *nodeState) findTarget(matches func(*targetState) bool) *targetState {
	for t := n.firstTarget; t != nil; t = t.nextOnNode {
		if matches(t) {
			return t
		}
	}
	return nil
}

// sortStable sorts items unless they are in order, as they mostly are.
func sortStable[T any](items []T, compare func(a, b T) int) {
	if !slices.IsSortedFunc(items, compare) {
		slices.SortStableFunc(items, compare)
	}
}

// find returns the first item that matches; nil if there is none.
func find[T any](items []T, matches func(*T) bool) *T {
	for i := range items {
		if matches(&items[i]) {
			return &items[i]
		}
	}
	return nil
}
