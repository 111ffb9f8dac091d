// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// wanted are the packages that a node is to have: those of the spec, or those that it goes back to.
type wanted struct {
	defs   map[string]*Definition // by name; none if nothing was complete before
	isBack bool
	stays  map[string]bool // after a first install: packages that are not uninstalled
}

// wantedOn returns what a node is to have.
func (f *facts) wantedOn(rec *node.SkyhookRecord) wanted {
	if !f.hasRolledBack(rec) {
		return wanted{defs: f.Packages}
	}
	back := wanted{defs: f.definitionsOf(rec.Complete), isBack: true}
	if back.defs == nil {
		back.stays = f.packagesThatStay(rec.Packages)
	}
	return back
}

// packagesThatStay returns the packages on a node that are not uninstalled after a first install: those that do not say
// uninstall.enabled, and what they depend on.
func (f *facts) packagesThatStay(packages map[string]*node.PackageRecord) map[string]bool {
	stays := map[string]bool{}
	var add func(d *Definition)
	add = func(d *Definition) {
		if stays[d.Package.Name] {
			return
		}
		stays[d.Package.Name] = true
		for name := range d.Package.DependsOn {
			if dependency := f.Packages[name]; dependency != nil {
				add(dependency)
			}
		}
	}
	for key, p := range packages {
		name, _, _ := cutKey(key)
		d := f.definition(p.Hash)
		switch {
		case d == nil:
			stays[name] = true
		case !d.isUninstallEnabled():
			add(d)
		}
	}
	return stays
}

// uninstallsFirst reports whether a node on which nothing was complete before has a package that is uninstalled again.
func (f *facts) uninstallsFirst(rec *node.SkyhookRecord) bool {
	stays := f.packagesThatStay(rec.Packages)
	for key := range rec.Packages {
		if name, _, _ := cutKey(key); !stays[name] {
			return true
		}
	}
	return false
}

// hasRolledBack reports whether the packages of the spec failed on a node, and it goes or went back. Other packages begin anew.
func (f *facts) hasRolledBack(rec *node.SkyhookRecord) bool {
	isOfSpec := rec.Rollback != nil && rec.Rollback.Of == f.Key
	return isOfSpec && !f.Deleting && (rec.First || f.definitionsOf(rec.Complete) != nil)
}

// definitionsOf returns the definitions of a set of packages; nil if there are none, or if one is not known any more.
func (f *facts) definitionsOf(hashes map[string]string) map[string]*Definition {
	if len(hashes) == 0 {
		return nil
	}
	out := make(map[string]*Definition, len(hashes))
	for name, hash := range hashes {
		d := f.definition(hash)
		if d == nil {
			return nil
		}
		out[name] = d
	}
	return out
}

// rollsBackFor reports whether nodes go back for a cause.
func (f *facts) rollsBackFor(cause v1alpha1.RollbackCause) bool {
	if r := f.Skyhook.Spec.Rollback; r != nil && (len(r.When) == 0 || slices.Contains(r.When, cause)) {
		return true
	}
	asks := func(p *v1alpha1.Proof) bool { return p.OnTimeout == v1alpha1.ProofRollback }
	return cause == v1alpha1.RollbackProofFailed && slices.ContainsFunc(Proofs(f.Skyhook, f.Policy), asks)
}

// compileRollback says whether a node may go back, and whether it did.
func (c *nodeCompiler) compileRollback(rec *node.SkyhookRecord, state v1alpha1.NodeState, out *rollout.Target) {
	if c.facts.hasRolledBack(rec) {
		out.Rollback.Cause, out.Rollback.WithOthers = c.rolledBackReason(rec, state), rec.Rollback.Others
		return
	}
	if out.Visit.Admitted && !out.Leaving && !c.facts.Deleting && c.facts.hasWayBack(rec) {
		out.Rollback.IfFailed = c.facts.rollsBackFor(v1alpha1.RollbackStageFailed)
		isReleased := out.Proof != nil && out.Proof.Release
		out.Rollback.IfUnproven = !isReleased && c.facts.rollsBackFor(v1alpha1.RollbackProofFailed)
		out.Rollback.IfOthers = c.facts.goesBackTogether()
		out.Rollback.Refused = c.rollbackRefusal(rec, state, c.pods.work)
	}
}

// hasWayBack reports whether something else was complete on a node before, or nothing was and something is uninstalled.
func (f *facts) hasWayBack(rec *node.SkyhookRecord) bool {
	if rec.First {
		return f.uninstallsFirst(rec)
	}
	return len(rec.Complete) > 0 && revisionKey(rec.Complete) != f.Key && f.definitionsOf(rec.Complete) != nil
}

