// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/sim"
)

// desiredRollout is the desired state of a rollout. It is compiled like an object by a front end.
type desiredRollout struct {
	name              rollout.Ref
	shares            bool // its targets are in the shared group
	hasWaves          bool // some of its nodes come after the others
	packages          map[string]desiredPackage
	nodes             map[string]bool                        // by name
	kept              map[string]map[string]installedPackage // by node UID, then package: what is installed
	goals             map[string]map[string]goal             // by node UID, then package: the result of its tasks
	forgets           bool                                   // finished tasks are not listed
	rollsBack         bool                                   // nodes roll back when their work fails for good
	before            map[string]map[string]desiredPackage   // by node UID: what was complete there last
	rollbacks         map[string]int                         // by node UID and packages
	refuses           bool                                   // its packages refuse that
	rollsBackTogether bool                                   // nodes that are complete roll back with those that failed
	previous          map[string]map[string]desiredPackage   // by node UID: what was complete there before
	failed            map[string]string                      // by node UID: the packages that it rolled back from, as text
	proof             *rollout.Proof                         // what is asked for of each node; nil for nothing
	drift             hostDrift                              // what changed on hosts since the work was done
	pulls             bool                                   // images are pulled before their turn
	chains            int                                    // created so far
	joins             bool                                   // its tasks may share objects
}

// desiredPackage is the desired state of a package.
type desiredPackage struct {
	version, config, interrupt int
	after                      string
	bounded                    bool
}

// installedPackage is a package on a node. A negative config is none: it is configured again, with toApply also applied again.
type installedPackage struct{ version, config int }

const (
	toConfigure = -1
	toApply     = -2
)

// goal is the result of a chain of tasks; empty for an uninstall.
type goal struct {
	kind string
	desiredPackage
	begun bool // some tasks are finished and not listed
	once  bool // its first failure is final
}

var prototypes = []rollout.Pace{
	{Kind: rollout.PaceWindow},
	{Kind: rollout.PaceWindow, StopAfter: 2, SafetyLimit: 60},
	{Kind: rollout.PaceWhole, PassPercent: 100, SafetyLimit: 50},
	{Kind: rollout.PaceFixed, Initial: 2, PassPercent: 100, SafetyLimit: 50, StopAfter: 1},
	{Kind: rollout.PaceLinear, Initial: 1, Delta: 1, PassPercent: 50, SafetyLimit: 50},
	{Kind: rollout.PaceExponential, Initial: 1, Factor: 2, PassPercent: 100, SafetyLimit: 40, StopAfter: 2},
}

