// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
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
)

// IsUninstalled reports whether an entry is of a package that is not on the host: it was uninstalled, or waited for the
// uninstall of a higher version.
func IsUninstalled(e v1alpha1.PackageStatus) bool {
	if e.Stage == v1alpha1.StageUninstallInterrupt {
		return e.State == v1alpha1.StateComplete
	}
	return Entry{PackageStatus: e}.isParked()
}

// BeginStage moves the package's entry to the step. The run id and the copy directory stay those of the package's first step
// in this admission. Of several spellings of one version on the node the record of the spec's own spelling is inherited, or
// else the first one in the order of keys, as findCurrent chooses.
func (f *Facts) BeginStage(st *Step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) *node.PackageRecord {
	old, was := rec.Packages[st.Key], state[st.Key]
	for _, key := range slices.Sorted(maps.Keys(state)) {
		e := state[key]
		if key != st.Key && e.Name == st.Name && st.Goal != node.GoalUninstall && pack.CompareVersions(e.Version, st.Version) == 0 {
			if old == nil {
				old, was = rec.Packages[key], e
			}
			delete(state, key)
			delete(rec.Packages, key)
		}
	}
	p := &node.PackageRecord{Hash: st.Definition.Hash, Goal: st.Goal, From: st.From, Keys: st.Keys, Effect: st.Effect}
	began := node.WholeSeconds(f.Now)
	p.Since = &began
	p.Refuses, p.Privileges = old != nil && old.Refuses, f.DeclaredOn(rec, st)
	p.Unbegun = old == nil && was.Stage == "" && (st.Stage == v1alpha1.StageApply || st.Stage == v1alpha1.StageUpgrade)
	if old != nil && old.Goal != "" {
		p.Run, p.Generation, p.Config, p.Done = old.Run, old.Generation, old.Config, old.Done
		if was.Stage == st.Stage && old.Since != nil {
			p.Since = old.Since
		}
		p.Unbegun = was.Stage == st.Stage && old.Unbegun
		if was.Stage == st.Stage && !WasEdited(st, old) {
			p.Attempts, p.FailedAt, p.Failure = old.Attempts, old.FailedAt, old.Failure
		}
		if st.IsInterrupt() {
			p.Hash = old.Hash // an interrupt installs nothing: the definition of the config stage stays installed
		}
		if was.Stage == st.Stage && SameInterrupt(old.Effect, st.Effect) {
			p.Interrupt, p.Payload, p.Boot = old.Interrupt, old.Payload, old.Boot
		}
	}
	if p.Run == "" || p.Generation == 0 {
		p.Run, p.Generation = f.RunID(n, rec, st), rec.Offset+f.Skyhook.Generation
	}
	if st.Stage == v1alpha1.StageConfig {
		p.Config = st.Definition.Config
	}
	entry := v1alpha1.PackageStatus{
		Name: st.Name, Version: st.Version, Image: st.Definition.Package.Image, ContainerSHA: st.Definition.Package.ContainerSHA,
		Stage: st.Stage, State: v1alpha1.StateInProgress,
	}
	if was.Stage == st.Stage {
		entry.Restarts = was.Restarts
	}
	if p.Again = p.Attempts > 0; p.Again {
		entry.State = v1alpha1.StateErroring
	}
	state[st.Key], rec.Packages[st.Key] = entry, p
	p.At = node.Position(entry)
	return p
}

// RunID returns the id of the package's run in this admission. It contains the time because admission numbers start again after a reset.
func (f *Facts) RunID(n *node.Node, rec *node.SkyhookRecord, st *Step) string {
	return strconv.Itoa(rec.Admission) + "-" + HashID(string(f.Skyhook.UID), n.UID, st.Key, node.WholeSeconds(f.Now).Format(time.RFC3339))
}

// HashID returns a short hash of parts.
func HashID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:6])
}

