// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// Step is one task of one package on one node: a stage, or an interrupt.
type Step struct {
	ID            string // name|version/stage
	Key           string // name|version
	Name, Version string
	Stage         v1alpha1.Stage
	Definition    *Definition // definition it runs with
	Work
	Payload *v1alpha1.Interrupt // what an interrupt step does, once merged
	After   []string            // ids
	NotYet  *rollout.Why        // why it cannot start before the next pass; nil when it can
}

// Work is why a package has stages to run, and the interrupt that belongs to it.
type Work struct {
	Goal   node.Goal
	From   string              // hash of the definition installed before; GoalConfig only
	Keys   map[string]string   // digests of the configMap installed before, when that definition is gone
	Effect *v1alpha1.Interrupt // in effect for the package; nil for none
}

// IsInterrupt reports whether a step is an interrupt.
func (s *Step) IsInterrupt() bool { return IsInterruptStage(s.Stage) }

// IsInterruptStage reports whether a stage is an interrupt, of whatever package.
func IsInterruptStage(stage v1alpha1.Stage) bool {
	return stage == v1alpha1.StageInterrupt || stage == v1alpha1.StageUninstallInterrupt
}

// IsUninstall reports whether a step belongs to the uninstall of its package.
func (s *Step) IsUninstall() bool {
	return s.Stage == v1alpha1.StageUninstall || s.Stage == v1alpha1.StageUninstallInterrupt
}

// Entry is one entry of a nodeState with its record, when the two match.
type Entry struct {
	key string
	v1alpha1.PackageStatus
	Record *node.PackageRecord
	pod    *podstate.Pod // that decides whether the version has begun; nil for none, or when its record decides
}

// NewEntry returns an entry of a nodeState with its record.
func NewEntry(key string, status v1alpha1.PackageStatus, rec *node.PackageRecord) Entry {
	return Entry{key: key, PackageStatus: status, Record: rec}
}

// Diff compares the spec with the recorded state of one node. Work is never stored: it is the result of this
// comparison.
type Diff struct {
	facts    *Facts
	pods     []*podstate.Pod // that work on the node
	N        *node.Node
	On       *node.SkyhookState
	Rec      node.SkyhookRecord
	Entries  map[string][]Entry // by package name, keys sorted
	Forget   []string           // keys to drop without running anything
	Adopt    []string           // keys of packages that are finished and have no record
	Edited   int                // finished packages whose definition changed in a way that runs nothing
	Stuck    map[string]string  // package that cannot start, to its dependency that is uninstalled
	Aside    []*Step            // steps of those packages
	Rebooted bool               // a finished package is applied again because the node booted
	wanted   Wanted
	Leaving  bool // the node is no longer selected: nothing starts after the running step
}

// IsUnderWay reports whether the entry's stage has begun and the node records no outcome of this attempt.
func (e Entry) IsUnderWay() bool {
	return e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring && e.Record != nil && e.Record.Again
}

// hasFailed reports whether the last attempt of the entry's stage failed and no further one has begun.
func (e Entry) hasFailed() bool { return e.State == v1alpha1.StateErroring && !e.IsUnderWay() }

// DiffPackages compares what the spec wants on a node with what the node records.
func (f *Facts) DiffPackages(t *Target) *Diff {
	w := &Diff{facts: f, pods: t.Pods.Work, N: t.Node, On: t.On, Rec: t.Record, wanted: f.WantedOn(&t.Record), Entries: map[string][]Entry{}}
	for _, key := range slices.Sorted(maps.Keys(t.On.State)) {
		e := NewEntry(key, t.On.State[key], t.Record.Packages[key])
		if e.Record.IsUnbegun() {
			e.pod = FindPod(w.pods, e)
		}
		w.Entries[e.Name] = append(w.Entries[e.Name], e)
	}
	for _, of := range w.Entries {
		slices.SortFunc(of, compareByVersion)
	}
	return w
}

// isUnbegun reports whether no container of the version has begun on the node.
func (e Entry) isUnbegun() bool {
	return e.Record.IsUnbegun() && (e.pod == nil || !e.pod.Begun)
}

// forget drops an entry without running anything. As long as it has a pod, that may begin.
func (w *Diff) forget(e Entry) {
	if e.pod == nil {
		w.Forget = append(w.Forget, e.key)
	}
}

// FindBegun returns the keys of versions that have begun, without a record of it, and whose pods may go before there is one: those that work for no
// task, or that have a problem.
func (w *Diff) FindBegun(used map[*podstate.Pod]bool) (keys []string) {
	for _, name := range SortedNames(w.Entries) {
		for _, e := range w.Entries[name] {
			if e.pod != nil && e.pod.Begun && (!used[e.pod.Outer()] || e.pod.Why != nil) {
				keys = append(keys, e.key)
			}
		}
	}
	return keys
}

func compareByVersion(a, b Entry) int {
	return cmp.Or(pack.CompareVersions(b.Version, a.Version), cmp.Compare(a.key, b.key))
}

