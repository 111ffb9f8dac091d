// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// step is one task of one package on one node: a stage, or an interrupt.
type step struct {
	id            string // name|version/stage
	key           string // name|version
	name, version string
	stage         v1alpha1.Stage
	def           *Definition // definition it runs with
	work
	payload *v1alpha1.Interrupt // what an interrupt step does, once merged
	after   []string            // ids
	notYet  *rollout.Why        // why it cannot start before the next pass; nil when it can
}

// work is why a package has stages to run, and the interrupt that belongs to it.
type work struct {
	goal   node.Goal
	from   string              // hash of the definition installed before; GoalConfig only
	keys   map[string]string   // digests of the configMap installed before, when that definition is gone
	effect *v1alpha1.Interrupt // in effect for the package; nil for none
}

func (s *step) isInterrupt() bool { return isInterruptStage(s.stage) }

func isInterruptStage(stage v1alpha1.Stage) bool {
	return stage == v1alpha1.StageInterrupt || stage == v1alpha1.StageUninstallInterrupt
}

func (s *step) isUninstall() bool {
	return s.stage == v1alpha1.StageUninstall || s.stage == v1alpha1.StageUninstallInterrupt
}

// entry is one entry of a nodeState with its record, when the two match.
type entry struct {
	key string
	v1alpha1.PackageStatus
	rec *node.PackageRecord
}

func newEntry(key string, status v1alpha1.PackageStatus, rec *node.PackageRecord) entry {
	return entry{key: key, PackageStatus: status, rec: rec}
}

// packageDiff compares the spec with the recorded state of one node. Work is never stored: it is the result of this
// comparison.
type packageDiff struct {
	facts    *facts
	pods     []*podInfo // that work on the node
	n        *node.Node
	on       *node.SkyhookState
	rec      node.SkyhookRecord
	entries  map[string][]entry // by package name, keys sorted
	forget   []string           // keys to drop without running anything
	adopt    []string           // keys of packages that are finished and have no record
	edited   int                // finished packages whose definition changed in a way that runs nothing
	stuck    map[string]string  // package that cannot start, to its dependency that is uninstalled
	aside    []*step            // steps of those packages
	rebooted bool               // a finished package is applied again because the node booted
	wanted   wanted
	leaving  bool // the node is no longer selected: nothing starts after the running step
}

// isUnderWay reports whether the entry's stage has begun and the node records no outcome of this attempt.
func (e entry) isUnderWay() bool {
	return e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring && e.rec != nil && e.rec.Again
}

// hasFailed reports whether the last attempt of the entry's stage failed and no further one has begun.
func (e entry) hasFailed() bool { return e.State == v1alpha1.StateErroring && !e.isUnderWay() }

func (f *facts) diffPackages(t *target) *packageDiff {
	w := &packageDiff{facts: f, pods: t.pods.work, n: t.node, on: t.on, rec: t.rec, wanted: f.wantedOn(&t.rec), entries: map[string][]entry{}}
	for _, key := range slices.Sorted(maps.Keys(t.on.State)) {
		e := entry{key: key, PackageStatus: t.on.State[key], rec: t.rec.Packages[key]}
		w.entries[e.Name] = append(w.entries[e.Name], e)
	}
	for _, of := range w.entries {
		slices.SortFunc(of, compareByVersion)
	}
	return w
}

func compareByVersion(a, b entry) int {
	return cmp.Or(pack.CompareVersions(b.Version, a.Version), cmp.Compare(a.key, b.key))
}

// stepsFor returns the steps of one package: removals, then installs.
func (w *packageDiff) stepsFor(name string) (removal, install []*step) {
	want, entries := w.wanted.defs[name], w.entries[name]
	if w.facts.Deleting {
		for _, e := range entries {
			if def := w.definitionOf(e, want); def.isUninstallEnabled() {
				removal = concat(removal, w.removalSteps(e, def))
			}
		}
		return removal, nil
	}
	if w.wanted.stays[name] {
		return nil, nil
	}
	if want != nil && !w.facts.isUninstalled(w.wanted, name) {
		return w.installSteps(want, entries)
	}
	for _, e := range entries {
		if want == nil && e.isForeign() {
			continue
		}
		def := w.definitionOf(e, want)
		if want == nil && w.facts.staysInstalled(def) {
			w.forget = append(w.forget, e.key)
			continue
		}
		removal = concat(removal, w.removalSteps(e, def))
	}
	return removal, nil
}

