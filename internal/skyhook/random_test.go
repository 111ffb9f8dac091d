// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

var (
	seeds = flag.Int("seeds", 25, "number of random runs of TestRandomRuns")
	first = flag.Int64("seed", 1, "the seed of the first run")
)

// TestRandomRuns runs Skyhooks with the real engine under random faults: random dependencies, edits at any moment, failing and
// lost pods, lost actions, resets by hand, boots, operators with wrong clocks, recorded times of the far future. Once the edits
// and faults end, every node converges to the spec, and until then:
//
//   - a package starts only when what it depends on is finished on the node;
//   - an interrupt runs alone on a node that is held;
//   - no more nodes are in flight than the budget allows;
//   - nothing stays held, cordoned or running;
//   - no deadline passes, because no pod takes long by the clock of the cluster;
//   - what is kept from one pass to the next is what would be compiled anew.
func TestRandomRuns(t *testing.T) {
	for i := range *seeds {
		seed := *first + int64(i)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := &randomRun{testCluster: newTestCluster(t), rng: rand.New(rand.NewSource(seed)), budget: 2, damaged: map[string]string{}, durations: timing.NewDurations()}
			l.run()
		})
		if !ok {
			t.Fatalf("repeat it with -run TestRandomRuns -seeds 1 -seed %d", seed)
		}
	}
}

type randomRun struct {
	*testCluster
	rng      *rand.Rand
	s        *v1alpha1.Skyhook
	budget   int
	quiet    bool // no further faults
	rebooted []string
	damaged  map[string]string // nodeState by node, as it was before it was damaged

	durations *timing.Durations // of the present process of the operator
}

func (l *randomRun) chance(percent int) bool { return !l.quiet && l.rng.Intn(100) < percent }

func (l *randomRun) run() {
	for i := range 4 {
		l.addNode(fmt.Sprintf("n%d", i))
	}
	l.config.ReapplyOnReboot = l.rng.Intn(3) == 0
	l.edit()
	for turn := 0; turn < 60; turn++ {
		if l.chance(12) {
			l.edit()
		}
		l.injectFault()
		l.pass()
	}
	for _, n := range l.nodes {
		if l.damaged[n.Name] != "" {
			l.damage(n)
			l.bumpVersion(n)
		}
	}
	l.quiet = true
	if l.rng.Intn(2) == 0 {
		l.edit()
	}
	for turn := 0; ; turn++ {
		if turn > 400 {
			l.t.Fatalf("it never ends:\n%s\n%s", strings.Join(l.tail(40), "\n"), formatRollout(l.compile(l.s)))
		}
		if !l.pass() && l.isAtRest() {
			break
		}
	}
	l.checkConverged()
	l.deleteSkyhook()
	l.recreateSkyhook()
	l.deleteSkyhook()
	if l.kept < 20 {
		l.t.Errorf("only %d nodes were taken over from the pass before", l.kept)
	}
}

// deleteSkyhook deletes the Skyhook, and checks that nothing but the record of remaining packages is left.
func (l *randomRun) deleteSkyhook() {
	now := metav1.NewTime(l.now)
	l.s.DeletionTimestamp = &now
	l.stuck = func(p *corev1.Pod) bool { return strings.HasSuffix(p.Spec.NodeName, "2") }
	l.checkRest()
	l.removeStuckPods()
	l.stuck = nil
	for pass := 0; !l.compile(l.s).Removed; pass++ {
		if pass > 300 {
			l.t.Fatalf("the deletion never ends:\n%s\n%s", strings.Join(l.tail(40), "\n"), formatRollout(l.compile(l.s)))
		}
		l.pass()
	}
	allowed := []string{v1alpha1.AnnotationKnown, v1alpha1.PrefixNodeState + "demo", v1alpha1.PrefixRecord + "demo", v1alpha1.PrefixVersion + "demo"}
	for _, n := range l.nodes {
		for key := range n.Annotations {
			if !slices.Contains(allowed, key) {
				l.t.Errorf("%s keeps the annotation %s", n.Name, key)
			}
		}
		for key, e := range node.Parse(n.DeepCopy(), nil).Skyhook("demo").State {
			if def := l.compile(l.s).facts.Packages[e.Name]; def != nil && def.Key() == key && def.IsUninstallEnabled() {
				l.t.Errorf("%s keeps %s, which is uninstalled\n%s", n.Name, key, strings.Join(l.logOf(n.Name), "\n"))
			}
		}
		if n.Spec.Unschedulable {
			l.t.Errorf("%s is left cordoned", n.Name)
		}
	}
}

