// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/profile"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// planBuilder builds the plans of rollouts from a view and its forecast.
type planBuilder struct {
	*Cluster
	forecast *Forecast
	maxWaves int // 0 for all
}

// BuildPlan simulates the named rollouts until maxWaves have started, and describes them.
func BuildPlan(v *Cluster, args []string, maxWaves int) *Plan {
	stop := stopAtEither(stopAfterWaves(maxWaves), v.StopWhenDone(args))
	b := &planBuilder{Cluster: v, maxWaves: maxWaves, forecast: v.SimulateRollouts(sim.Recorded(v.Snapshot.Times), MaxSimulatedTime, stop)}
	p := &Plan{Rollouts: []RolloutPlan{}, Actions: []planAction{}, Settings: SettingsOf(v.Dump)}
	for _, r := range v.SelectRollouts(args) {
		rp := b.buildRollout(r)
		p.Changes = p.Changes || rp.Changing > 0
		p.Rollouts = append(p.Rollouts, rp)
		for _, act := range v.Plan.Actions {
			if act.Rollout == r.Ref {
				p.Changes = true
				p.Actions = append(p.Actions, planAction{act.Node, string(act.Verb), ShortName(r.Ref), v.actionObject(act), act.Why.Text})
			}
		}
	}
	return p
}

func (b *planBuilder) buildRollout(r *rollout.Rollout) RolloutPlan {
	out := RolloutPlan{Name: r.Ref, Profile: b.Objects.Profiles[r.Ref], Times: b.describeTimes(r), Work: []PlanWork{}, Waves: []wave{}}
	if r.Broken != nil {
		out.Problem = r.Broken.Text
	}
	waves := b.forecast.waves[r.Ref]
	started := map[string]bool{}
	for _, w := range waves {
		if b.maxWaves > 0 && w.Number > b.maxWaves {
			break
		}
		w.Group = groupName(r, w.group)
		out.Waves = append(out.Waves, w)
		for _, node := range w.Nodes {
			started[node] = true
		}
	}
	isCutShort := b.maxWaves > 0 && len(waves) > b.maxWaves
	never := b.countNodes(r, &out, started, isCutShort)
	out.Never = countReasons(never)
	out.Closed = b.findClosedGroups(r, never)
	out.Needs = b.listNeeds(r)
	out.Work = b.collectWork(r, started)
	out.Pods = b.listPods(r)
	out.Marks = b.listMarks(r)
	out.Images = b.listImages(r)
	out.Compartments = b.listCompartments(r)
	out.Warnings = b.findWarnings(r, &out)
	return out
}

// countNodes counts the nodes of a rollout, and returns the verdicts of those that do not start by themselves. When the
// simulation was cut short, every waiting node counts as later.
func (b *planBuilder) countNodes(r *rollout.Rollout, out *RolloutPlan, started map[string]bool, isCutShort bool) []rollout.Verdict {
	var never []rollout.Verdict
	waiting := b.forecast.waitingVerdicts(r)
	for _, t := range r.Targets {
		if !t.Leaving && !t.Gone {
			out.Nodes++
		}
		verdict, isWaiting := waiting[t.Node]
		switch {
		case !hasOpenTasks(t) && !t.Visit.Admitted:
		case started[t.Node] || t.Visit.Admitted:
			out.Changing++
		case isWaiting && !isCutShort:
			never = append(never, verdict)
		default:
			out.Changing++
			out.Later++
		}
	}
	return never
}

// findClosedGroups returns the groups with work that may not start now, for example outside of their windows. Reasons in
// never are printed elsewhere.
func (b *planBuilder) findClosedGroups(r *rollout.Rollout, never []rollout.Verdict) []closedGroup {
	hasWork := map[rollout.GroupRef]bool{}
	for i := range r.Targets {
		if t := r.Targets[i]; hasOpenTasks(t) && !t.Visit.Admitted {
			hasWork[t.Group] = true
		}
	}
	var closed []closedGroup
	for _, g := range b.Snapshot.Groups {
		if !hasWork[g.Ref] || g.Frozen == nil {
			continue
		}
		if !slices.ContainsFunc(never, func(verdict rollout.Verdict) bool { return verdict.Why.Reason == g.Frozen.Reason }) {
			closed = append(closed, closedGroup{Group: groupName(r, g.Ref), Reason: string(g.Frozen.Reason), Text: g.Frozen.Text})
		}
	}
	return closed
}