func (s *faultTest) addRollout(i int) {
	kind := "Skyhook"
	if s.chance(25) {
		kind = "NodeOp"
	}
	w := &desiredRollout{name: rollout.Ref{Kind: kind, Name: fmt.Sprintf("w%d", i)}, packages: map[string]desiredPackage{}, nodes: map[string]bool{},
		kept: map[string]map[string]installedPackage{}, goals: map[string]map[string]goal{}}
	for j := range 1 + s.random.Intn(3) {
		w.packages[fmt.Sprintf("p%d", j)] = s.newPackage(j)
	}
	for _, n := range s.cluster.State.Nodes {
		w.nodes[n.Name] = s.chance(85)
	}
	r := rollout.Rollout{
		Ref: w.name, Sequence: kind, UID: s.newUID(), Priority: 100 + 50*s.random.Intn(3), Barrier: s.chance(15), Serial: s.chance(20),
		Taint: rollout.Taint{Required: s.chance(25)}, Once: kind == "NodeOp", KeepHeld: s.chance(50),
		Numbering: rollout.Numbering{Stored: kind == "Skyhook"},
	}
	r.Taint.NewNodes = r.Taint.Required && s.chance(50)
	if s.chance(40) {
		r.Drain = rollout.Drain{Timeout: time.Duration(20+s.random.Intn(100)) * time.Second,
			OnTimeout: []rollout.DrainTimeout{rollout.DrainWait, rollout.DrainSkip, rollout.DrainForce}[s.random.Intn(3)]}
	}
	if s.chance(40) {
		r.Drain.WaitFirst, r.Drain.ByPriority = s.chance(70), s.chance(40)
		r.Drain.WaitTimeout = time.Duration(s.random.Intn(3)*40) * time.Second
		r.Drain.OnWaitTimeout = []rollout.DrainTimeout{rollout.DrainWait, rollout.DrainSkip, rollout.DrainForce}[s.random.Intn(3)]
	}
	w.forgets, w.joins = s.chance(50), kind == "Skyhook" && s.chance(50)
	w.rollsBack, w.before, w.failed = kind == "Skyhook" && s.chance(40), map[string]map[string]desiredPackage{}, map[string]string{}
	w.rollbacks = map[string]int{}
	w.refuses = w.rollsBack && s.chance(15)
	w.rollsBackTogether, w.previous = w.rollsBack && s.chance(50), map[string]map[string]desiredPackage{}
	r.Rollback.Together = w.rollsBackTogether
	if w.rollsBack && s.chance(60) {
		w.installEarlier(s.cluster.State.Nodes)
	}
	if s.chance(30) {
		w.proof = &rollout.Proof{Timeout: time.Duration(s.random.Intn(4)) * time.Minute, Release: s.chance(30)}
	}
	if s.chance(40) {
		r.DriftLimit = 1 + s.random.Intn(2)
	}
	r.SharesReboots = s.chance(70)
	w.pulls = s.chance(40)
	w.drift = hostDrift{isRepaired: kind == "Skyhook" && s.chance(60), changed: map[string]map[string]int{}, found: map[string]map[string]int{}, repairs: map[string][]time.Time{}}
	s.desired = append(s.desired, w)
	s.cluster.State.Rollouts = append(s.cluster.State.Rollouts, r)
	w.shares = s.chance(40)
	w.hasWaves = s.chance(35)
	s.addGroups(w)
}

// installEarlier lets nodes begin with an earlier version of each package.
func (w *desiredRollout) installEarlier(nodes []rollout.Node) {
	for _, n := range nodes {
		w.kept[n.UID], w.goals[n.UID], w.before[n.UID] = map[string]installedPackage{}, map[string]goal{}, map[string]desiredPackage{}
		for name, p := range w.packages {
			p.version--
			w.before[n.UID][name], w.kept[n.UID][name] = p, installedPackage{p.version, p.config}
		}
	}
}

// sharedPolicy owns the groups that several rollouts share.
var sharedPolicy = rollout.Ref{Kind: "Policy", Name: "shared"}

// groupRef returns the group of new targets.
func (w *desiredRollout) groupRef() rollout.GroupRef {
	if w.shares {
		return rollout.GroupRef{Owner: sharedPolicy}
	}
	return rollout.GroupRef{Owner: w.name}
}

func (s *faultTest) addGroup(ref rollout.GroupRef) {
	if s.findGroup(ref) != nil {
		return
	}
	g := rollout.Group{Ref: ref, Ledger: ref.Owner, Limit: 1 + s.random.Intn(4), Pace: prototypes[s.random.Intn(len(prototypes))], Reset: s.chance(60)}
	if s.chance(15) {
		g.Limit = rollout.Unlimited
	}
	if s.chance(15) {
		g.Soak = time.Duration(s.random.Intn(60)) * time.Second
	}
	if s.chance(15) {
		g.Spread = rollout.Spread{Key: "zone", Limit: 1}
	}
	s.cluster.State.Groups = append(s.cluster.State.Groups, g)
}

func (s *faultTest) findGroup(ref rollout.GroupRef) *rollout.Group {
	for i := range s.cluster.State.Groups {
		if s.cluster.State.Groups[i].Ref == ref {
			return &s.cluster.State.Groups[i]
		}
	}
	return nil
}