// recreateSkyhook creates the Skyhook again with the same spec. What was finished and stayed does not run again.
func (l *randomRun) recreateSkyhook() {
	l.s = l.s.DeepCopy()
	l.s.UID, l.s.Generation, l.s.DeletionTimestamp, l.s.Status = "uid-again", 1, nil, v1alpha1.SkyhookStatus{}
	l.skyhooks, l.maps = []*v1alpha1.Skyhook{l.s}, map[string]*corev1.ConfigMap{}
	begin, defs, finished := len(l.log), l.compile(l.s).facts.Packages, map[string]bool{}
	for _, n := range l.nodes {
		for key, p := range node.Parse(n.DeepCopy(), nil).Skyhook("demo").Record.Packages {
			name, _, _ := strings.Cut(key, "|")
			if def := defs[name]; def != nil && def.Key() == key && p.Config == def.Config {
				finished[n.Name+" "+key] = true
			}
		}
	}
	for pass := 0; l.pass() || !l.isAtRest(); pass++ {
		if pass > 400 {
			l.t.Fatalf("it never ends:\n%s\n%s", strings.Join(l.tail(40), "\n"), formatRollout(l.compile(l.s)))
		}
	}
	l.checkConverged()
	for _, line := range l.log[begin:] {
		nodeName, rest, _ := strings.Cut(line, " run ")
		key, _, isRun := strings.Cut(rest, "/")
		if isRun && finished[nodeName+" "+key] {
			l.t.Errorf("%s: %s runs again\n%s", nodeName, rest, strings.Join(l.logOf(nodeName), "\n"))
		}
	}
}

func (l *randomRun) tail(n int) []string { return l.log[max(0, len(l.log)-n):] }

