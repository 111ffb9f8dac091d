// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

func (s *view) buildPlan(c *forecast, args []string, most int) *plan {
	p := &plan{Rollouts: []rolloutPlan{}, Actions: []planAction{}, Settings: settingsOf(s.dump)}
	for i := range s.snapshot.Rollouts {
		r := &s.snapshot.Rollouts[i]
		if !isSelected(args, r) {
			continue
		}
		one := s.buildRolloutPlan(c, r, most)
		p.Changes = p.Changes || one.Changing > 0
		p.Rollouts = append(p.Rollouts, one)
		for _, act := range s.plan.Actions {
			if act.Rollout == r.Ref {
				p.Changes = true
				p.Actions = append(p.Actions, planAction{act.Node, string(act.Verb), shortName(r.Ref), s.actionObject(r, act), act.Why.Text})
			}
		}
	}
	return p
}

// actionObject says what an action is done to.
func (s *view) actionObject(r *rollout.Rollout, act rollout.Action) string {
	switch {
	case act.Pod.Name != "":
		return act.Pod.Namespace + "/" + act.Pod.Name
	case act.Task != "":
		return s.taskLabel(r.Ref, act.Node, act.Task)
	}
	return act.Object
}

// taskLabel is a task as people read it.
func (s *view) taskLabel(of rollout.Ref, node, task string) string {
	if t := s.findTarget(of, node); t != nil {
		for i := range t.Tasks {
			if t.Tasks[i].ID == task && t.Tasks[i].Label != "" {
				return t.Tasks[i].Label
			}
		}
	}
	return task
}

func (s *view) buildRolloutPlan(c *forecast, r *rollout.Rollout, most int) rolloutPlan {
	out := rolloutPlan{Name: r.Ref, Work: []planWork{}, Waves: []wave{}}
	if r.Broken != nil {
		out.Problem = r.Broken.Text
	}
	waves := c.waves[r.Ref]
	for _, w := range waves {
		w.Group = groupName(r, w.group)
		if most == 0 || w.Number <= most {
			out.Waves = append(out.Waves, w)
		}
	}
	began := map[string]bool{}
	for _, w := range out.Waves {
		for _, n := range w.Nodes {
			began[n] = true
		}
	}
	never := map[rollout.Reason][]rollout.Verdict{}
	left := s.waitingVerdicts(c, r)
	for i := range r.Targets {
		t := &r.Targets[i]
		if !t.Leaving && !t.Gone {
			out.Nodes++
		}
		v, stays := left[t.Node]
		switch {
		case !hasOpenTasks(t) && !t.Admitted:
		case began[t.Node] || t.Admitted:
			out.Changing++
		case stays && !isCutShort(most, waves):
			never[v.Why.Reason] = append(never[v.Why.Reason], v)
		default:
			out.Changing++
			out.Later++
		}
	}
	out.Closed = s.closedGroups(r, never)
	out.Never = countReasons(never)
	out.Work = s.groupWork(c, r, began)
	out.Pods = s.podsToMove(r)
	out.Warnings = s.warnings(r, &out)
	return out
}

// closedGroups are the groups of a rollout that owe work and may not begin any yet, as when their windows are closed. What never
// begins by itself is said elsewhere.
func (s *view) closedGroups(r *rollout.Rollout, never map[rollout.Reason][]rollout.Verdict) []closedGroup {
	owing := map[rollout.GroupRef]bool{}
	for i := range r.Targets {
		if t := &r.Targets[i]; hasOpenTasks(t) && !t.Admitted {
			owing[t.Group] = true
		}
	}
	var out []closedGroup
	for _, g := range s.snapshot.Groups {
		if owing[g.Ref] && g.Frozen != nil && never[g.Frozen.Reason] == nil {
			out = append(out, closedGroup{Group: groupName(r, g.Ref), Reason: string(g.Frozen.Reason), Text: g.Frozen.Text})
		}
	}
	return out
}

