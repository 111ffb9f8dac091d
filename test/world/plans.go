// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// planCheck checks a plan of the leader against the snapshot that it was made for. The cluster is that snapshot with the actions that were
// checked before: an action may rely on those that come before it.
type planCheck struct {
	run     *Run
	seen    rollout.Snapshot
	plan    rollout.Plan
	cluster *sim.Cluster
}

// checksOften is how many plans are made until the costly rules are checked again.
const checksOften = 4

// checkPlan checks what must be true of every plan.
func (r *Run) checkPlan(seen rollout.Snapshot, plan rollout.Plan) {
	c := &planCheck{run: r, seen: seen, plan: plan, cluster: sim.New(seen)}
	c.checkReasons()
	c.checkDriftLimit()
	c.checkPullLimit()
	c.checkBatchEnd()
	if !plan.Next.IsZero() && !plan.Next.After(seen.Now) {
		r.violate("the next pass is in the future", "it is due at %s", plan.Next)
	}
	if r.turn%checksOften == 0 {
		c.checkSamePlan()
		c.checkDriftChangesNothing()
		c.checkSettles()
	}
	v := c.cluster.View()
	for _, a := range plan.Actions {
		if problem := c.checkAction(a); problem != "" {
			r.violate("every action is allowed", "%s of %s for %s on %s: %s", a.Verb, a.Task, a.Rollout, a.Node, problem)
		}
		if err := c.cluster.ApplyAction(v, a); err != nil {
			r.violate("every action can be applied", "%s of %s for %s on %s: %v", a.Verb, a.Task, a.Rollout, a.Node, err)
		}
	}
}

// checkReasons checks that everything that is decided has a reason that can be shown.
func (c *planCheck) checkReasons() {
	check := func(what string, why rollout.Why) {
		if why.Reason == "" || why.Text == "" || strings.HasSuffix(why.Text, ".") || len(why.Text) > rollout.MaxText {
			c.run.violate("everything has a reason", "%s has the reason %q, %q", what, why.Reason, why.Text)
		}
	}
	for _, report := range c.plan.Reports {
		for _, v := range report.Verdicts {
			check("the verdict on "+v.Node, v.Why)
			if v.Phase == "" || v.Node == "" {
				c.run.violate("everything has a reason", "a verdict without node or phase: %+v", v)
			}
		}
	}
	for _, a := range c.plan.Actions {
		check(string(a.Verb)+" on "+a.Node, a.Why)
	}
}

// checkSamePlan checks that deciding again, with everything in another order, gives the same plan and changes no snapshot.
func (c *planCheck) checkSamePlan() {
	shuffled := sim.Clone(c.seen)
	shuffle(c.run.random("shuffle", c.run.turn), &shuffled)
	before := sim.Clone(shuffled)
	one, two := sortPlan(c.plan), sortPlan(engine.Decide(shuffled))
	if !reflect.DeepEqual(one, two) {
		c.run.violate("the plan does not depend on the order of its input", "\n%+v\n%+v", one, two)
	}
	if !reflect.DeepEqual(shuffled, before) {
		c.run.violate("deciding changes no snapshot", "it did")
	}
}

func shuffle(random *rand.Rand, s *rollout.Snapshot) {
	shuffleList(random, s.Nodes)
	shuffleList(random, s.Groups)
	shuffleList(random, s.Ledgers)
	shuffleList(random, s.Rollouts)
	for i := range s.Nodes {
		shuffleList(random, s.Nodes[i].Holds)
	}
	for i := range s.Groups {
		shuffleList(random, s.Groups[i].Taken)
	}
	for i := range s.Rollouts {
		shuffleList(random, s.Rollouts[i].Targets)
		for _, t := range s.Rollouts[i].Targets {
			shuffleList(random, t.Drain.Pods)
		}
	}
}