// edit writes another spec: any packages, any versions, dependencies on earlier names only.
func (l *randomRun) edit() {
	versions := []string{"1.0.0", "1.1.0", "1.10.0", "2.0.0"}
	kinds := []string{"", "", "noop", "service", "reboot", "restartAllServices"}
	packages := map[string]any{}
	for i := range 4 {
		if l.rng.Intn(5) == 0 {
			continue
		}
		name := fmt.Sprintf("p%cx", 'a'+i)
		p := map[string]any{"version": versions[l.rng.Intn(len(versions))], "image": "example.org/" + name}
		p["configMap"] = map[string]string{"a": fmt.Sprint(l.rng.Intn(3)), "b": fmt.Sprint(l.rng.Intn(3))}
		interrupt := func() any {
			return map[string]any{"type": "service", "services": []string{fmt.Sprintf("s%d", l.rng.Intn(3))}}
		}
		switch kind := kinds[l.rng.Intn(len(kinds))]; kind {
		case "":
		case "service":
			p["interrupt"] = interrupt()
		default:
			p["interrupt"] = map[string]any{"type": kind}
		}
		if l.rng.Intn(2) == 0 {
			p["configInterrupts"] = map[string]any{"a": interrupt(), "b*": map[string]any{"type": []string{"noop", "reboot"}[l.rng.Intn(2)]}}
		}
		deps := map[string]string{}
		for _, other := range plan.SortedNames(packages) {
			if l.rng.Intn(3) == 0 {
				deps[other] = packages[other].(map[string]any)["version"].(string)
			}
		}
		p["dependsOn"] = deps
		switch l.rng.Intn(8) {
		case 0:
			p["uninstall"] = map[string]any{"enabled": false}
		case 1, 2:
			p["uninstall"] = map[string]any{"enabled": true}
		case 3:
			p["uninstall"] = map[string]any{"enabled": true, "apply": true}
		}
		if l.rng.Intn(3) == 0 {
			p["env"] = []any{map[string]any{"name": "X", "value": fmt.Sprint(l.rng.Intn(3))}}
		}
		packages[name] = p
	}
	raw, err := yaml.Marshal(map[string]any{"metadata": map[string]any{"name": "demo"}, "spec": map[string]any{
		"interruptionBudget": map[string]any{"count": l.budget}, "serial": l.rng.Intn(6) == 0, "packages": packages,
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.s = l.apply(string(raw))
	l.log = append(l.log, "edit")
}

// pass runs one pass of the loop and reports whether it changed anything.
func (l *randomRun) pass() bool {
	l.now = l.now.Add(time.Duration(5+l.rng.Intn(60)) * time.Second)
	if l.quiet {
		l.s.Annotations = nil
	}
	moved := l.advancePods()
	c := l.compile(l.s)
	plan := l.decide(c)
	for _, v := range plan.Reports[0].Verdicts {
		if v.Why.Reason == rollout.ReasonInvalidSpec && c.Rollout.Broken == nil {
			l.t.Fatalf("%s makes no sense to the engine: %s\n%s", v.Node, v.Why.Text, formatRollout(c))
		}
	}
	for _, ledger := range plan.Ledgers {
		l.s.Status.Internal.Admission = policy.ToAdmission(ledger)
	}
	byNode := map[string]bool{}
	existing := len(l.pods)
	for _, a := range plan.Actions {
		if byNode[a.Node] {
			continue // an earlier action on the node was lost, and the rest with it
		}
		if l.chance(5) {
			byNode[a.Node] = true
			continue
		}
		if a.Verb == rollout.VerbSweep {
			existing--
		}
		l.logAndApply(c, a)
	}
	l.checkNewPods(l.pods[max(0, existing):])
	l.s.Status.CompartmentStatuses, l.s.Status.Internal.Batches = policy.ToCompartmentStatuses(c.Rollout.Ref, plan.Groups)
	l.s.Status.NodeOrderOffset = int32(plan.Reports[0].NextOrder)
	l.checkNodes()
	return moved || len(plan.Actions) > 0
}

// decide returns the plan for a compiled Skyhook.
func (l *randomRun) decide(c *Compiled) rollout.Plan {
	snap := rollout.Snapshot{Now: c.facts.Now, Groups: c.Groups, Ledgers: []rollout.Ledger{c.Ledger}, Rollouts: []rollout.Rollout{c.Rollout}}
	for _, n := range c.clusterNodes {
		snap.Nodes = append(snap.Nodes, rollout.Node{Name: n.Name, UID: n.UID, Created: n.Created, Ready: n.Ready, Cordoned: n.Unschedulable,
			BootID: n.BootID, Holds: n.Holds(nil), Known: n.IsKnown()})
	}
	for i := range snap.Rollouts[0].Targets {
		snap.Rollouts[0].CopyTarget(i).Drain.PodsSeen = true
	}
	l.durations.Measure(&snap)
	snap.Times = rollout.NewTimes(snap.Rollouts)
	plan := engine.Decide(snap)
	l.durations.RecordDrains(snap, plan)
	return plan
}

// checkNewPods checks that a pass that follows at once, with nothing changed from outside, keeps every pod that the last one
// made: no stage is started and abandoned.
func (l *randomRun) checkNewPods(made []*corev1.Pod) {
	if len(made) == 0 {
		return
	}
	for _, t := range l.compile(l.s).Rollout.Targets {
		for _, p := range made {
			if p.Spec.NodeName == t.Node && slices.Contains(t.Objects.Orphans, p.Name) {
				l.t.Fatalf("pod %s was made and is not wanted\n%s\n%s", p.Name, formatRollout(l.compile(l.s)), strings.Join(l.logOf(t.Node), "\n"))
			}
		}
	}
}

func (l *randomRun) logAndApply(c *Compiled, a rollout.Action) {
	switch a.Verb {
	case rollout.VerbRun, rollout.VerbSweep, rollout.VerbRecord, rollout.VerbCover, rollout.VerbAdmit, rollout.VerbHold, rollout.VerbRelease, rollout.VerbRetire:
		l.log = append(l.log, fmt.Sprintf("%s %s %s%s (%s)", a.Node, a.Verb, a.Task, a.State, a.Why.Text))
	}
	switch a.Verb {
	case rollout.VerbRecord:
		if slices.Contains([]rollout.Reason{rollout.ReasonDeadline, rollout.ReasonRebootTimeout, rollout.ReasonRebootNotStarted}, a.Why.Reason) {
			l.t.Errorf("%s of %s: %s\n%s", a.Task, a.Node, a.Why.Text, strings.Join(l.tail(20), "\n"))
		}
	case rollout.VerbRun:
		l.checkRun(c, a)
	case rollout.VerbAdmit:
		l.checkAdmission(a.Node)
	}
	l.applyAction(c, a)
}

// checkRun checks the order of packages, and that an interrupt runs alone.
func (l *randomRun) checkRun(c *Compiled, a rollout.Action) {
	st, err := c.target(a.Node).FindStep(a.Task)
	if err != nil {
		l.t.Fatal(err)
	}
	state := node.Parse(l.node(a.Node).DeepCopy(), nil).Skyhook("demo").State
	if st.Stage == v1alpha1.StageApply || st.Stage == v1alpha1.StageUpgrade {
		for dep, version := range st.Definition.Package.DependsOn {
			e, ok := state[v1alpha1.PackageKey(dep, version)]
			if !ok || e.State != v1alpha1.StateComplete || e.Stage != v1alpha1.StageConfig && e.Stage != v1alpha1.StagePostInterrupt {
				l.t.Errorf("%s runs on %s before %s is finished: %v\n%s", a.Task, a.Node, dep, e, strings.Join(l.tail(20), "\n"))
			}
		}
	}
	if st.Effect != nil && !l.node(a.Node).Spec.Unschedulable {
		l.t.Errorf("%s runs on %s, which is not held\n%s", a.Task, a.Node, strings.Join(l.tail(20), "\n"))
	}
	if !st.IsInterrupt() {
		return
	}
	for _, p := range l.pods {
		if p.Spec.NodeName == a.Node && podstate.Read(p).State != podstate.Succeeded {
			l.t.Errorf("interrupt %s runs on %s beside %s\n%s", a.Task, a.Node, p.Name, strings.Join(l.tail(20), "\n"))
		}
	}
}

// advancePods lets pods succeed or fail.
func (l *randomRun) advancePods() bool {
	moved := false
	for _, p := range l.pods {
		before := podstate.Read(p)
		if before.State == podstate.Succeeded || before.Dead || l.rng.Intn(3) == 0 {
			continue
		}
		moved = true
		switch {
		case l.chance(15):
			l.endPod(p, 1, "")
		case l.chance(4):
			p.Status.Phase, p.Status.Reason, p.Status.InitContainerStatuses = corev1.PodFailed, "Evicted", nil
		case strings.Contains(l.payload(p), "reboot"):
			l.reboot(p)
		default:
			l.endPod(p, 0, "")
		}
	}
	return moved
}

// reboot does what the agent does: it reboots once for each interrupt id.
func (l *randomRun) reboot(p *corev1.Pod) {
	n := l.node(p.Spec.NodeName)
	id := ""
	for _, e := range p.Spec.InitContainers[0].Env {
		if e.Name == pack.EnvInterruptID {
			id = e.Value
		}
	}
	from := n.Status.NodeInfo.BootID
	if slices.Contains(l.rebooted, n.Name+id) {
		from = "an earlier one"
	} else {
		l.rebooted = append(l.rebooted, n.Name+id)
		n.Status.NodeInfo.BootID = l.nextBoot(from)
	}
	l.endPod(p, 0, string(pack.Message{Mode: pack.ModeInterrupt, Outcome: pack.Succeeded, Reboot: &pack.Reboot{From: from, To: n.Status.NodeInfo.BootID}}.Encode()))
	if l.chance(20) {
		l.log = append(l.log, n.Name+" booted again")
		n.Status.NodeInfo.BootID = l.nextBoot(n.Status.NodeInfo.BootID)
	}
	l.bumpVersion(n)
}