// stepsFor returns the steps of one package: removals, then installs.
func (w *Diff) stepsFor(name string) (removal, install []*Step) {
	want, entries := w.wanted.Packages[name], w.Entries[name]
	if w.facts.Deleting {
		for _, e := range entries {
			if def := w.definitionOf(e, want); def.IsUninstallEnabled() {
				removal = concat(removal, w.removalSteps(e, def))
			}
		}
		return removal, nil
	}
	if w.wanted.stays[name] {
		return nil, nil
	}
	if want != nil && !w.facts.IsUninstalled(w.wanted, name) {
		return w.installSteps(want, entries)
	}
	for _, e := range entries {
		if want == nil && e.isForeign() {
			continue
		}
		def := w.definitionOf(e, want)
		if want == nil && w.facts.staysInstalled(def) {
			w.Forget = append(w.Forget, e.key)
			continue
		}
		removal = concat(removal, w.removalSteps(e, def))
	}
	return removal, nil
}

// staysInstalled reports whether a package that is removed from the spec, or whose version is lowered, stays on the host.
func (f *Facts) staysInstalled(d *Definition) bool {
	isUnspecified := d.Package.Uninstall == nil
	return d.isUninstallDisabled() || isUnspecified && f.Config.KeepRemovedPackages
}

// isForeign reports whether the present Skyhook did not install the package: a predecessor, or a Skyhook of this name that was
// deleted, left it on the host. It is uninstalled only when that has begun.
func (e Entry) isForeign() bool {
	isInstalled := e.Stage != v1alpha1.StageUninstall && e.Stage != v1alpha1.StageUninstallInterrupt
	return isInstalled && (e.Record == nil || e.Record.Kept)
}

// concat appends a chain of steps to another, each waiting for the previous one: several versions are removed one by one.
func concat(first, second []*Step) []*Step {
	if len(first) > 0 && len(second) > 0 {
		second[0].After = append(second[0].After, first[len(first)-1].ID)
	}
	return append(first, second...)
}

// definitionOf returns the installed definition: the spec's own for the version in the spec, so that an edit can
// fix a failing uninstall, otherwise the frozen one.
func (w *Diff) definitionOf(e Entry, want *Definition) *Definition {
	if want != nil && pack.CompareVersions(e.Version, string(want.Package.Version)) == 0 {
		return want
	}
	if e.Record != nil {
		if d := w.facts.Definition(e.Record.Hash); d != nil {
			return d
		}
	}
	return definitionFromState(e.PackageStatus, want)
}

// removalSteps returns the steps that remove one version of a package.
func (w *Diff) removalSteps(e Entry, def *Definition) []*Step {
	effect := Normalised(def.Package.Interrupt)
	if e.Record != nil && e.Record.Goal == node.GoalUninstall && !e.hasFailed() {
		effect = e.Record.Effect // of the time when the uninstall began
	}
	gone := e.Stage == v1alpha1.StageUninstallInterrupt && (e.State == v1alpha1.StateComplete || effect == nil)
	if e.isParked() || gone || e.isUnbegun() {
		w.forget(e)
		return nil
	}
	start := v1alpha1.StageUninstall
	if e.Stage == v1alpha1.StageUninstallInterrupt {
		start = e.Stage
	}
	return w.stageChain(e.key, def, Work{Goal: node.GoalUninstall, Effect: effect}, start)
}

// installSteps returns the steps from the recorded versions of a package to the version of the spec.
func (w *Diff) installSteps(want *Definition, entries []Entry) (removal, install []*Step) {
	current := findCurrent(want, entries)
	var appliesAgain, upgrades bool
	for _, e := range entries {
		role := recordedVersion{
			Entry: e, order: pack.CompareVersions(e.Version, string(want.Package.Version)),
			isOwnKey: e.key == want.Key(), current: current,
		}.role()
		appliesAgain = appliesAgain || role.appliesAgain()
		upgrades = upgrades || role == rolePrevious
		switch def := w.definitionOf(e, want); {
		case role == roleForgotten:
			w.forget(e)
		case role == roleUninstall && w.facts.staysInstalled(def):
		case role == roleUninstall || role == roleInterrupt:
			removal = concat(removal, w.removalSteps(e, def))
		}
	}
	own := w.lessen(Normalised(want.Package.Interrupt), want)
	switch {
	case appliesAgain:
		return removal, w.stageChain(want.Key(), want, Work{Goal: node.GoalInstall, Effect: own}, w.firstStage(want))
	case current != nil:
		return w.resumeSteps(want, *current)
	case upgrades:
		return nil, w.stageChain(want.Key(), want, Work{Goal: node.GoalUpgrade, Effect: own}, v1alpha1.StageUpgrade)
	}
	return nil, w.stageChain(want.Key(), want, Work{Goal: node.GoalInstall, Effect: own}, w.firstStage(want))
}

