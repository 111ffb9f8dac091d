// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// taintNewNodes keeps workloads away from nodes that nobody has prepared yet.
func (f *fleet) taintNewNodes() {
	for i := range f.posts {
		p := &f.posts[i]
		if p.q.Required && p.q.Autotaint && p.exists && p.owes && p.odd == nil && !p.t.Leaving && !p.q.Deleting && !p.q.stepsAside() &&
			!p.n.Tainted && !p.n.Known && !p.n.tainting {
			p.n.tainting = true
			f.act(p, VerbTaint, Why{Reason: ReasonNewNode, Text: "the node is new and not prepared yet"})
		}
	}
}

// untaintFinished opens the nodes on which everything required is finished.
func (f *fleet) untaintFinished() {
	for i := range f.posts {
		if p := &f.posts[i]; p.q.Required && p.exists && !p.q.Deleting && !p.t.Leaving {
			f.untaint(p)
		}
	}
}

// untaintBefore opens a node with the target that ends there now: afterwards nobody may be left to do it.
func (f *fleet) untaintBefore(p *post) {
	if p.q.Required {
		p.ended = true
		f.untaint(p)
	}
}

func (f *fleet) untaint(p *post) {
	if !p.n.Tainted || p.n.untainted {
		return
	}
	for o := p.n.first; o != nil; o = o.next {
		if o.q.Required && o.exists && !o.ended && !o.t.Leaving && !o.q.Deleting && (o.owes || o.t.Admitted || o.odd != nil) {
			return // also when it failed and is not tried again: the node is not prepared
		}
	}
	p.n.untainted = true
	f.act(p, VerbUntaint, Why{Reason: ReasonFinished, Text: "everything the node requires is finished"})
}

// releaseLeftHolds releases holds nobody answers for: their owner is gone, or has nothing to do with the node any more.
func (f *fleet) releaseLeftHolds() {
	for i := range f.sites {
		n := &f.sites[i]
		if n.double {
			continue
		}
		for _, h := range n.Holds {
			why := Why{Reason: ReasonOrphan, Text: h.Owner.Title() + " does not exist any more", About: h.Owner.Title()}
			if !h.Orphan {
				if f.queue(h.Owner) == nil || f.target(h.Owner, n.Name) != nil {
					continue
				}
				why = Why{Reason: ReasonLeft, Text: h.Owner.Title() + " has nothing to do with the node", About: h.Owner.Title()}
			}
			f.plan.Actions = append(f.plan.Actions, Action{Verb: VerbRelease, Rollout: h.Owner, Node: n.Name, Why: why})
		}
	}
}

func (f *fleet) queue(ref Ref) *queue {
	for i := range f.queues {
		if f.queues[i].Ref == ref {
			return &f.queues[i]
		}
	}
	return nil
}