// collectWork groups nodes with the same tasks.
func (b *planBuilder) collectWork(r *rollout.Rollout, started map[string]bool) []PlanWork {
	index, isSimulated := map[string]int{}, map[string]bool{}
	work := []PlanWork{}
	for _, t := range r.Targets {
		if !hasOpenTasks(t) || t.Blocked != nil || t.Gone {
			continue
		}
		key := b.workKey(r, t)
		at, ok := index[key]
		if !ok {
			at = len(work)
			index[key] = at
			work = append(work, PlanWork{})
		}
		w := &work[at]
		w.Nodes = append(w.Nodes, t.Node)
		// The order of a node that was simulated is the real one.
		runs := b.forecast.runs[targetKey{r.Ref, t.Node}]
		if !isSimulated[key] && (len(w.Steps) == 0 || len(runs) > 0 && started[t.Node]) {
			isSimulated[key] = len(runs) > 0
			w.Steps = b.orderSteps(r, t, runs)
		}
	}
	return work
}

// workKey is equal for targets with the same tasks.
func (b *planBuilder) workKey(r *rollout.Rollout, t *rollout.Target) string {
	var key strings.Builder
	for i := range t.Tasks {
		if k := &t.Tasks[i]; k.State != rollout.StateDone {
			fmt.Fprintf(&key, "%s %s %s\n", k.ID, k.CoveredBy, b.taskPurpose(r, t, k))
		}
	}
	return key.String()
}

// taskPurpose returns why a task has to run.
func (b *planBuilder) taskPurpose(r *rollout.Rollout, t *rollout.Target, k *rollout.Task) string {
	hook := b.SkyhookOf(r)
	if hook == nil {
		return ""
	}
	p, ok := b.Compiled.Skyhook(hook).Purpose(t.Node, k.ID)
	if !ok {
		return ""
	}
	if k.Need == rollout.NeedAlone && p.Interrupt != nil {
		return strings.TrimSpace(string(p.Interrupt.Type) + " " + output.List(p.Interrupt.Services, 3))
	}
	switch {
	case p.Goal == node.GoalUpgrade && p.From != "":
		return string(p.Goal) + " from " + p.From
	case p.Goal == node.GoalConfig && len(p.Keys) > 0:
		return "changed: " + output.List(p.Keys, 3)
	case p.Goal == "":
		return "goes on"
	}
	return string(p.Goal)
}

// orderSteps returns the open tasks of a target: running tasks first, then in the order of the simulation, then the rest.
func (b *planBuilder) orderSteps(r *rollout.Rollout, t *rollout.Target, runs []taskRun) []planStep {
	open := map[string]*rollout.Task{}
	for i := range t.Tasks {
		if t.Tasks[i].State != rollout.StateDone {
			open[t.Tasks[i].ID] = &t.Tasks[i]
		}
	}
	var steps []planStep
	add := func(k *rollout.Task, covers []string) {
		delete(open, k.ID)
		step := planStep{Task: k.Label, Why: b.taskPurpose(r, t, k), Needs: formatNeed(k.Need)}
		for _, id := range covers {
			step.Covers = append(step.Covers, b.taskLabel(r.Ref, t.Node, id))
			delete(open, id)
		}
		steps = append(steps, step)
	}
	for i := range t.Tasks {
		if k := open[t.Tasks[i].ID]; k != nil && k.Object.Name != "" {
			add(k, nil)
		}
	}
	for _, run := range runs {
		if k := open[run.task]; k != nil {
			add(k, run.covers)
		}
	}
	for i := range t.Tasks {
		if k := open[t.Tasks[i].ID]; k != nil && k.CoveredBy == "" {
			add(k, nil)
		}
	}
	return steps
}

func formatNeed(n rollout.Need) string {
	switch n {
	case rollout.NeedDrained:
		return "drained"
	case rollout.NeedAlone:
		return "drained, alone"
	}
	return ""
}

