// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// PackageSteps are the steps of one package on a node.
type PackageSteps struct {
	Name             string
	Removal, install []*Step
}

// OrderSteps returns all steps of the node in a total order, each with its predecessors.
func (w *Diff) OrderSteps() []*Step {
	names := slices.Collect(maps.Keys(w.Entries))
	for name := range w.wanted.Packages {
		if w.Entries[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	byName := map[string]*PackageSteps{}
	var all []*PackageSteps
	for _, name := range names {
		p := &PackageSteps{Name: name}
		p.Removal, p.install = w.stepsFor(name)
		w.KeepStarted(p)
		byName[name] = p
		all = append(all, p)
	}
	w.orderRemovals(all)
	w.orderInstalls(all, byName)
	var out []*Step
	for _, p := range all {
		out = append(out, p.Removal...)
		if w.Stuck[p.Name] != "" {
			w.Aside = append(w.Aside, p.install...)
		} else {
			out = append(out, p.install...)
		}
	}
	return out
}

// KeepStarted puts first what must not be abandoned: an interrupt under way, and a healthy pod, even
// when the spec no longer needs it or needs it later. The following steps are those after its success,
// because one plan may record the end and start the next step. A deletion waits for interrupts and uninstalls only.
func (w *Diff) KeepStarted(p *PackageSteps) {
	for _, e := range w.Entries[p.Name] {
		if e.State != v1alpha1.StateInProgress && e.State != v1alpha1.StateErroring {
			continue
		}
		id := e.key + "/" + string(e.Stage)
		same := func(s *Step) bool { return s.ID == id }
		all := append(slices.Clone(p.Removal), p.install...)
		if slices.IndexFunc(all, same) == 0 {
			continue
		}
		s := w.startedStep(e)
		if s == nil || w.facts.Deleting && !s.IsInterrupt() && !s.IsUninstall() {
			continue
		}
		p.Removal, p.install = w.stepsAfter(p.Name, s)
		if i := slices.IndexFunc(p.Removal, same); i >= 0 { // it is needed again: the next pass starts it
			p.Removal, p.install = p.Removal[:i], nil
		}
		if i := slices.IndexFunc(p.install, same); i >= 0 {
			p.install = p.install[:i]
		}
		for _, first := range [][]*Step{p.Removal, p.install} {
			if len(first) > 0 {
				first[0].After = append(first[0].After, s.ID)
				break
			}
		}
		p.Removal = append([]*Step{s}, p.Removal...)
	}
}

// stepsAfter returns the steps of a package after the success of a step.
func (w *Diff) stepsAfter(name string, s *Step) (removal, install []*Step) {
	if w.Leaving {
		return nil, nil
	}
	state, rec := maps.Clone(w.On.State), w.Rec.Clone()
	if rec.Packages[s.Key] == nil {
		w.facts.BeginStage(s, state, &rec, w.N)
	}
	w.facts.CompleteStage(s, state, &rec, w.N, rec.Packages[s.Key])
	next := &Diff{facts: w.facts, pods: w.pods, N: w.N, On: w.On, Rec: rec, wanted: w.wanted, Entries: map[string][]Entry{}}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if e := state[key]; e.Name == name {
			next.Entries[name] = append(next.Entries[name], Entry{key: key, PackageStatus: e, Record: rec.Packages[key]})
		}
	}
	slices.SortFunc(next.Entries[name], compareByVersion)
	return next.stepsFor(name)
}

// startedStep returns the step of an entry that must end first; nil when there is none.
func (w *Diff) startedStep(e Entry) *Step {
	pod := FindPod(w.pods, e)
	interrupt := e.Record != nil && e.Record.Interrupt != "" && e.IsUnderWay()
	if !interrupt && (pod == nil || !pod.Healthy && pod.State != podstate.Succeeded) {
		return nil
	}
	def := w.definitionOf(e, w.wanted.Packages[e.Name])
	s := &Step{Stage: e.Stage, Definition: def, Work: Work{Goal: node.GoalInstall, Effect: Normalised(def.Package.Interrupt)}}
	if e.Record != nil {
		if frozen := w.facts.Definition(e.Record.Hash); frozen != nil {
			s.Definition = frozen
		}
		s.Work = Work{Goal: e.Record.Goal, From: e.Record.From, Keys: e.Record.Keys, Effect: e.Record.Effect}
	}
	if s.IsInterrupt() {
		if s.Payload = s.Effect; s.Payload == nil {
			return nil
		}
	}
	s.SetKey(e.key)
	return s
}

// orderRemovals puts dependents before what they depend on. Definitions of different times can depend on each other in a
// cycle; the edge that closes one is left out.
func (w *Diff) orderRemovals(all []*PackageSteps) {
	byName, last := map[string]*PackageSteps{}, map[string]*Definition{}
	for _, p := range all {
		if n := len(p.Removal); n > 0 {
			byName[p.Name], last[p.Name] = p, p.Removal[n-1].Definition
		}
	}
	WalkDependencies(SortedNames(last), func(name string) []string { return last[name].DependenciesAmong(last) }, func(name string, dependencies []string) {
		for _, dep := range dependencies {
			first, removal := byName[dep].Removal[0], byName[name].Removal
			first.After = append(first.After, removal[len(removal)-1].ID)
		}
	})
	for _, p := range byName {
		slices.Sort(p.Removal[0].After)
	}
}

// orderInstalls puts dependencies before dependents, and removals before installs.
func (w *Diff) orderInstalls(all []*PackageSteps, byName map[string]*PackageSteps) {
	var gone []string
	for _, p := range all {
		if len(p.Removal) > 0 && len(p.install) == 0 && p.Removal[len(p.Removal)-1].IsUninstall() {
			gone = append(gone, p.Removal[len(p.Removal)-1].ID)
		}
	}
	for _, p := range all {
		if len(p.install) == 0 {
			continue
		}
		first := p.install[0]
		if n := len(p.Removal); n > 0 && !slices.Contains(first.After, p.Removal[n-1].ID) {
			first.After = append(first.After, p.Removal[n-1].ID)
		}
		begun := w.hasBegun(first)
		if (first.Goal == node.GoalInstall || first.Goal == node.GoalUpgrade) && !begun {
			first.After = append(first.After, gone...)
		}
		for _, dep := range slices.Sorted(maps.Keys(first.Definition.Package.DependsOn)) {
			d := byName[dep]
			switch {
			case begun || d == nil:
			case len(d.install) > 0:
				first.After = append(first.After, d.install[len(d.install)-1].ID)
			case w.facts.IsUninstalled(w.wanted, dep):
				if w.Stuck == nil {
					w.Stuck = map[string]string{}
				}
				w.Stuck[p.Name] = dep
			}
		}
		slices.Sort(first.After)
		first.After = slices.Compact(first.After)
	}
	w.spreadDependencies(byName)
}

// spreadDependencies marks the dependents of stuck packages as stuck.
func (w *Diff) spreadDependencies(byName map[string]*PackageSteps) {
	first := map[string]*Definition{}
	for name, p := range byName {
		if len(w.Stuck) > 0 && len(p.install) > 0 {
			first[name] = p.install[0].Definition
		}
	}
	WalkDependencies(SortedNames(first), func(name string) []string { return first[name].DependenciesAmong(first) }, func(name string, dependencies []string) {
		for _, dep := range dependencies {
			if w.Stuck[dep] != "" && w.Stuck[name] == "" {
				w.Stuck[name] = w.Stuck[dep]
			}
		}
	})
}

// hasBegun reports whether a pod already runs this step, so that it no longer waits for other steps.
func (w *Diff) hasBegun(s *Step) bool {
	e, ok := w.FindEntry(s)
	return ok && (e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring) && FindPod(w.pods, e) != nil
}

// FindEntry returns the entry of the nodeState that is at the step.
func (w *Diff) FindEntry(s *Step) (Entry, bool) {
	for _, e := range w.Entries[s.Name] {
		if e.key == s.Key && e.Stage == s.Stage {
			return e, true
		}
	}
	return Entry{}, false
}

// SplitTaskID parses the id of a task.
func SplitTaskID(id string) (key, name, version string, stage v1alpha1.Stage) {
	slash := strings.LastIndexByte(id, '/')
	if slash < 0 {
		return id, id, "", ""
	}
	key, stage = id[:slash], v1alpha1.Stage(id[slash+1:])
	name, version, _ = strings.Cut(key, "|")
	return key, name, version, stage
}
