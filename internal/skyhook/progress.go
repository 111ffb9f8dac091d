// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// findStep returns the compiled step of a task.
func (r recorder) findStep(id string) (*step, error) {
	return r.target.findStep(id)
}

// recordRun records that a step runs, with everything its pod is made from, so that a lost pod can be recreated
// unchanged.
func (r recorder) recordRun(a rollout.Action, n *node.Node) (node.Edit, error) {
	st, err := r.findStep(a.Task)
	if err != nil {
		return node.Edit{}, err
	}
	status := v1alpha1.StatusInProgress
	e := editRecord(r.facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		r.inheritAdmission(rec)
		rec.Proving, rec.Reboot = nil, rec.Reboot.AfterRun() // what is true counts after the last outcome only
		if a.Drained && rec.Held != nil {
			rec.Held.Pods = 0
		}
		queue := node.Queue{}
		if len(a.Then) > 0 {
			queue = node.Queue{ID: r.newQueueID(n, rec, st), Begun: 1}
		}
		rec.SetQueue(st.id, queue)
		p := r.facts.beginStage(st, state, rec, n)
		if st.isInterrupt() {
			r.beginInterrupt(a, st, state, rec, n, p)
		}
		if st.goal == node.GoalUninstall {
			r.parkPackage(st, state, rec)
		}
		status = statusDuring(state)
	})
	e.SetSkyhookStatus(n, r.facts.Skyhook.Name, status)
	return e, nil
}

// statusDuring returns the status of an admitted node: erroring while a stage has failed and not succeeded since.
func statusDuring(state v1alpha1.NodeState) v1alpha1.Status {
	for _, e := range state {
		if e.State == v1alpha1.StateErroring {
			return v1alpha1.StatusErroring
		}
	}
	return v1alpha1.StatusInProgress
}

// beginStage moves the package's entry to the step. The run id and the copy directory stay those of the package's first step
// in this admission. Of several spellings of one version on the node the record of the spec's own spelling is inherited, or
// else the first one in the order of keys, as findCurrent chooses.
func (f *facts) beginStage(st *step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) *node.PackageRecord {
	old, was := rec.Packages[st.key], state[st.key]
	for _, key := range slices.Sorted(maps.Keys(state)) {
		e := state[key]
		if key != st.key && e.Name == st.name && st.goal != node.GoalUninstall && pack.CompareVersions(e.Version, st.version) == 0 {
			if old == nil {
				old, was = rec.Packages[key], e
			}
			delete(state, key)
			delete(rec.Packages, key)
		}
	}
	p := &node.PackageRecord{Hash: st.def.Hash, Goal: st.goal, From: st.from, Keys: st.keys, Effect: st.effect}
	began := node.WholeSeconds(f.Now)
	p.Since = &began
	p.Refuses = old != nil && old.Refuses
	if old != nil && old.Goal != "" {
		p.Run, p.Generation, p.Config, p.Done = old.Run, old.Generation, old.Config, old.Done
		if was.Stage == st.stage && old.Since != nil {
			p.Since = old.Since
		}
		if was.Stage == st.stage && !wasEdited(st, old) {
			p.Attempts, p.FailedAt, p.Failure = old.Attempts, old.FailedAt, old.Failure
		}
		if st.isInterrupt() {
			p.Hash = old.Hash // an interrupt installs nothing: the definition of the config stage stays installed
		}
		if was.Stage == st.stage && sameInterrupt(old.Effect, st.effect) {
			p.Interrupt, p.Payload, p.Boot = old.Interrupt, old.Payload, old.Boot
		}
	}
	if p.Run == "" || p.Generation == 0 {
		p.Run, p.Generation = f.runID(n, rec, st), rec.Offset+f.Skyhook.Generation
	}
	if st.stage == v1alpha1.StageConfig {
		p.Config = st.def.Config
	}
	entry := v1alpha1.PackageStatus{
		Name: st.name, Version: st.version, Image: st.def.Package.Image, ContainerSHA: st.def.Package.ContainerSHA,
		Stage: st.stage, State: v1alpha1.StateInProgress,
	}
	if was.Stage == st.stage {
		entry.Restarts = was.Restarts
	}
	if p.Again = p.Attempts > 0; p.Again {
		entry.State = v1alpha1.StateErroring
	}
	state[st.key], rec.Packages[st.key] = entry, p
	p.At = node.Position(entry)
	return p
}

// runID returns the id of the package's run in this admission. It contains the time because admission numbers start again after a reset.
func (f *facts) runID(n *node.Node, rec *node.SkyhookRecord, st *step) string {
	return strconv.Itoa(rec.Admission) + "-" + hashID(string(f.Skyhook.UID), n.UID, st.key, node.WholeSeconds(f.Now).Format(time.RFC3339))
}

// hashID returns a short hash of parts.
func hashID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:6])
}