// listPods returns the pods on nodes that are cordoned, or drained next.
func (b *planBuilder) listPods(r *rollout.Rollout) []nodePods {
	var out []nodePods
	for _, t := range r.Targets {
		if !t.NeedsDrain() {
			continue
		}
		pods, _ := b.podsToEvict(r, t.Node)
		if len(pods) == 0 {
			continue
		}
		np := nodePods{Node: t.Node}
		for _, pod := range pods {
			name := pod.Namespace + "/" + pod.Name
			budget := b.Budgets[types.UID(pod.UID)]
			switch {
			case pod.Wait:
				np.Wait = append(np.Wait, name)
			case pod.Keep != "":
				np.Keep = append(np.Keep, name+": "+pod.Keep)
			case budget != "":
				np.Refused = append(np.Refused, name+": "+budget)
			default:
				np.Evict = append(np.Evict, name)
			}
		}
		out = append(out, np)
	}
	slices.SortFunc(out, func(a, b nodePods) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// findWarnings returns problems of the spec, and risks of the first wave.
func (b *planBuilder) findWarnings(r *rollout.Rollout, p *RolloutPlan) []string {
	var warnings []string
	for _, problem := range b.Compiled.Problems {
		if problem.Rollout == r.Ref && (r.Broken == nil || problem.Text != r.Broken.Text) {
			warnings = append(warnings, problem.Text)
		}
	}
	if hook := b.SkyhookOf(r); hook != nil {
		if n := b.Compiled.Skyhook(hook).EditedNodes(); n > 0 {
			warnings = append(warnings, fmt.Sprintf("the image, env or resources of a finished package changed on %s: that runs nothing until its next install or upgrade, or a rerun", output.Count(n, "node")))
		}
	}
	if len(p.Waves) == 0 || p.Changing < 2 {
		return warnings
	}
	first := 0
	for _, w := range p.Waves {
		if w.after == p.Waves[0].after {
			first += len(w.Nodes)
		}
	}
	drains := slices.ContainsFunc(r.Targets, func(t *rollout.Target) bool { return t.NeedsDrain() })
	switch {
	case first == p.Changing && drains:
		warnings = append(warnings, fmt.Sprintf("all %d nodes begin at once and are drained together: give it a smaller budget", first))
	case first == p.Changing:
		warnings = append(warnings, fmt.Sprintf("all %d nodes begin at once: give it a smaller budget to notice failures early", first))
	case first > 1 && p.Changing > 3:
		warnings = append(warnings, fmt.Sprintf("%d nodes begin at once and no single node is tried first: a DeploymentPolicy with initialBatch 1 does that", first))
	}
	return warnings
}

func compareReasonCounts(a, b reasonCount) int {
	return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason))
}

// Plan is what the Plan command prints.
type Plan struct {
	Changes  bool             `json:"changes"`
	Rollouts []RolloutPlan    `json:"rollouts"`
	Actions  []planAction     `json:"actions"` // of the next reconcile
	Settings OperatorSettings `json:"settings"`
}

// RolloutPlan is the plan of one rollout.
type RolloutPlan struct {
	Name     rollout.Ref     `json:"name"`
	Profile  *profile.Chosen `json:"profile,omitempty"`
	Nodes    int             `json:"nodes"`           // selected
	Changing int             `json:"changing"`        // of these, with work that can start
	Times    string          `json:"times,omitempty"` // how long a node takes, and from what that is known
	Needs    []NodeNeed      `json:"needs,omitempty"` // what nodes need, as their packages say
	Work     []PlanWork      `json:"work"`
	Waves    []wave          `json:"waves"`
	// what other programs are shown on each node while it is held, or before
	Marks []NodeMark `json:"marks,omitempty"`
	// compartments that begin after each other, or after an approval
	Compartments []CompartmentPlan `json:"compartments,omitempty"`
	Closed       []closedGroup     `json:"closed,omitempty"` // groups that start nothing now
	Later        int               `json:"later"`            // nodes that start after the printed waves
	Never        []reasonCount     `json:"waiting,omitempty"`
	Pods         []nodePods        `json:"pods,omitempty"`
	Images       []PackageImage    `json:"images,omitempty"` // of packages, with pinImages
	Warnings     []string          `json:"warnings,omitempty"`
	Problem      string            `json:"problem,omitempty"`
}

// PlanWork is the work of nodes with the same tasks.
type PlanWork struct {
	Nodes []string   `json:"nodes"`
	Steps []planStep `json:"steps"`
}

// PackageImage is what nodes pull for a package.
type PackageImage struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Image   string `json:"image"`
	Text    string `json:"text"`
}

// closedGroup is a group that starts nothing now.
type closedGroup struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// planStep is one task.
type planStep struct {
	Task   string   `json:"task"`
	Why    string   `json:"why"`
	Needs  string   `json:"needs,omitempty"`
	Covers []string `json:"covers,omitempty"`
}

// nodePods are the pods to evict from one node.
type nodePods struct {
	Node    string   `json:"node"`
	Evict   []string `json:"evict,omitempty"`
	Wait    []string `json:"waitFor,omitempty"`
	Keep    []string `json:"cannotBeEvicted,omitempty"`
	Refused []string `json:"refusedNow,omitempty"`
}

// planAction is one action of the next reconcile.
type planAction struct {
	Node    string `json:"node"`
	Verb    string `json:"verb"`
	Rollout string `json:"rollout"`
	What    string `json:"what,omitempty"`
	Why     string `json:"why"`
}

// reasonCount is how many nodes wait for the same reason.
type reasonCount struct {
	Reason string   `json:"reason"`
	Nodes  int      `json:"nodes"`
	Text   string   `json:"text"` // of the first node
	First  []string `json:"first"`
}

// Names are the rollouts that would change nodes, for -o name.
func (p *Plan) Names() []string {
	var names []string
	for _, r := range p.Rollouts {
		if r.Changing > 0 {
			names = append(names, strings.ToLower(r.Name.String()))
		}
	}
	return names
}