// isCutShort says that the play ended before this rollout's end because enough was seen.
func isCutShort(most int, waves []wave) bool { return most > 0 && len(waves) > most }

// waitingVerdicts are the verdicts of the targets that were still waiting when the play ended.
func (s *view) waitingVerdicts(c *forecast, r *rollout.Rollout) map[string]rollout.Verdict {
	out := map[string]rollout.Verdict{}
	for _, rep := range c.timeline.Left {
		if rep.Rollout == r.Ref {
			for _, v := range rep.Verdicts {
				out[v.Node] = v
			}
		}
	}
	return out
}

func hasOpenTasks(t *rollout.Target) bool {
	return slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.State != rollout.StateDone })
}

// groupName is the name of a group without its rollout.
func groupName(r *rollout.Rollout, group rollout.GroupRef) string {
	if group.Owner == r.Ref {
		return group.Compartment
	}
	return group.String()
}

// groupWork puts nodes together on which the same things happen.
func (s *view) groupWork(c *forecast, r *rollout.Rollout, began map[string]bool) []planWork {
	bySign := map[string]*planWork{}
	played := map[string]bool{}
	var order []string
	for i := range r.Targets {
		t := &r.Targets[i]
		if !hasOpenTasks(t) || t.Blocked != nil || t.Gone {
			continue
		}
		sign := s.workKey(r, t)
		if bySign[sign] == nil {
			bySign[sign] = &planWork{}
			order = append(order, sign)
		}
		w := bySign[sign]
		w.Nodes = append(w.Nodes, t.Node)
		if steps := c.steps[r.Ref][t.Node]; !played[sign] && (len(w.Steps) == 0 || len(steps) > 0 && began[t.Node]) {
			played[sign] = len(steps) > 0
			w.Steps = s.planSteps(r, t, steps)
		}
	}
	out := []planWork{}
	for _, sign := range order {
		out = append(out, *bySign[sign])
	}
	return out
}

// workKey is the same for targets on which the same things happen.
func (s *view) workKey(r *rollout.Rollout, t *rollout.Target) string {
	var b strings.Builder
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.State != rollout.StateDone {
			fmt.Fprintf(&b, "%s %s %s\n", k.ID, k.CoveredBy, s.taskPurpose(r, t, k))
		}
	}
	return b.String()
}

// taskPurpose says why a task is owed.
func (s *view) taskPurpose(r *rollout.Rollout, t *rollout.Target, k *rollout.Task) string {
	hook := s.skyhookOf(r)
	if hook == nil {
		return ""
	}
	p, ok := s.objects.Compiled(hook).Purpose(t.Node, k.ID)
	if !ok {
		return ""
	}
	why := string(p.Goal)
	switch {
	case p.Goal == skyhook.GoalUpgrade && p.From != "":
		why += " from " + p.From
	case p.Goal == skyhook.GoalConfig && len(p.Keys) > 0:
		why = "changed: " + output.List(p.Keys, 3)
	case p.Goal == "":
		why = "goes on"
	}
	if k.Need == rollout.NeedAlone && p.Interrupt != nil {
		why = string(p.Interrupt.Type)
		if len(p.Interrupt.Services) > 0 {
			why += " " + output.List(p.Interrupt.Services, 3)
		}
	}
	return why
}

// planSteps are the tasks of one target in the order in which the play ran them; those it did not run follow as they are.
func (s *view) planSteps(r *rollout.Rollout, t *rollout.Target, ran []taskRun) []planStep {
	byID := map[string]*rollout.Task{}
	for i := range t.Tasks {
		if t.Tasks[i].State != rollout.StateDone {
			byID[t.Tasks[i].ID] = &t.Tasks[i]
		}
	}
	var out []planStep
	add := func(k *rollout.Task, covers []string) {
		delete(byID, k.ID)
		p := planStep{Task: k.Label, Why: s.taskPurpose(r, t, k), Needs: needs(k.Need)}
		for _, id := range covers {
			p.Covers = append(p.Covers, s.taskLabel(r.Ref, t.Node, id))
			delete(byID, id)
		}
		out = append(out, p)
	}
	for i := range t.Tasks { // what runs already comes first
		if k := byID[t.Tasks[i].ID]; k != nil && k.Object != "" {
			add(k, nil)
		}
	}
	for _, st := range ran {
		if k := byID[st.task]; k != nil {
			add(k, st.covers)
		}
	}
	for i := range t.Tasks {
		if k := byID[t.Tasks[i].ID]; k != nil && k.CoveredBy == "" {
			add(k, nil)
		}
	}
	return out
}