func (s *faultTest) findEpoch(ledger rollout.Ref) int64 {
	for _, l := range s.cluster.State.Ledgers {
		if l.Owner == ledger {
			return l.Epoch
		}
	}
	return 0
}

func (s *faultTest) newPackage(j int) desiredPackage {
	p := desiredPackage{version: 1 + s.random.Intn(3), config: s.random.Intn(3), interrupt: max(0, s.random.Intn(5)-2), bounded: s.chance(15)}
	if j > 0 && s.chance(40) {
		p.after = fmt.Sprintf("p%d", s.random.Intn(j))
	}
	return p
}

func (s *faultTest) newUID() string {
	s.serial++
	return fmt.Sprintf("uid-%d", s.serial)
}

// compileAll compiles every rollout: the work on a node is the difference between the desired state and the node.
func (s *faultTest) compileAll() {
	s.compileApprovals()
	for _, w := range s.desired {
		r := s.cluster.FindRollout(w.name)
		if r == nil {
			continue
		}
		for _, n := range s.cluster.State.Nodes {
			if s.cluster.FindTarget(w.name, n.Name) == nil && w.nodes[n.Name] && !r.Deleting {
				r.Targets = append(r.Targets, &rollout.Target{Node: n.Name, UID: n.UID, Group: w.groupOf(n.Name), Place: zoneOf(n.Name)})
				s.cluster.Reindex()
			}
		}
		r.Targets = slices.DeleteFunc(r.Targets, func(t *rollout.Target) bool {
			n := s.cluster.FindNode(t.Node)
			isOnNode := n != nil && n.UID == t.UID
			if isOnNode && t.Wiped && !hasObjects(t) {
				return true
			}
			return n == nil && s.chance(20) || n != nil && n.UID != t.UID && s.chance(20) ||
				n != nil && n.UID == t.UID && !r.Deleting && !w.nodes[t.Node] && !t.Visit.Admitted && !holdsNode(n, w.name) && !hasObjects(t)
		})
		s.cluster.Reindex()
		for _, t := range r.Targets {
			n := s.cluster.FindNode(t.Node)
			t.Gone = n == nil
			if n == nil || n.UID != t.UID {
				continue
			}
			t.Leaving = !w.nodes[t.Node] && !r.Deleting
			t.Group = w.groupOf(t.Node)
			if t.Wiped || s.compileDamaged(r, t) {
				continue
			}
			w.compileRollback(r, t)
			w.compileTarget(r, t, n)
			s.compileProof(w, t)
			s.compileDrift(w, r, t)
			s.compilePull(w, r, t)
		}
	}
}

// compileRollback notes what is complete on a node, and says whether it may roll back to that. Other packages begin anew.
func (w *desiredRollout) compileRollback(r *rollout.Rollout, t *rollout.Target) {
	isIdle := !t.Visit.Admitted && t.Rollback.Cause == nil && len(t.Tasks) == 0 && w.findAnyGoal(r, t) == ""
	if isIdle && !t.Leaving && !r.Deleting && !w.rollBackWithOthers(r, t) && fmt.Sprint(w.before[t.UID]) != fmt.Sprint(w.packages) {
		w.previous[t.UID], w.before[t.UID] = w.before[t.UID], maps.Clone(w.packages)
	}
	isFirst := !t.Visit.Admitted && t.Rollback.Cause == nil && w.before[t.UID] == nil && len(w.kept[t.UID]) == 0
	if isFirst && !t.Leaving && !r.Deleting {
		w.before[t.UID] = map[string]desiredPackage{} // what fails is uninstalled
	}
	wanted := fmt.Sprint(w.packages)
	switch {
	case t.Rollback.Cause == nil:
		delete(w.failed, t.UID)
	case w.failed[t.UID] == "":
		w.failed[t.UID] = wanted
	case w.failed[t.UID] != wanted || r.Deleting:
		t.Rollback.Cause, t.Rollback.WithOthers = nil, false
	}
	t.Rollback.IfFailed = w.rollsBack && t.Rollback.Cause == nil && t.Visit.Admitted && !t.Leaving && !r.Deleting &&
		w.before[t.UID] != nil && fmt.Sprint(w.before[t.UID]) != wanted
	t.Rollback.IfOthers = t.Rollback.IfFailed && w.rollsBackTogether
	t.Rollback.Refused = ""
	if t.Rollback.IfFailed && w.refuses {
		t.Rollback.Refused = "the node does not go back"
	}
	t.Rollback.IfUnproven = t.Rollback.IfFailed && (t.Proof == nil || !t.Proof.Release)
}