// rolledBackReason says what failed, and what the node goes or went back to.
func (c *nodeCompiler) rolledBackReason(rec *node.SkyhookRecord, state v1alpha1.NodeState) *rollout.Why {
	return &rollout.Why{
		Reason: rollout.ReasonRolledBack, Since: rec.Rollback.At,
		Text: fmt.Sprintf("%s failed, and %s: %s", c.facts.describeRevision(rec.Rollback.Of), c.describeWay(rec, state), rec.Rollback.Text),
	}
}

// describeWay says what a node goes or went back to.
func (c *nodeCompiler) describeWay(rec *node.SkyhookRecord, state v1alpha1.NodeState) string {
	isOnItsWay := rec.Admitted || rec.Rollback.Others && revisionKey(finishedHashes(state, rec.Packages)) == c.facts.Key
	switch to := c.facts.describeRevision(revisionKey(rec.Complete)); {
	case rec.First && isOnItsWay:
		return "its packages are uninstalled"
	case rec.First:
		return "its packages were uninstalled"
	case isOnItsWay:
		return "the node goes back to " + to
	default:
		return "the node went back to " + to
	}
}

// describeRevision names a set of packages by the number of its revision.
func (f *facts) describeRevision(key string) string {
	switch number := f.revisionNumber(key); {
	case number > 0:
		return fmt.Sprintf("revision %d", number)
	case key == f.Key:
		return "the present revision"
	}
	return "an earlier revision"
}

// noteComplete notes at an admission what is complete on the node, so that it can go back to that. What was given back unproven does
// not count, nor what it went back from.
func (r recorder) noteComplete(state v1alpha1.NodeState, rec *node.SkyhookRecord) {
	if rec.Rollback != nil && rec.Rollback.Of != r.facts.Key {
		rec.Rollback = nil
	}
	isEnabled := r.facts.rollsBackFor(v1alpha1.RollbackStageFailed) || r.facts.rollsBackFor(v1alpha1.RollbackProofFailed)
	switch {
	case !isEnabled:
		rec.First, rec.Complete, rec.Rollback = false, nil, nil
	case len(state) == 0:
		rec.First, rec.Complete = true, nil
	case rec.FinishedAt != nil:
		rec.First = false
		if hashes := finishedHashes(state, rec.Packages); hashes != nil && !rec.Unproven {
			rec.Complete = hashes
		}
	}
}

// recordRollback records that the node goes back.
func (r recorder) recordRollback(a rollout.Action, n *node.Node) node.Edit {
	back := node.Rollback{Of: r.facts.Key, At: node.WholeSeconds(r.facts.Now), Text: node.Truncate(a.Why.Text, 300)}
	if a.Why.Reason == rollout.ReasonRolledBack {
		if back.Others = true; r.facts.WentBack != nil {
			back.Text = r.facts.WentBack.text()
		}
	}
	e := editRecord(r.facts, n, func(_ v1alpha1.NodeState, rec *node.SkyhookRecord) {
		if !r.facts.hasRolledBack(rec) {
			rec.Rollback = &back
			rec.Proving, rec.Reboot, rec.Queues = nil, nil, nil
		}
	})
	e.SetSkyhookStatus(n, r.facts.Skyhook.Name, v1alpha1.StatusErroring)
	return e
}

// readRefusal returns whether the package of these containers refuses that nodes go back, as its stage or check reported last; nil if neither has.
func readRefusal(statuses []corev1.ContainerStatus) (refuses *bool) {
	for _, c := range statuses {
		for _, t := range []*corev1.ContainerStateTerminated{c.LastTerminationState.Terminated, c.State.Terminated} {
			if t == nil {
				continue
			}
			m, isOurs := pack.DecodeMessage(t.Message)
			hasRead := m.RefusesRollback || m.Outcome == pack.Succeeded // another one may have failed before it read config.json
			if isOurs && hasRead && m.Mode.HasSteps() {
				refuses = &m.RefusesRollback
			}
		}
	}
	return refuses
}

// rollbackRefusal returns why a node does not go back: a package that would be changed refuses. It is empty if none does.
func (c *nodeCompiler) rollbackRefusal(rec *node.SkyhookRecord, state v1alpha1.NodeState, pods []*podInfo) string {
	var stays map[string]bool
	if rec.First {
		stays = c.facts.packagesThatStay(rec.Packages)
	}
	for _, key := range sortedNames(state) {
		p := rec.Packages[key]
		e := newEntry(key, state[key], p)
		isAsBefore := p != nil && p.Goal == "" && p.Hash == rec.Complete[e.Name] && e.State == v1alpha1.StateComplete
		if isAsBefore || stays[e.Name] {
			continue
		}
		refuses := p != nil && p.Refuses
		if pod := findPod(pods, e); pod != nil && pod.refuses != nil {
			refuses = *pod.refuses
		}
		if refuses {
			return fmt.Sprintf("the node does not go back, because package %s %s refuses that in its config.json", e.Name, e.Version)
		}
	}
	return ""
}
