// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"time"
)

// fleet is a snapshot made ready to decide about: everything in a total order that does not depend on the order it
// came in, everything looked up once, and the plan as far as it is made.
type fleet struct {
	*Snapshot
	sites  []site // in order of age, then name
	byName map[string]*site
	queues []queue // earlier rollouts first
	posts  []post  // by queue, then by site
	pools  []pool  // like Snapshot.Groups
	books  []book  // like Snapshot.Ledgers, and those that groups name and nobody wrote yet
	bench  bench
	plan   Plan
}

// site is a node and who is there.
type site struct {
	*Node
	rank        int   // in the total order
	double      bool  // an older node has the same name; nothing happens here
	first       *post // targets on this node, earlier rollouts first
	occupant    *post // the admitted one
	objects     int   // objects of ours that may be at work here
	interrupted *post // whose interrupt may be at work here
	tainting    bool  // by this plan
	untainted   bool  // by this plan
}

// queue is a rollout and its targets.
type queue struct {
	*Rollout
	posts   []post
	open    int    // targets that are not finished
	barrier *queue // an earlier rollout of the kind that lets nobody pass
	next    int    // order of the next admission, past all that were given or are promised
	given   int    // past those that were given
	about   string
	whys    map[Reason]Why
	shapes  []*graph
}

// post is one target: what it is, where it stands, and what the engine makes of it.
type post struct {
	t        *Target
	q        *queue
	n        *site // nil when there is no node of that name
	g        *pool
	next     *post // on the same node, of a later rollout
	index    int   // among the targets of the rollout
	odd      *Why  // it makes no sense as it is
	graph    *graph
	exists   bool // the node is there, and is the one it was compiled for
	owes     bool
	failed   bool // its outcome is a final failure
	held     bool // by its rollout
	soaking  bool
	proven   time.Time // when soaking ends
	promised bool      // its seat is written in the ledger
	order    int       // as written there
	passes   bool      // all gates
	ended    bool      // retired by this plan with nothing owed
	admits   bool      // admitted by this plan
	verdict  Verdict
}

// seated says that a target takes a seat of its group. One that failed for good keeps it while its node is held or not
// ready, and while it is written to, which may be a hold; one that is not proven yet keeps it too.
func (p *post) seated() bool {
	if !p.exists {
		return false
	}
	if p.t.Admitted {
		return !p.failed || p.held || p.n.Sending || !p.n.Ready
	}
	return p.unproven()
}

// unproven says that everything is done and does not count yet.
func (p *post) unproven() bool {
	return !p.owes && (p.soaking || p.t.Unproven != nil && p.g.admitted(p))
}

// unfinished says that the rollout still has something to do on the node.
func (p *post) unfinished() bool {
	switch {
	case p.t.Leaving:
		return p.t.Admitted
	case p.q.Once && p.t.Skipped:
		return false
	}
	return p.owes || p.t.Admitted || p.odd != nil
}

// unreadable says that nobody knows what the target owes.
func (p *post) unreadable() bool {
	return p.t.Blocked != nil && p.t.Blocked.Reason == ReasonStateUnreadable
}

// stepsAside says that later rollouts do not wait for what this one owes: somebody disabled it, or it is wrong.
func (q *queue) stepsAside() bool { return q.Paused && q.Yields || q.Broken != nil }

func survey(s *Snapshot) *fleet {
	f := &fleet{Snapshot: s}
	f.lineUpSites()
	f.openBooks()
	f.openPools()
	f.lineUpQueues()
	for i := range f.posts {
		f.look(&f.posts[i])
	}
	f.closeBarriers()
	f.countSeats()
	return f
}

func (f *fleet) lineUpSites() {
	f.sites = make([]site, len(f.Nodes))
	for i := range f.Nodes {
		f.sites[i].Node = &f.Nodes[i]
	}
	older := func(a, b site) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	}
	if !slices.IsSortedFunc(f.sites, older) {
		slices.SortFunc(f.sites, older)
	}
	f.byName = make(map[string]*site, len(f.sites))
	for i := range f.sites {
		n := &f.sites[i]
		n.rank = i
		if f.byName[n.Name] != nil {
			n.double = true
			continue
		}
		f.byName[n.Name] = n
	}
}