// rollBackWithOthers makes a complete node roll back when the same packages failed on another one, if something else was there before.
func (w *desiredRollout) rollBackWithOthers(r *rollout.Rollout, t *rollout.Target) bool {
	hasFailed := func(o *rollout.Target) bool {
		return o.Rollback.Cause != nil && !o.Rollback.WithOthers && !o.Leaving && w.failed[o.UID] == fmt.Sprint(w.packages)
	}
	isNew := w.previous[t.UID] != nil && fmt.Sprint(w.previous[t.UID]) != fmt.Sprint(w.packages)
	if !w.rollsBackTogether || w.refuses || !w.rollsBack || !isNew || len(w.kept[t.UID]) == 0 || !slices.ContainsFunc(r.Targets, hasFailed) {
		return false
	}
	w.before[t.UID] = w.previous[t.UID]
	t.Rollback.Cause, t.Rollback.WithOthers = &rollout.Why{Reason: rollout.ReasonRolledBack, Text: "another node went back"}, true
	w.rollbacks[t.UID+fmt.Sprint(w.packages)]++
	return true
}

// packagesOn returns what a node is to have.
func (w *desiredRollout) packagesOn(t *rollout.Target) map[string]desiredPackage {
	if t.Rollback.Cause != nil && w.before[t.UID] != nil {
		return w.before[t.UID]
	}
	return w.packages
}

// findAnyGoal returns a package that has work on a node; empty if none has.
func (w *desiredRollout) findAnyGoal(r *rollout.Rollout, t *rollout.Target) string {
	names := slices.Concat(slices.Collect(maps.Keys(w.packages)), slices.Collect(maps.Keys(w.kept[t.UID])))
	slices.Sort(names)
	at := slices.IndexFunc(names, func(name string) bool { return w.findGoal(r, t, name).kind != "" })
	if at < 0 {
		return ""
	}
	return names[at]
}

// compileProof adds what is asked for of a node before it is given back.
func (s *faultTest) compileProof(w *desiredRollout, t *rollout.Target) {
	if w.proof == nil {
		t.Proof = nil
		return
	}
	proof := *w.proof
	if t.Proof != nil {
		proof.Since = t.Proof.Since
	}
	if s.unproven[t.Node] {
		proof.Missing = &rollout.Why{Reason: rollout.ReasonProof, Text: "the validator found a fault"}
	}
	t.Proof = &proof
}

// damage is what a node recorded of a rollout before its annotations were damaged.
type damage struct {
	isLost bool // the admission cannot be read either
	tasks  []rollout.Task
}

// damageRecord makes the record of a target unreadable: its tasks, and perhaps its admission. Holds and objects stay.
func (s *faultTest) damageRecord(r *rollout.Rollout, t *rollout.Target) {
	key := r.UID + t.UID
	if _, isDamaged := s.damaged[key]; isDamaged || t.Wiped || t.Blocked != nil {
		return
	}
	d := damage{tasks: t.Tasks, isLost: s.chance(50)}
	s.cluster.DropQueues(t)
	d.tasks = t.Tasks
	s.logf("the record of %s on %s is damaged, its admission too: %v", r.Ref, t.Node, d.isLost)
	s.cluster.TouchNode(t.Node)
	s.damaged[key] = d
	for _, k := range t.Tasks {
		switch {
		case k.Object.Name == "" || k.State == rollout.StateSucceeded:
		case k.Object.Leaving:
			t.Objects.Going = append(t.Objects.Going, k.Object.Name)
		default:
			t.Objects.Orphans = append(t.Objects.Orphans, k.Object.Name)
		}
	}
	t.Tasks = nil
	if d.isLost {
		t.Visit.Admitted = false
		maps.DeleteFunc(s.numbers[r.UID], func(_ int, n number) bool { return n.uid == t.UID })
	}
}