func needs(n rollout.Need) string {
	switch n {
	case rollout.NeedDrained:
		return "drained"
	case rollout.NeedAlone:
		return "drained, alone"
	}
	return ""
}

// podsToMove are the pods on the nodes that are held, or begin next and have to become quiet.
func (s *view) podsToMove(r *rollout.Rollout) []nodePods {
	var out []nodePods
	for i := range r.Targets {
		t := &r.Targets[i]
		if !isDisruptive(t) {
			continue
		}
		pods, seen := s.podsInTheWay(r, t.Node)
		if !seen || len(pods) == 0 {
			continue
		}
		p := nodePods{Node: t.Node}
		for _, pod := range pods {
			name := pod.Namespace + "/" + pod.Name
			switch {
			case pod.Wait:
				p.Wait = append(p.Wait, name)
			case pod.Keep != "":
				p.Keep = append(p.Keep, name+": "+pod.Keep)
			case s.budgets[types.UID(pod.UID)] != "":
				p.Refused = append(p.Refused, name+": "+s.budgets[types.UID(pod.UID)])
			default:
				p.Evict = append(p.Evict, name)
			}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b nodePods) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// warnings are what may surprise: too many nodes at once, nothing tried first, what a spec says in vain.
func (s *view) warnings(r *rollout.Rollout, p *rolloutPlan) []string {
	var out []string
	for _, problem := range s.problems {
		if problem.Rollout == r.Ref && (r.Broken == nil || problem.Text != r.Broken.Text) {
			out = append(out, problem.Text)
		}
	}
	if hook := s.skyhookOf(r); hook != nil {
		if n := s.objects.Compiled(hook).EditedNodes(); n > 0 {
			out = append(out, fmt.Sprintf("the image, env or resources of a finished package changed on %s: that runs nothing until its next install or upgrade, or a rerun", output.Count(n, "node")))
		}
	}
	if len(p.Waves) == 0 || p.Changing < 2 {
		return out
	}
	first := 0
	for _, w := range p.Waves {
		if w.after == p.Waves[0].after {
			first += len(w.Nodes)
		}
	}
	quiet := slices.ContainsFunc(r.Targets, func(t rollout.Target) bool { return hasOpenTasks(&t) && isDisruptive(&t) })
	switch {
	case first == p.Changing && quiet:
		out = append(out, fmt.Sprintf("all %d nodes begin at once and are drained together: give it a smaller budget", first))
	case first == p.Changing:
		out = append(out, fmt.Sprintf("all %d nodes begin at once: give it a smaller budget to notice failures early", first))
	case first > 1 && p.Changing > 3:
		out = append(out, fmt.Sprintf("%d nodes begin at once and no single node is tried first: a DeploymentPolicy with initialBatch 1 does that", first))
	}
	return out
}

// reasonCount is how many nodes wait for the same reason.
type reasonCount struct {
	Reason string   `json:"reason"`
	Nodes  int      `json:"nodes"`
	Text   string   `json:"text"` // of the first
	First  []string `json:"first"`
}

// countReasons counts verdicts by reason, the largest group first.
func countReasons(by map[rollout.Reason][]rollout.Verdict) []reasonCount {
	var out []reasonCount
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		c := reasonCount{Reason: string(reason), Nodes: len(by[reason]), Text: by[reason][0].Why.Text}
		for _, v := range by[reason][:min(3, len(by[reason]))] {
			c.First = append(c.First, v.Node)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b reasonCount) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return out
}
