// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// packageSteps are the steps of one package on a node.
type packageSteps struct {
	name             string
	removal, install []*step
}

// orderSteps returns all steps of the node in a total order, each with its predecessors.
func (w *packageDiff) orderSteps() []*step {
	names := slices.Collect(maps.Keys(w.entries))
	for name := range w.wanted.defs {
		if w.entries[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	byName := map[string]*packageSteps{}
	var all []*packageSteps
	for _, name := range names {
		p := &packageSteps{name: name}
		p.removal, p.install = w.stepsFor(name)
		w.keepStarted(p)
		byName[name] = p
		all = append(all, p)
	}
	w.orderRemovals(all)
	w.orderInstalls(all, byName)
	var out []*step
	for _, p := range all {
		out = append(out, p.removal...)
		if w.stuck[p.name] != "" {
			w.aside = append(w.aside, p.install...)
		} else {
			out = append(out, p.install...)
		}
	}
	return out
}

// keepStarted puts first what must not be abandoned: an interrupt under way, and a healthy pod, even
// when the spec no longer needs it or needs it later. The following steps are those after its success,
// because one plan may record the end and start the next step. A deletion waits for interrupts and uninstalls only.
func (w *packageDiff) keepStarted(p *packageSteps) {
	for _, e := range w.entries[p.name] {
		if e.State != v1alpha1.StateInProgress && e.State != v1alpha1.StateErroring {
			continue
		}
		id := e.key + "/" + string(e.Stage)
		same := func(s *step) bool { return s.id == id }
		all := append(slices.Clone(p.removal), p.install...)
		if slices.IndexFunc(all, same) == 0 {
			continue
		}
		s := w.startedStep(e)
		if s == nil || w.facts.Deleting && !s.isInterrupt() && !s.isUninstall() {
			continue
		}
		p.removal, p.install = w.stepsAfter(p.name, s)
		if i := slices.IndexFunc(p.removal, same); i >= 0 { // it is needed again: the next pass starts it
			p.removal, p.install = p.removal[:i], nil
		}
		if i := slices.IndexFunc(p.install, same); i >= 0 {
			p.install = p.install[:i]
		}
		for _, first := range [][]*step{p.removal, p.install} {
			if len(first) > 0 {
				first[0].after = append(first[0].after, s.id)
				break
			}
		}
		p.removal = append([]*step{s}, p.removal...)
	}
}

// stepsAfter returns the steps of a package after the success of a step.
func (w *packageDiff) stepsAfter(name string, s *step) (removal, install []*step) {
	if w.leaving {
		return nil, nil
	}
	state, rec := maps.Clone(w.on.State), w.rec.Clone()
	if rec.Packages[s.key] == nil {
		w.facts.beginStage(s, state, &rec, w.n)
	}
	w.facts.completeStage(s, state, &rec, w.n, rec.Packages[s.key])
	next := &packageDiff{facts: w.facts, pods: w.pods, n: w.n, on: w.on, rec: rec, wanted: w.wanted, entries: map[string][]entry{}}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if e := state[key]; e.Name == name {
			next.entries[name] = append(next.entries[name], entry{key: key, PackageStatus: e, rec: rec.Packages[key]})
		}
	}
	slices.SortFunc(next.entries[name], compareByVersion)
	return next.stepsFor(name)
}

// startedStep returns the step of an entry that must end first; nil when there is none.
func (w *packageDiff) startedStep(e entry) *step {
	pod := findPod(w.pods, e)
	interrupt := e.rec != nil && e.rec.Interrupt != "" && e.isUnderWay()
	if !interrupt && (pod == nil || !pod.healthy && pod.state != succeeded) {
		return nil
	}
	def := w.definitionOf(e, w.wanted.defs[e.Name])
	s := &step{stage: e.Stage, def: def, work: work{goal: node.GoalInstall, effect: normalised(def.Package.Interrupt)}}
	if e.rec != nil {
		if frozen := w.facts.definition(e.rec.Hash); frozen != nil {
			s.def = frozen
		}
		s.work = work{goal: e.rec.Goal, from: e.rec.From, keys: e.rec.Keys, effect: e.rec.Effect}
	}
	if s.isInterrupt() {
		if s.payload = s.effect; s.payload == nil {
			return nil
		}
	}
	s.setKey(e.key)
	return s
}

// orderRemovals puts dependents before what they depend on. Definitions of different times can depend on each other in a
// cycle; the edge that closes one is left out.
func (w *packageDiff) orderRemovals(all []*packageSteps) {
	byName := map[string]*packageSteps{}
	for _, p := range all {
		if len(p.removal) > 0 {
			byName[p.name] = p
		}
	}
	const visiting, done = 1, 2
	progress := map[string]int{}
	var visit func(dependent *packageSteps)
	visit = func(dependent *packageSteps) {
		progress[dependent.name] = visiting
		last := dependent.removal[len(dependent.removal)-1]
		for _, name := range sortedNames(last.def.Package.DependsOn) {
			p := byName[name]
			if p == nil || progress[name] == visiting {
				continue
			}
			p.removal[0].after = append(p.removal[0].after, last.id)
			if progress[name] != done {
				visit(p)
			}
		}
		progress[dependent.name] = done
	}
	for _, p := range all {
		if len(p.removal) > 0 && progress[p.name] != done {
			visit(p)
		}
	}
	for _, p := range byName {
		slices.Sort(p.removal[0].after)
	}
}

// orderInstalls puts dependencies before dependents, and removals before installs.
func (w *packageDiff) orderInstalls(all []*packageSteps, byName map[string]*packageSteps) {
	var gone []string
	for _, p := range all {
		if len(p.removal) > 0 && len(p.install) == 0 && p.removal[len(p.removal)-1].isUninstall() {
			gone = append(gone, p.removal[len(p.removal)-1].id)
		}
	}
	for _, p := range all {
		if len(p.install) == 0 {
			continue
		}
		first := p.install[0]
		if n := len(p.removal); n > 0 && !slices.Contains(first.after, p.removal[n-1].id) {
			first.after = append(first.after, p.removal[n-1].id)
		}
		begun := w.hasBegun(first)
		if (first.goal == node.GoalInstall || first.goal == node.GoalUpgrade) && !begun {
			first.after = append(first.after, gone...)
		}
		for _, dep := range slices.Sorted(maps.Keys(first.def.Package.DependsOn)) {
			d := byName[dep]
			switch {
			case begun || d == nil:
			case len(d.install) > 0:
				first.after = append(first.after, d.install[len(d.install)-1].id)
			case w.facts.isUninstalled(w.wanted, dep):
				if w.stuck == nil {
					w.stuck = map[string]string{}
				}
				w.stuck[p.name] = dep
			}
		}
		slices.Sort(first.after)
		first.after = slices.Compact(first.after)
	}
	w.spreadDependencies(byName)
}

// spreadDependencies marks the dependents of stuck packages as stuck.
func (w *packageDiff) spreadDependencies(byName map[string]*packageSteps) {
	for again := len(w.stuck) > 0; again; {
		again = false
		for name, p := range byName {
			if len(p.install) == 0 || w.stuck[name] != "" {
				continue
			}
			for dep := range p.install[0].def.Package.DependsOn {
				if w.stuck[dep] != "" {
					w.stuck[name], again = w.stuck[dep], true
				}
			}
		}
	}
}

// hasBegun reports whether a pod already runs this step, so that it no longer waits for other steps.
func (w *packageDiff) hasBegun(s *step) bool {
	e, ok := w.findEntry(s)
	return ok && (e.State == v1alpha1.StateInProgress || e.State == v1alpha1.StateErroring) && findPod(w.pods, e) != nil
}

// findEntry returns the entry of the nodeState that is at the step.
func (w *packageDiff) findEntry(s *step) (entry, bool) {
	for _, e := range w.entries[s.name] {
		if e.key == s.key && e.Stage == s.stage {
			return e, true
		}
	}
	return entry{}, false
}

// splitTaskID parses the id of a task.
func splitTaskID(id string) (key, name, version string, stage v1alpha1.Stage) {
	slash := strings.LastIndexByte(id, '/')
	if slash < 0 {
		return id, id, "", ""
	}
	key, stage = id[:slash], v1alpha1.Stage(id[slash+1:])
	name, version, _ = strings.Cut(key, "|")
	return key, name, version, stage
}