// staysInstalled reports whether a package that is removed from the spec, or whose version is lowered, stays on the host.
func (f *facts) staysInstalled(d *Definition) bool {
	isUnspecified := d.Package.Uninstall == nil
	return d.isUninstallDisabled() || isUnspecified && f.Config.KeepRemovedPackages
}

// isForeign reports whether the present Skyhook did not install the package: a predecessor, or a Skyhook of this name that was
// deleted, left it on the host. It is uninstalled only when that has begun.
func (e entry) isForeign() bool {
	isInstalled := e.Stage != v1alpha1.StageUninstall && e.Stage != v1alpha1.StageUninstallInterrupt
	return isInstalled && (e.rec == nil || e.rec.Kept)
}

// concat appends a chain of steps to another, each waiting for the previous one: several versions are removed one by one.
func concat(first, second []*step) []*step {
	if len(first) > 0 && len(second) > 0 {
		second[0].after = append(second[0].after, first[len(first)-1].id)
	}
	return append(first, second...)
}

// definitionOf returns the installed definition: the spec's own for the version in the spec, so that an edit can
// fix a failing uninstall, otherwise the frozen one.
func (w *packageDiff) definitionOf(e entry, want *Definition) *Definition {
	if want != nil && pack.CompareVersions(e.Version, string(want.Package.Version)) == 0 {
		return want
	}
	if e.rec != nil {
		if d := w.facts.definition(e.rec.Hash); d != nil {
			return d
		}
	}
	return definitionFromState(e.PackageStatus, want)
}

// removalSteps returns the steps that remove one version of a package.
func (w *packageDiff) removalSteps(e entry, def *Definition) []*step {
	effect := normalised(def.Package.Interrupt)
	if e.rec != nil && e.rec.Goal == node.GoalUninstall && !e.hasFailed() {
		effect = e.rec.Effect // of the time when the uninstall began
	}
	gone := e.Stage == v1alpha1.StageUninstallInterrupt && (e.State == v1alpha1.StateComplete || effect == nil)
	if e.isParked() || gone {
		w.forget = append(w.forget, e.key)
		return nil
	}
	start := v1alpha1.StageUninstall
	if e.Stage == v1alpha1.StageUninstallInterrupt {
		start = e.Stage
	}
	return w.stageChain(e.key, def, work{goal: node.GoalUninstall, effect: effect}, start)
}

// installSteps returns the steps from the recorded versions of a package to the version of the spec.
func (w *packageDiff) installSteps(want *Definition, entries []entry) (removal, install []*step) {
	current := findCurrent(want, entries)
	var appliesAgain, upgrades bool
	for _, e := range entries {
		role := recordedVersion{
			entry: e, order: pack.CompareVersions(e.Version, string(want.Package.Version)),
			isOwnKey: e.key == want.key(), current: current,
		}.role()
		appliesAgain = appliesAgain || role.appliesAgain()
		upgrades = upgrades || role == rolePrevious
		switch def := w.definitionOf(e, want); {
		case role == roleForgotten:
			w.forget = append(w.forget, e.key)
		case role == roleUninstall && w.facts.staysInstalled(def):
		case role == roleUninstall || role == roleInterrupt:
			removal = concat(removal, w.removalSteps(e, def))
		}
	}
	own := normalised(want.Package.Interrupt)
	switch {
	case appliesAgain:
		return removal, w.stageChain(want.key(), want, work{goal: node.GoalInstall, effect: own}, v1alpha1.StageApply)
	case current != nil:
		return w.resumeSteps(want, *current)
	case upgrades:
		return nil, w.stageChain(want.key(), want, work{goal: node.GoalUpgrade, effect: own}, v1alpha1.StageUpgrade)
	}
	return nil, w.stageChain(want.key(), want, work{goal: node.GoalInstall, effect: own}, v1alpha1.StageApply)
}

// findCurrent returns the entry of the version of the spec: of several spellings the spec's own, or else the first.
func findCurrent(want *Definition, entries []entry) *entry {
	var found *entry
	for i, e := range entries {
		isOwnKey := e.key == want.key()
		if pack.CompareVersions(e.Version, string(want.Package.Version)) != 0 || e.isParked() && !isOwnKey {
			continue
		}
		if found == nil || isOwnKey {
			found = &entries[i]
		}
	}
	return found
}