// repairRecord makes the record of a target readable again. A lost one is removed, as a reset does.
func (s *faultTest) repairRecord(r *rollout.Rollout, t *rollout.Target) {
	was, isDamaged := s.damaged[r.UID+t.UID]
	if !isDamaged {
		return
	}
	if was.isLost {
		s.resetNode(r, t)
		return
	}
	s.logf("the record of %s on %s is repaired", r.Ref, t.Node)
	s.cluster.TouchNode(t.Node)
	delete(s.damaged, r.UID+t.UID)
	t.Tasks, t.Blocked = was.tasks, nil
	for i := range t.Tasks {
		k := &t.Tasks[i]
		isObject := func(name string) bool { return name == k.Object.Name }
		isThere := slices.ContainsFunc(t.Objects.Orphans, isObject) || slices.ContainsFunc(t.Objects.Going, isObject)
		if k.Object.Name != "" && k.State != rollout.StateSucceeded && !isThere {
			sim.RemoveObject(k)
		}
		t.Objects.Orphans, t.Objects.Going = slices.DeleteFunc(t.Objects.Orphans, isObject), slices.DeleteFunc(t.Objects.Going, isObject)
	}
}

// compileDamaged compiles a target whose record cannot be read.
func (s *faultTest) compileDamaged(r *rollout.Rollout, t *rollout.Target) bool {
	if _, isDamaged := s.damaged[r.UID+t.UID]; !isDamaged {
		return false
	}
	t.Blocked = &rollout.Why{Reason: rollout.ReasonStateUnreadable, Text: "its annotations cannot be read"}
	return true
}

func holdsNode(n *rollout.Node, owner rollout.Ref) bool {
	return slices.ContainsFunc(n.Holds, func(h rollout.Hold) bool { return h.Owner == owner })
}

func hasObjects(t *rollout.Target) bool {
	return len(t.Objects.Orphans)+len(t.Objects.Going) > 0 || slices.ContainsFunc(t.Tasks, func(k rollout.Task) bool { return k.Object.Name != "" })
}

func (w *desiredRollout) compileTarget(r *rollout.Rollout, t *rollout.Target, n *rollout.Node) {
	kept, goals := w.kept[t.UID], w.goals[t.UID]
	if kept == nil {
		kept, goals = map[string]installedPackage{}, map[string]goal{}
		w.kept[t.UID], w.goals[t.UID] = kept, goals
	}
	names := map[string]bool{}
	for name := range w.packagesOn(t) {
		names[name] = true
	}
	for name := range kept {
		names[name] = true
	}
	for name := range goals {
		names[name] = true
	}
	before := t.Tasks
	t.Tasks = nil
	last := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		chain := w.compilePackage(r, t, n, name, selectTasks(before, name))
		t.Tasks = append(t.Tasks, chain...)
		if len(chain) > 0 {
			last[name] = chain[len(chain)-1].ID
		}
	}
	for i := range t.Tasks {
		k := &t.Tasks[i]
		name, _, _ := strings.Cut(k.ID, "|")
		if i > 0 && strings.HasPrefix(t.Tasks[i-1].ID, name+"|") {
			k.After = []string{t.Tasks[i-1].ID}
			continue
		}
		k.After = nil
		if dep := last[goals[name].after]; dep != "" && goals[name].kind != "uninstall" && k.Recorded == rollout.StatePending && !goals[name].begun && goals[goals[name].after].kind != "uninstall" {
			k.After = []string{dep}
		}
	}
	settleQueues(t)
}