func (f *fleet) lineUpQueues() {
	f.queues = make([]queue, len(f.Rollouts))
	total := 0
	for i := range f.Rollouts {
		f.queues[i].Rollout = &f.Rollouts[i]
		total += len(f.Rollouts[i].Targets)
	}
	slices.SortFunc(f.queues, func(a, b queue) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Ref.Compare(b.Ref),
			cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.UID, b.UID))
	})
	f.posts = make([]post, 0, total)
	for i := range f.queues {
		q := &f.queues[i]
		q.about, q.next, q.given = q.Ref.Title(), max(q.NextOrder, q.OnTheirWay), q.NextOrder
		from := len(f.posts)
		f.lineUpPosts(q)
		q.posts = f.posts[from:]
		for j := range q.posts {
			if i > 0 && f.queues[i-1].Ref == q.Ref {
				q.posts[j].odd = invalid("two rollouts are called " + q.Ref.String())
			}
			if j > 0 && q.posts[j].t.Node == q.posts[j-1].t.Node {
				q.posts[j].odd = invalid("node " + q.posts[j].t.Node + " is listed twice")
			}
		}
	}
	for i := len(f.posts) - 1; i >= 0; i-- { // backwards, so that earlier rollouts come first
		if p := &f.posts[i]; p.n != nil {
			p.next, p.n.first = p.n.first, p
		}
	}
}

// lineUpPosts adds the targets of one rollout, in the order of their nodes; those without a node come last.
func (f *fleet) lineUpPosts(q *queue) {
	from, at := len(f.posts), 0
	var g *pool
	for i := range q.Targets {
		t := &q.Targets[i]
		p := post{t: t, q: q, index: i}
		if at < len(f.sites) && f.sites[at].Name == t.Node && !f.sites[at].double { // mostly they come in the order of the nodes
			p.n = &f.sites[at]
		} else {
			p.n = f.byName[t.Node]
		}
		if p.n != nil {
			at = p.n.rank + 1
		}
		if g == nil || g.Ref != t.Group {
			g = f.pool(t.Group)
		}
		p.g = g
		f.posts = append(f.posts, p)
	}
	byNode := func(a, b post) int {
		return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.t.Node, b.t.Node), cmp.Compare(a.t.UID, b.t.UID))
	}
	if added := f.posts[from:]; !slices.IsSortedFunc(added, byNode) {
		slices.SortStableFunc(added, byNode)
	}
}

func (p *post) place() int {
	if p.n == nil {
		return 1 << 62
	}
	return p.n.rank
}

// look finds out where one target stands.
func (f *fleet) look(p *post) {
	t := p.t
	p.exists = p.n != nil && !t.Gone && (t.UID == "" || p.n.UID == "" || t.UID == p.n.UID)
	if p.g == nil {
		p.g = &pool{Group: &Group{Limit: 0}}
		if p.odd == nil {
			p.odd = invalid("its group " + t.Group.String() + " is unknown")
		}
	}
	p.failed, p.owes = t.Skipped, p.unreadable()
	for i := range t.Tasks {
		task := &t.Tasks[i]
		if task.State != StateDone {
			p.owes = true
			p.failed = p.failed || t.Admitted && task.finallyFailed()
		}
		if p.exists && (task.Object != "" && task.State != StateDone && task.State != StateSucceeded || task.Object == "" && task.Leaving) {
			p.n.objects++
			if task.Need == NeedAlone && p.n.interrupted == nil {
				p.n.interrupted = p
			}
		}
	}
	if !p.exists {
		p.owes = p.owes && p.q.Deleting
		return
	}
	p.n.objects += len(t.Strays) + len(t.Going)
	p.held = holds(p.n.Node, p.q.Ref)
	if p.owes && p.odd == nil {
		if p.graph = p.q.graphOf(t.Tasks); p.graph.odd != "" {
			p.odd = invalid(p.graph.odd)
		}
	}
	if t.Admitted {
		if p.n.occupant == nil {
			p.n.occupant = p
		}
		p.q.given = max(p.q.given, t.Order+1)
		p.q.next = max(p.q.next, p.q.given)
	}
	if p.g.Soak > 0 && !p.owes && !t.Admitted && !t.FinishedAt.IsZero() {
		p.proven = latest(t.FinishedAt, p.n.ReadyAt).Add(p.g.Soak)
		p.soaking = !p.n.Ready || f.Now.Before(p.proven)
		f.wake(p.proven)
	}
	if p.unfinished() {
		p.q.open++
	}
}

func holds(n *Node, owner Ref) bool {
	for i := range n.Holds {
		if n.Holds[i].Owner == owner {
			return true
		}
	}
	return false
}

// closeBarriers finds, for each rollout, the first earlier one of its kind that lets nobody pass.
func (f *fleet) closeBarriers() {
	for i := range f.queues {
		for j := 0; j < i && f.queues[i].barrier == nil; j++ {
			e := &f.queues[j]
			if e.Barrier && e.open > 0 && e.Sequence == f.queues[i].Sequence && !e.stepsAside() {
				f.queues[i].barrier = e
			}
		}
	}
}

// wake makes sure that somebody looks again at that time.
func (f *fleet) wake(at time.Time) {
	if at.After(f.Now) && (f.plan.Next.IsZero() || at.Before(f.plan.Next)) {
		f.plan.Next = at
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