// SkipStage records that another package's interrupt covers this one.
func (f *Facts) SkipStage(st *Step, by string, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node) {
	p := f.BeginStage(st, state, rec, n)
	entry := state[st.Key]
	entry.State = v1alpha1.StateSkipped
	state[st.Key] = entry
	p.Again = false
	p.At, p.By, p.Interrupt, p.Payload = node.Position(entry), by, "", nil
}

// MarkRebooted changes the boot id of packages that finished in one boot to another.
func MarkRebooted(rec *node.SkyhookRecord, from, to string) (changed bool) {
	for _, p := range rec.Packages {
		if p.Goal == "" && p.IsOf(from) {
			p.Boot, p.Ended, changed = to, "", true
		}
	}
	return changed
}

// CompleteStage updates the entry and the record after a step succeeded, by successTable.
func (f *Facts) CompleteStage(st *Step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node, p *node.PackageRecord) {
	entry := state[st.Key]
	entry.State = v1alpha1.StateComplete
	state[st.Key], p.At = entry, node.Position(entry)
	p.EndStage(entry.Stage, f.Now)
	p.Attempts, p.FailedAt, p.Failure, p.Again, p.Unbegun = 0, nil, nil, false, false
	then := successOf(st.Stage, p.Effect)
	if then.dropsOtherVersions {
		maps.DeleteFunc(state, func(key string, e v1alpha1.PackageStatus) bool { return e.Name == st.Name && key != st.Key })
	}
	if then.finishesPackage {
		f.finishPackage(p, rec, n)
	}
	if then.completesInterrupt {
		f.completeInterrupt(st, state, rec, n, p)
	}
	if then.removesPackage {
		f.removePackage(st, state, rec)
	}
	if then.next != "" {
		entry.Stage, entry.State = then.next, v1alpha1.StateInProgress
		state[st.Key], p.At = entry, node.Position(entry)
	}
}

// finishPackage records that nothing is left of the run: the definition is installed. A boot of which only the agent spoke may be that
// before the one that the node reports, which is known of the boot of the admission, or one that the node will report.
func (f *Facts) finishPackage(p *node.PackageRecord, rec *node.SkyhookRecord, n *node.Node) {
	generation, boot, ended := p.Generation, n.BootID, p.Boot
	switch ended {
	case rec.Boot:
		boot, ended = cmp.Or(ended, boot), ""
	case boot:
		ended = ""
	}
	*p = node.PackageRecord{At: p.At, Hash: p.Hash, Config: p.Config, Boot: boot, Ended: ended, Done: p.Done, Refuses: p.Refuses, Privileges: p.Privileges}
	if f.Skyhook.Spec.Drift != nil {
		p.Generation = generation // names the package's copy on the host
	}
	if p.Config == "" {
		if d := f.Definition(p.Hash); d != nil {
			p.Config = d.Config
		}
	}
}

// removePackage drops an uninstalled package; a lower version that waited for it is next.
func (f *Facts) removePackage(st *Step, state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	delete(state, st.Key)
	if want := f.WantedOn(rec).Packages[st.Name]; want != nil {
		if e, ok := state[want.Key()]; ok && e.Stage == v1alpha1.StageUninstall && e.State == v1alpha1.StateSkipped {
			e.State = v1alpha1.StateComplete
			state[want.Key()] = e
		}
	}
}

// completeInterrupt completes an interrupt and all it covers. After a reboot, packages that finished in the previous boot
// count as finished in this one.
func (f *Facts) completeInterrupt(st *Step, state v1alpha1.NodeState, rec *node.SkyhookRecord, n *node.Node, p *node.PackageRecord) {
	from := p.Boot
	reboot := p.Payload != nil && p.Payload.Type == v1alpha1.InterruptReboot
	rec.Interrupts++
	ids := []string{st.Key}
	for key, other := range rec.Packages {
		if other.By == st.ID && state[key].State == v1alpha1.StateSkipped {
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
			f.removePackage(&Step{Key: key, Name: e.Name}, state, rec)
		}
	}
	if reboot {
		MarkRebooted(rec, from, n.BootID)
	}
}
