// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package rollout

// taintNewNodes keeps workloads away from nodes that nobody has prepared yet.
func (p *planner) taintNewNodes() {
	for i := range p.targets {
		t := &p.targets[i]
		if t.rollout.Required && t.rollout.Autotaint && t.exists && t.hasWork && t.invalid == nil && !t.target.Leaving && !t.rollout.Deleting && !t.rollout.isBypassed() &&
			!t.node.Tainted && !t.node.Known && !t.node.tainting {
			t.node.tainting = true
			p.addAction(t, VerbTaint, Why{Reason: ReasonNewNode, Text: "the node is new and not prepared yet"})
		}
	}
}

// untaintFinished opens the nodes on which everything required is finished.
func (p *planner) untaintFinished() {
	for i := range p.targets {
		if t := &p.targets[i]; t.rollout.Required && t.exists && !t.rollout.Deleting && !t.target.Leaving {
			p.untaintNode(t)
		}
	}
}

// untaintRetiring opens a node with the target that ends there now: afterwards nobody may be left to do it.
func (p *planner) untaintRetiring(t *targetState) {
	if t.rollout.Required {
		t.isRetired = true
		p.untaintNode(t)
	}
}

func (p *planner) untaintNode(t *targetState) {
	if !t.node.Tainted || t.node.untainted {
		return
	}
	for o := t.node.firstTarget; o != nil; o = o.nextOnNode {
		if o.rollout.Required && o.exists && !o.isRetired && !o.target.Leaving && !o.rollout.Deleting && (o.hasWork || o.target.Admitted || o.invalid != nil) {
			return // also when it failed and is not tried again: the node is not prepared
		}
	}
	t.node.untainted = true
	p.addAction(t, VerbUntaint, Why{Reason: ReasonFinished, Text: "everything the node requires is finished"})
}

// releaseLeftHolds releases holds nobody answers for: their owner is gone, or has nothing to do with the node any more.
func (p *planner) releaseLeftHolds() {
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.isDuplicate {
			continue
		}
		for _, h := range n.Holds {
			why := Why{Reason: ReasonOrphan, Text: h.Owner.Title() + " does not exist any more", About: h.Owner.Title()}
			if !h.Orphan {
				if p.findRollout(h.Owner) == nil || p.findTarget(h.Owner, n.Name) != nil {
					continue
				}
				why = Why{Reason: ReasonLeft, Text: h.Owner.Title() + " has nothing to do with the node", About: h.Owner.Title()}
			}
			p.plan.Actions = append(p.plan.Actions, Action{Verb: VerbRelease, Rollout: h.Owner, Node: n.Name, Why: why})
		}
	}
}

func (p *planner) findRollout(ref Ref) *rolloutState {
	for i := range p.rollouts {
		if p.rollouts[i].Ref == ref {
			return &p.rollouts[i]
		}
	}
	return nil
}