func shuffleList[T any](random *rand.Rand, list []T) {
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// sortPlan sorts the parts of a plan whose order is that of the input.
func sortPlan(p rollout.Plan) rollout.Plan {
	p.Actions = slices.Clone(p.Actions)
	slices.SortStableFunc(p.Actions, func(a, b rollout.Action) int { return strings.Compare(a.Node, b.Node) })
	p.Reports = slices.Clone(p.Reports)
	slices.SortFunc(p.Reports, func(a, b rollout.Report) int { return a.Rollout.Compare(b.Rollout) })
	for i := range p.Reports {
		p.Reports[i].Verdicts = slices.Clone(p.Reports[i].Verdicts)
		slices.SortStableFunc(p.Reports[i].Verdicts, func(a, b rollout.Verdict) int { return strings.Compare(a.Node, b.Node) })
	}
	p.Groups = slices.Clone(p.Groups)
	slices.SortFunc(p.Groups, func(a, b rollout.GroupReport) int { return a.Group.Compare(b.Group) })
	p.Ledgers = slices.Clone(p.Ledgers)
	slices.SortFunc(p.Ledgers, func(a, b rollout.Ledger) int { return a.Owner.Compare(b.Owner) })
	for i := range p.Ledgers {
		p.Ledgers[i].Admitting = slices.Clone(p.Ledgers[i].Admitting)
		slices.SortFunc(p.Ledgers[i].Admitting, func(a, b rollout.Reservation) int {
			return strings.Compare(a.Rollout.String()+a.Node, b.Rollout.String()+b.Node)
		})
	}
	return p
}

// checkDriftChangesNothing checks that without the checks for drift the plan is the same.
func (c *planCheck) checkDriftChangesNothing() {
	objects := map[string]bool{}
	without := sim.Clone(c.seen)
	for i := range without.Rollouts {
		r := &without.Rollouts[i]
		for _, t := range r.Targets {
			if t.Check == nil {
				continue
			}
			objects[t.Check.Object] = true
			for _, o := range t.Check.Old {
				objects[o] = true
			}
			if !t.Check.Before {
				t.Check = nil
			}
		}
	}
	isCheck := func(a rollout.Action) bool {
		return a.Verb == rollout.VerbVerify || a.Verb == rollout.VerbNote || a.Verb == rollout.VerbSweep && objects[a.Object]
	}
	plan, other := sortPlan(c.plan), sortPlan(engine.Decide(without))
	plan.Actions, other.Actions = slices.DeleteFunc(plan.Actions, isCheck), slices.DeleteFunc(other.Actions, isCheck)
	plan.Next, other.Next = c.seen.Now, c.seen.Now
	if len(plan.Actions)+len(other.Actions) == 0 {
		plan.Actions = other.Actions
	}
	if !reflect.DeepEqual(plan, other) {
		c.run.violate("drift checks change nothing", "\n%+v\n%+v", plan, other)
	}
}

// checkDriftLimit: a check starts only while fewer nodes of its rollout are checked than may be. A check lasts until its object has ended
// or is gone, whatever is planned for it.
func (c *planCheck) checkDriftLimit() {
	checks, starts := map[rollout.Ref]int{}, map[rollout.Ref]bool{}
	for _, r := range c.seen.Rollouts {
		for _, t := range r.Targets {
			n := nodeOf(c.seen, t)
			isRunning := n != nil && t.Check != nil && (t.Check.Going && n.Ready && c.seen.Now.Before(t.Check.GoneBy) || t.Check.Object != "" && !t.Check.Ended)
			if isRunning {
				checks[r.Ref]++
			}
		}
	}
	for _, a := range c.plan.Actions {
		if a.Verb == rollout.VerbVerify {
			checks[a.Rollout]++
			starts[a.Rollout] = true
		}
	}
	for _, r := range c.seen.Rollouts {
		if starts[r.Ref] && checks[r.Ref] > r.CheckLimit {
			c.run.violate("drift checks disturb nobody", "%s checks %d nodes for drift, at most %d may be", r.Ref, checks[r.Ref], r.CheckLimit)
		}
	}
}

// checkPullLimit: a pull before the turn of a target is not for one that is admitted now, and no more begin at once than a group may
// have in flight; what failed is tried again beside them.
func (c *planCheck) checkPullLimit() {
	started, admitted := map[rollout.GroupRef]int{}, map[string]bool{}
	for _, a := range c.plan.Actions {
		key := fmt.Sprint(a.Rollout, a.Node)
		switch a.Verb {
		case rollout.VerbAdmit:
			admitted[key] = true
		case rollout.VerbPull:
			if t := c.cluster.FindTarget(a.Rollout, a.Node); t != nil && t.Pull != nil && t.Pull.Failed == nil {
				started[t.Group]++
			}
			if admitted[key] {
				c.run.violate("images are pulled before the visit", "%s pulls images on %s before its turn, and admits it", a.Rollout, a.Node)
			}
		}
	}
	for _, g := range c.seen.Groups {
		if g.Limit != rollout.Unlimited && started[g.Ref] > max(g.Limit, 0) {
			c.run.violate("images are pulled before the visit", "%s pulls images on %d more nodes at once, and its limit is %d", g.Ref, started[g.Ref], g.Limit)
		}
	}
}

// checkBatchEnd checks that all outcomes of a batch that ends are final.
func (c *planCheck) checkBatchEnd() {
	for _, after := range c.plan.Groups {
		g := findGroup(c.seen, after.Group)
		isEnding := g.Memory.From != 0 && after.Memory.From != g.Memory.From && !(after.Memory.Batch == 1 && after.Memory.LastSize == 0)
		if !isEnding {
			continue
		}
		for _, r := range c.seen.Rollouts {
			for _, t := range r.Targets {
				isMember := t.Group == g.Ref && isOfBatch(t, g) && nodeOf(c.seen, t) != nil
				isStopped := t.Leaving || t.Blocked != nil || r.Broken != nil || r.Paused && r.Yields
				hasFailed := hasFinallyFailed(t) || isProofLate(c.seen, t) && !t.Proof.Release || t.Rollback.Cause != nil
				if isMember && !isStopped && !hasFailed {
					c.run.violate("a batch ends when every outcome of it is final", "one of %s ends while %s is in progress", g.Ref, t.Node)
				}
			}
		}
	}
}

// settlesIn is how many plans may follow on each other while nothing happens from outside.
const settlesIn = 60

// checkSettles checks that the plan becomes empty while nothing happens from outside: no task ends, no pod goes. An action that changes
// nothing would be planned for ever.
func (c *planCheck) checkSettles() {
	cluster := sim.New(c.seen)
	cluster.SlowDeletion = true
	var plan rollout.Plan
	for range settlesIn {
		v := cluster.View()
		plan = engine.Decide(v.Snapshot)
		if len(plan.Actions)+len(plan.Ledgers) == 0 && !sim.HasStatusChange(v, plan) {
			return
		}
		if err := cluster.Apply(v, plan); err != nil {
			c.run.violate("every action can be applied", "%v", err)
		}
	}
	c.run.violate("without events the plan becomes empty", "it is %+v", plan.Actions)
}