// resumeSteps returns the remaining steps of a package that has the version of the spec.
func (w *packageDiff) resumeSteps(want *Definition, e entry) (removal, install []*step) {
	p := w.newPosition(want, e)
	_, then := p.transition()
	w.rebooted = w.rebooted || p.isFinished() && p.rebooted
	if then.adopt {
		w.adopt = append(w.adopt, e.key)
	}
	if then.countEdit {
		w.edited++
	}
	if then.removeFirst {
		removal = w.removalSteps(e, want)
	}
	if then.start == "" {
		return removal, nil
	}
	next := work{goal: then.goal}
	switch then.goal {
	case "":
		next = work{goal: p.goal, from: p.from, keys: p.keys}
	case node.GoalConfig:
		next.from, next.keys = e.rec.Hash, e.rec.Keys
	}
	next.effect = w.chooseInterrupt(then.interrupt, p, want, next)
	key := want.key()
	if then.start == v1alpha1.StageInterrupt && p.interruptStarted {
		key = e.key // another spelling of the version: the run goes on under its name
	}
	install = w.stageChain(key, want, next, then.start)
	isRunning := then.start == e.Stage && e.isUnderWay() && findPod(w.pods, e) != nil
	if p.programChanged && isRunning {
		holdBack(install[1:], e.Stage)
	}
	if then.configAfter {
		config := newStep(want, next, v1alpha1.StageConfig)
		config.after = []string{install[0].id}
		install = append(install[:1], config)
	}
	return removal, install
}

// holdBack keeps stages from starting in the plan that records the end of a running one: when that ran with an earlier image or
// environment, the next pass decides whether it runs again.
func holdBack(steps []*step, running v1alpha1.Stage) {
	for _, s := range steps {
		s.notYet = &rollout.Why{
			Reason: rollout.ReasonDefinitionChanged,
			Text:   string(s.stage) + " of package " + s.name + " waits until " + string(running) + " has run with the edited definition",
		}
	}
}

// chooseInterrupt returns the interrupt in effect for the stages that are left.
func (w *packageDiff) chooseInterrupt(source interruptSource, p position, want *Definition, next work) *v1alpha1.Interrupt {
	switch source {
	case recordedInterrupt:
		return p.effect
	case computedInterrupt:
		return w.interruptFor(want, next)
	}
	return normalised(want.Package.Interrupt)
}

// hasRebooted reports whether the node has rebooted since the package finished, other than by our interrupts.
func (w *packageDiff) hasRebooted(rec *node.PackageRecord) bool {
	return w.facts.Config.ReapplyOnReboot && rec.Boot != "" && w.n.BootID != "" && rec.Boot != w.n.BootID &&
		!w.n.IsRebootedFrom(rec.Boot)
}

// interruptFor returns the interrupt in effect: the package's own, or for a config change that of the changed keys.
func (w *packageDiff) interruptFor(want *Definition, next work) *v1alpha1.Interrupt {
	if next.goal != node.GoalConfig {
		return normalised(want.Package.Interrupt)
	}
	if len(want.Package.ConfigInterrupts) == 0 {
		return nil
	}
	return configInterrupt(want.Package, w.facts.changedKeys(next.from, next.keys, want))
}

// stageChain returns the stages from one to the last, each after its predecessor.
func (w *packageDiff) stageChain(key string, def *Definition, next work, start v1alpha1.Stage) []*step {
	way := []v1alpha1.Stage{v1alpha1.StageApply, v1alpha1.StageConfig}
	end := []v1alpha1.Stage{v1alpha1.StageInterrupt, v1alpha1.StagePostInterrupt}
	switch {
	case next.goal == node.GoalUninstall:
		way, end = []v1alpha1.Stage{v1alpha1.StageUninstall}, []v1alpha1.Stage{v1alpha1.StageUninstallInterrupt}
	case start == v1alpha1.StageUpgrade:
		way[0] = v1alpha1.StageUpgrade
	}
	if next.effect != nil || slices.Contains(end, start) {
		way = append(way, end...)
	}
	way = way[max(0, slices.Index(way, start)):]
	out := make([]*step, len(way))
	for i, stage := range way {
		out[i] = newStep(def, next, stage)
		out[i].setKey(key)
		if i > 0 {
			out[i].after = []string{out[i-1].id}
		}
	}
	return out
}

func newStep(def *Definition, next work, stage v1alpha1.Stage) *step {
	s := &step{stage: stage, def: def, work: next}
	if s.isInterrupt() {
		s.payload = next.effect
	}
	s.setKey(def.key())
	return s
}

func (s *step) setKey(key string) {
	s.key, s.id = key, key+"/"+string(s.stage)
	s.name, s.version, _ = strings.Cut(key, "|")
}