func selectTasks(tasks []rollout.Task, name string) []rollout.Task {
	var out []rollout.Task
	for _, k := range tasks {
		if strings.HasPrefix(k.ID, name+"|") {
			out = append(out, k)
		}
	}
	return out
}

// compilePackage returns the tasks of one package, and new ones if the desired state changed.
func (w *desiredRollout) compilePackage(r *rollout.Rollout, t *rollout.Target, n *rollout.Node, name string, chain []rollout.Task) []rollout.Task {
	kept, goals := w.kept[t.UID], w.goals[t.UID]
	releaseObjects(t, chain)
	if len(chain) > 0 && !slices.ContainsFunc(chain, func(k rollout.Task) bool { return k.State != rollout.StateDone || k.Object.Name != "" }) {
		g := goals[name]
		if kept[name] = (installedPackage{g.version, g.config}); g.kind == "uninstall" {
			delete(kept, name)
		}
		w.drift.undo(t.UID, name, g.kind)
		delete(goals, name)
		chain = nil
	}
	want := w.findGoal(r, t, name)
	if g := goals[name]; len(chain) > 0 && want == (goal{kind: g.kind, desiredPackage: g.desiredPackage}) {
		for w.forgets && len(chain) > 1 && chain[0].State == rollout.StateDone && chain[0].Object.Name == "" {
			g.begun = true
			goals[name], chain = g, chain[1:]
		}
		for i := range chain {
			if k := &chain[i]; k.Need == rollout.NeedAlone && k.Strength == 2 && k.Recorded == rollout.StatePending {
				k.BootID = n.BootID
			}
		}
		return chain
	}
	if len(chain) > 0 && !isReplaceable(chain) {
		for i := range chain {
			k := &chain[i]
			k.Object.Stale = k.Object.Name != "" && !k.Object.Leaving && (k.State == rollout.StateFailing || k.State == rollout.StateRunning)
		}
		return chain
	}
	if len(chain) > 0 && (goals[name].begun || chain[0].Recorded != rollout.StatePending) && goals[name].kind != "uninstall" {
		kept[name] = installedPackage{goals[name].version, toConfigure} // it is partly installed
		want = w.findGoal(r, t, name)
	}
	delete(goals, name)
	if want.kind == "" {
		return nil
	}
	goals[name] = want
	want.once = t.Rollback.IfFailed && w.chains%2 == 0
	w.chains++
	chain = want.tasks(fmt.Sprintf("%s|%d.%d#%d", name, want.version, want.config, w.chains), name, n)
	for i := range chain {
		k := &chain[i]
		k.Joins = w.joins && k.Need != rollout.NeedAlone && !k.Uninstall
		k.JoinsSiblings = strings.HasSuffix(k.ID, "/post")
	}
	return chain
}

// releaseObjects lists what is left of tasks that are done on a node that was given back: it belongs to no task.
func releaseObjects(t *rollout.Target, chain []rollout.Task) {
	for i := range chain {
		if k := &chain[i]; !t.Visit.Admitted && k.State == rollout.StateDone && k.Object.Name != "" && !k.Object.Leaving {
			t.Objects.Orphans, k.Object.Name = append(t.Objects.Orphans, k.Object.Name), ""
		}
	}
}

// isReplaceable reports whether no task of a chain is in progress.
func isReplaceable(chain []rollout.Task) bool {
	return !slices.ContainsFunc(chain, func(k rollout.Task) bool {
		return k.Object.Name != "" || k.Need == rollout.NeedAlone && k.Recorded == rollout.StateRunning
	})
}