// findCurrent returns the entry of the version of the spec: of several spellings the spec's own, or else the first.
func findCurrent(want *Definition, entries []Entry) *Entry {
	var found *Entry
	for i, e := range entries {
		isOwnKey := e.key == want.Key()
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
func (w *Diff) resumeSteps(want *Definition, e Entry) (removal, install []*Step) {
	p := w.newPosition(want, e)
	_, then := p.transition()
	if !p.inRun {
		then = w.continueAsAnswered(then, want)
	}
	w.Rebooted = w.Rebooted || p.isFinished() && p.rebooted
	if then.adopt {
		w.Adopt = append(w.Adopt, e.key)
	}
	if then.countEdit {
		w.Edited++
	}
	if then.removeFirst {
		removal = w.removalSteps(e, want)
	}
	if then.start == "" {
		return removal, nil
	}
	next := Work{Goal: then.goal}
	switch then.goal {
	case "":
		next = Work{Goal: p.Goal, From: p.From, Keys: p.Keys}
	case node.GoalConfig:
		next.From, next.Keys = e.Record.Hash, e.Record.Keys
	}
	next.Effect = w.chooseInterrupt(then.interrupt, p, want, next)
	key := want.Key()
	if then.start == v1alpha1.StageInterrupt && p.interruptStarted {
		key = e.key // another spelling of the version: the run goes on under its name
	}
	install = w.stageChain(key, want, next, then.start)
	isRunning := then.start == e.Stage && e.IsUnderWay() && FindPod(w.pods, e) != nil
	if p.programChanged && isRunning {
		holdBack(install[1:], e.Stage)
	}
	if then.configAfter {
		config := NewStep(want, next, v1alpha1.StageConfig)
		config.After = []string{install[0].ID}
		install = append(install[:1], config)
	}
	return removal, install
}

// holdBack keeps stages from starting in the plan that records the end of a running one: when that ran with an earlier image or
// environment, the next pass decides whether it runs again.
func holdBack(steps []*Step, running v1alpha1.Stage) {
	for _, s := range steps {
		s.NotYet = &rollout.Why{
			Reason: rollout.ReasonDefinitionChanged,
			Text:   string(s.Stage) + " of package " + s.Name + " waits until " + string(running) + " has run with the edited definition",
		}
	}
}

// chooseInterrupt returns the interrupt in effect for the stages that are left.
func (w *Diff) chooseInterrupt(source interruptSource, p position, want *Definition, next Work) *v1alpha1.Interrupt {
	switch source {
	case recordedInterrupt:
		return p.Effect
	case computedInterrupt:
		return w.lessen(w.interruptFor(want, next), want)
	}
	return w.lessen(Normalised(want.Package.Interrupt), want)
}

// hasRebooted reports whether the node has rebooted since the package finished, other than by our interrupts.
func (w *Diff) hasRebooted(rec *node.PackageRecord) bool {
	return w.facts.Config.ReapplyOnReboot && rec.Boot != "" && w.N.BootID != "" && !rec.IsOf(w.N.BootID) &&
		!w.N.IsRebootedFrom(rec.Boot) && !w.N.IsRebootedFrom(rec.Ended)
}

// interruptFor returns the interrupt in effect: the package's own, or for a config change that of the changed keys.
func (w *Diff) interruptFor(want *Definition, next Work) *v1alpha1.Interrupt {
	if next.Goal != node.GoalConfig {
		return Normalised(want.Package.Interrupt)
	}
	if len(want.Package.ConfigInterrupts) == 0 {
		return nil
	}
	return configInterrupt(want.Package, w.facts.ChangedKeys(next.From, next.Keys, want))
}

// stageChain returns the stages from one to the last, each after its predecessor.
func (w *Diff) stageChain(key string, def *Definition, next Work, start v1alpha1.Stage) []*Step {
	way := []v1alpha1.Stage{v1alpha1.StageApply, v1alpha1.StageConfig}
	end := []v1alpha1.Stage{v1alpha1.StageInterrupt, v1alpha1.StagePostInterrupt}
	switch {
	case next.Goal == node.GoalUninstall:
		way, end = []v1alpha1.Stage{v1alpha1.StageUninstall}, []v1alpha1.Stage{v1alpha1.StageUninstallInterrupt}
	case start == v1alpha1.StageUpgrade:
		way[0] = v1alpha1.StageUpgrade
	}
	if next.Effect != nil || slices.Contains(end, start) {
		way = append(way, end...)
	}
	way = way[max(0, slices.Index(way, start)):]
	out := make([]*Step, len(way))
	for i, stage := range way {
		out[i] = NewStep(def, next, stage)
		out[i].SetKey(key)
		if i > 0 {
			out[i].After = []string{out[i-1].ID}
		}
	}
	return out
}

// NewStep returns the step that runs one stage of a package.
func NewStep(def *Definition, next Work, stage v1alpha1.Stage) *Step {
	s := &Step{Stage: stage, Definition: def, Work: next}
	if s.IsInterrupt() {
		s.Payload = next.Effect
	}
	s.SetKey(def.Key())
	return s
}

// SetKey sets the package and version of a step, and with them its id.
func (s *Step) SetKey(key string) {
	s.Key, s.ID = key, key+"/"+string(s.Stage)
	s.Name, s.Version, _ = strings.Cut(key, "|")
}