// beginInterrupt freezes what the interrupt does, under its own id. A retry keeps the id and the covered interrupts, unless an
// edit changed the interrupt. The id contains when the stage began: after an interrupt that failed, an edit can lead to another one
// of the same package, which the host must not take for the first.
func (r recorder) beginInterrupt(a rollout.Action, st *step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node, p *node.PackageRecord) {
	covered := r.coverableSteps(n, a.Covers)
	if p.Interrupt == "" {
		all := []*v1alpha1.Interrupt{st.effect}
		for _, other := range covered {
			all = append(all, other.effect)
		}
		for _, other := range rec.Packages {
			if other.By == st.id {
				all = append(all, other.Effect)
			}
		}
		p.Payload, p.Boot = mergeInterrupts(all...), n.BootID
		p.Interrupt = hashID(string(r.facts.Skyhook.UID), n.UID, strconv.Itoa(rec.Admission), strconv.Itoa(rec.Interrupts), p.Run,
			p.Since.Format(time.RFC3339), node.EncodeJSON(p.Payload))
	}
	for _, other := range covered {
		if coversInterrupt(p.Payload, other.effect) {
			r.facts.skipStage(other, st.id, state, rec, n)
		}
	}
}

func (r recorder) coverableSteps(n *node.Node, ids []string) []*step {
	var out []*step
	for _, id := range ids {
		if st, err := r.findStep(id); err == nil && st.isInterrupt() {
			out = append(out, st)
		}
	}
	return out
}

// skipStage records that another package's interrupt covers this one.
func (f *facts) skipStage(st *step, by string, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) {
	p := f.beginStage(st, state, rec, n)
	entry := state[st.key]
	entry.State = v1alpha1.StateSkipped
	state[st.key] = entry
	p.Again = false
	p.At, p.By, p.Interrupt, p.Payload = node.Position(entry), by, "", nil
}

// recordCover records that the interrupt of another task covers this one, if the running interrupt includes it.
func (r recorder) recordCover(a rollout.Action, n *node.Node) (node.Edit, error) {
	st, err := r.findStep(a.Task)
	if err != nil {
		return node.Edit{}, err
	}
	by, _, _, _ := splitTaskID(a.By)
	return editRecord(r.facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		runs := rec.Packages[by]
		if runs == nil || runs.Interrupt == "" || !coversInterrupt(runs.Payload, st.effect) {
			return
		}
		if p := rec.Packages[st.key]; p != nil && p.By == a.By && state[st.key].State == v1alpha1.StateSkipped {
			return
		}
		r.facts.skipStage(st, a.By, state, rec, n)
	}), nil
}

// parkPackage records that a lower version waits until the higher one is uninstalled.
func (r recorder) parkPackage(st *step, state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	w := r.facts.wantedOn(rec)
	want := w.defs[st.name]
	if want == nil || r.facts.isUninstalled(w, st.name) || pack.CompareVersions(st.version, string(want.Package.Version)) <= 0 {
		return
	}
	for key, e := range state { // entries below the higher version are outdated
		if e.Name == st.name && e.Stage != v1alpha1.StageUninstallInterrupt && pack.CompareVersions(e.Version, st.version) < 0 {
			delete(state, key)
			delete(rec.Packages, key)
		}
	}
	state[want.key()] = v1alpha1.PackageStatus{
		Name: st.name, Version: string(want.Package.Version), Image: want.Package.Image, ContainerSHA: want.Package.ContainerSHA,
		Stage: v1alpha1.StageUninstall, State: v1alpha1.StateSkipped,
	}
}

// recordOutcome records how a step ended.
func (r recorder) recordOutcome(a rollout.Action, n *node.Node) (node.Edit, error) {
	st, err := r.findStep(a.Task)
	if err != nil {
		return node.Edit{}, err
	}
	status, rebootedFrom := v1alpha1.StatusInProgress, ""
	e := editRecord(r.facts, n, func(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
		r.inheritAdmission(rec)
		rec.Proving = nil // what is true counts after the last outcome only
		if entry, ok := state[st.key]; !ok || entry.Stage != st.stage || rec.Packages[st.key] == nil {
			r.facts.beginStage(st, state, rec, n)
		}
		entry, p := state[st.key], rec.Packages[st.key]
		if pod := findPod(r.target.pods.work, newEntry(st.key, entry, p)); pod != nil && pod.refuses != nil {
			p.Refuses = *pod.refuses
		}
		switch a.State {
		case rollout.StateDone:
			if p.Payload == nil && rec.Reboot.Includes(st.id, n.BootID) {
				p.Payload, p.Boot = st.effect, rec.Reboot.Boot
			}
			if p.Payload != nil && p.Payload.Type == v1alpha1.InterruptReboot {
				rebootedFrom = p.Boot
			}
			r.facts.completeStage(st, state, rec, n, p)
		case rollout.StateFailing:
			now := node.WholeSeconds(r.facts.Now)
			entry.State, entry.Restarts = v1alpha1.StateErroring, int32(min(a.Attempts, 1<<30))
			if a.Attempts != p.Attempts || p.FailedAt == nil {
				p.Attempts, p.FailedAt = a.Attempts, &now
			}
			if p.Again, p.Failure = false, nil; a.Why.Reason != "" {
				p.Failure = &node.Failure{Reason: a.Why.Reason, Text: node.Truncate(a.Why.Text, 300)}
			}
			state[st.key], p.At = entry, node.Position(entry)
		default:
			entry.State = v1alpha1.StateInProgress
			state[st.key], p.At = entry, node.Position(entry)
		}
		status = statusDuring(state)
	})
	e.SetSkyhookStatus(n, r.facts.Skyhook.Name, status)
	if rebootedFrom != "" {
		r.shareReboot(&e, n, rebootedFrom)
	}
	return e, nil
}