// findGoal returns the goal of one package on one node; zero if it has no work.
func (w *desiredRollout) findGoal(r *rollout.Rollout, t *rollout.Target, name string) goal {
	want, wanted := w.packagesOn(t)[name]
	is, there := w.kept[t.UID][name]
	if r.Deleting {
		wanted = false
	}
	switch {
	case t.Leaving:
		return goal{}
	case !wanted && there:
		return goal{kind: "uninstall", desiredPackage: desiredPackage{version: is.version, interrupt: max(0, is.config%2), bounded: want.bounded}}
	case !wanted:
		return goal{}
	case !there:
		return goal{kind: "install", desiredPackage: want}
	case want.version < is.version:
		return goal{kind: "uninstall", desiredPackage: desiredPackage{version: is.version}}
	case want.version > is.version:
		return goal{kind: "upgrade", desiredPackage: want}
	case is.config == toApply:
		return goal{kind: "install", desiredPackage: want}
	case want.config != is.config:
		return goal{kind: "config", desiredPackage: want}
	}
	return goal{}
}

func (g goal) tasks(id, name string, n *rollout.Node) []rollout.Task {
	stages := map[string][]string{"install": {"apply", "config"}, "upgrade": {"upgrade", "config"}, "config": {"config"}, "uninstall": {"uninstall"}}[g.kind]
	if g.interrupt > 0 {
		stages = append(slices.Clone(stages), "interrupt", "post")
	}
	var out []rollout.Task
	for _, stage := range stages {
		k := rollout.Task{
			ID: id + "/" + stage, Label: name + " " + stage,
			State: rollout.StatePending, Recorded: rollout.StatePending, Limit: 5 * time.Minute, Uninstall: g.kind == "uninstall",
		}
		if g.bounded {
			k.Retries, k.Bounded = 2, true
		}
		if g.once {
			k.Retries, k.Bounded = 1, true
		}
		switch {
		case stage == "interrupt":
			k.Need, k.Strength = rollout.NeedAlone, g.interrupt
			if g.interrupt == 2 {
				k.Reboot = true
				k.BootID = n.BootID
			}
		case g.interrupt > 0:
			k.Need = rollout.NeedDrained
		}
		out = append(out, k)
	}
	return out
}

// forgetRecords forgets the packages of a deleted rollout on a node.
func (s *faultTest) forgetRecords(a rollout.Action) {
	for _, w := range s.desired {
		if n := s.cluster.FindNode(a.Node); w.name == a.Rollout && n != nil {
			delete(w.kept, n.UID)
			delete(w.goals, n.UID)
		}
	}
}

// addUnavailable adds the unavailable nodes to the groups of the snapshot, as the front ends do.
func (s *faultTest) addUnavailable() {
	for i := range s.cluster.State.Groups {
		g := &s.cluster.State.Groups[i]
		g.Taken = nil
		if g.Ref.Owner != sharedPolicy {
			continue
		}
		for _, n := range s.cluster.State.Nodes {
			if isUnavailable(&n) {
				g.Taken = append(g.Taken, n.Name)
			}
		}
	}
	for i := range s.cluster.State.Nodes {
		for j := range s.cluster.State.Nodes[i].Holds {
			h := &s.cluster.State.Nodes[i].Holds[j]
			h.Orphan = s.cluster.FindRollout(h.Owner) == nil && s.absent[h.Owner] > 3
		}
	}
	s.finishDeletions()
}

// isUnavailable reports whether a node is unavailable though no rollout holds it.
func isUnavailable(n *rollout.Node) bool { return !n.Ready || n.Cordoned && len(n.Holds) == 0 }

// finishDeletions removes deleted rollouts without targets.
func (s *faultTest) finishDeletions() {
	s.cluster.State.Rollouts = slices.DeleteFunc(s.cluster.State.Rollouts, func(r rollout.Rollout) bool {
		return r.Deleting && len(r.Targets) == 0
	})
	for i := range s.cluster.State.Nodes {
		for _, h := range s.cluster.State.Nodes[i].Holds {
			if s.cluster.FindRollout(h.Owner) == nil {
				s.absent[h.Owner]++
			}
		}
	}
	s.cluster.Reindex()
}

var _ = sim.FindTask