// recordAwaiting records that only a reboot is missing before the interrupts of some tasks are done, whoever reboots the node.
func (r recorder) recordAwaiting(a rollout.Action, n *node.Node) node.Edit {
	return editRecord(r.facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		rec.Reboot = &rollout.SharedReboot{Boot: n.BootID, Tasks: a.Covers}
	})
}

// shareReboot records for the other Skyhooks on the node that the reboot was an interrupt, so that none of them
// applies its packages again because of it.
func (r recorder) shareReboot(e *node.Edit, n *node.Node, from string) {
	for _, name := range n.Skyhooks() {
		on := n.Skyhook(name)
		if name == r.facts.Skyhook.Name || on.Problem != "" {
			continue
		}
		rec := on.Record.Clone()
		if markRebooted(&rec, from, n.BootID) {
			e.SetAnnotation(n, v1alpha1.PrefixRecord+name, rec.String())
		}
	}
}

// markRebooted changes the boot id of packages that finished in one boot to another.
func markRebooted(rec *node.SkyhookRecord, from, to string) (changed bool) {
	for _, p := range rec.Packages {
		if p.Goal == "" && p.Boot == from {
			p.Boot, changed = to, true
		}
	}
	return changed
}

// completeStage updates the entry and the record after a step succeeded, by successTable.
func (f *facts) completeStage(st *step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node, p *node.PackageRecord) {
	entry := state[st.key]
	entry.State = v1alpha1.StateComplete
	state[st.key], p.At = entry, node.Position(entry)
	p.EndStage(entry.Stage, f.Now)
	p.Attempts, p.FailedAt, p.Failure, p.Again = 0, nil, nil, false
	then := successOf(st.stage, p.Effect)
	if then.dropsOtherVersions {
		maps.DeleteFunc(state, func(key string, e v1alpha1.PackageStatus) bool { return e.Name == st.name && key != st.key })
	}
	if then.finishesPackage {
		f.finishPackage(p, n)
	}
	if then.completesInterrupt {
		f.completeInterrupt(st, state, rec, n, p)
	}
	if then.removesPackage {
		f.removePackage(st, state, rec)
	}
	if then.next != "" {
		entry.Stage, entry.State = then.next, v1alpha1.StateInProgress
		state[st.key], p.At = entry, node.Position(entry)
	}
}

// finishPackage records that nothing is left of the run: the definition is installed.
func (f *facts) finishPackage(p *node.PackageRecord, n *node.Node) {
	generation := p.Generation
	*p = node.PackageRecord{At: p.At, Hash: p.Hash, Config: p.Config, Boot: n.BootID, Done: p.Done, Refuses: p.Refuses}
	if f.Skyhook.Spec.Drift != nil {
		p.Generation = generation // names the package's copy on the host
	}
	if p.Config == "" {
		if d := f.definition(p.Hash); d != nil {
			p.Config = d.Config
		}
	}
}

// removePackage drops an uninstalled package; a lower version that waited for it is next.
func (f *facts) removePackage(st *step, state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	delete(state, st.key)
	if want := f.wantedOn(rec).defs[st.name]; want != nil {
		if e, ok := state[want.key()]; ok && e.Stage == v1alpha1.StageUninstall && e.State == v1alpha1.StateSkipped {
			e.State = v1alpha1.StateComplete
			state[want.key()] = e
		}
	}
}

// completeInterrupt completes an interrupt and all it covers. After a reboot, packages that finished in the previous boot
// count as finished in this one.
func (f *facts) completeInterrupt(st *step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node, p *node.PackageRecord) {
	from := p.Boot
	reboot := p.Payload != nil && p.Payload.Type == v1alpha1.InterruptReboot
	rec.Interrupts++
	ids := []string{st.key}
	for key, other := range rec.Packages {
		if other.By == st.id && state[key].State == v1alpha1.StateSkipped {
			ids = append(ids, key)
		}
	}
	slices.Sort(ids)
	for _, key := range ids {
		e, q := state[key], rec.Packages[key]
		e.State = v1alpha1.StateComplete
		state[key], q.At = e, node.Position(e)
		q.Interrupt, q.Payload, q.By, q.Boot = "", nil, "", ""
		if e.Stage == v1alpha1.StageUninstallInterrupt {
			f.removePackage(&step{key: key, name: e.Name}, state, rec)
		}
	}
	if reboot {
		markRebooted(rec, from, n.BootID)
	}
}
