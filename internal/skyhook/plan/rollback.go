// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// Wanted are the packages that a node is to have: those of the spec, or those that it goes back to.
type Wanted struct {
	Packages map[string]*Definition // by name; none if nothing was complete before
	IsBack   bool
	stays    map[string]bool // after a first install: packages that are not uninstalled
}

// WantedOn returns what a node is to have.
func (f *Facts) WantedOn(rec *node.SkyhookRecord) Wanted {
	if !f.HasRolledBack(rec) {
		return Wanted{Packages: f.Packages}
	}
	back := Wanted{Packages: f.definitionsOf(rec.Complete), IsBack: true}
	if back.Packages == nil {
		back.stays = f.PackagesThatStay(rec.Packages)
	}
	return back
}

// PackagesThatStay returns the packages on a node that are not uninstalled after a first install: those that do not say
// uninstall.enabled, and what they depend on.
func (f *Facts) PackagesThatStay(packages map[string]*node.PackageRecord) map[string]bool {
	own, stays := map[string][]*Definition{}, map[string]bool{} // of each package: those of its versions on the node
	for key, p := range packages {
		if d := f.Definition(p.Hash); d == nil || !d.IsUninstallEnabled() {
			name, _, _ := CutKey(key)
			own[name] = append(own[name], d)
		}
	}
	WalkDependencies(SortedNames(own), func(name string) (needed []string) {
		versions, isOwn := own[name]
		if !isOwn {
			versions = []*Definition{f.Packages[name]}
		}
		for _, d := range versions {
			if d != nil {
				needed = append(needed, d.DependenciesAmong(f.Packages)...)
			}
		}
		return needed
	}, func(name string, _ []string) { stays[name] = true })
	return stays
}

// uninstallsFirst reports whether a node on which nothing was complete before has a package that is uninstalled again.
func (f *Facts) uninstallsFirst(rec *node.SkyhookRecord) bool {
	stays := f.PackagesThatStay(rec.Packages)
	for key := range rec.Packages {
		if name, _, _ := CutKey(key); !stays[name] {
			return true
		}
	}
	return false
}

// HasRolledBack reports whether the packages of the spec failed on a node, and it goes or went back. Other packages begin anew.
func (f *Facts) HasRolledBack(rec *node.SkyhookRecord) bool {
	isOfSpec := rec.Rollback != nil && rec.Rollback.Of == f.Key
	return isOfSpec && !f.Deleting && (rec.First || f.definitionsOf(rec.Complete) != nil)
}

// IsOutdated reports whether a node went back from other packages than those of the spec.
func (f *Facts) IsOutdated(back *node.Rollback) bool { return back != nil && back.Of != f.Key }

// definitionsOf returns the definitions of a set of packages; nil if there are none, or if one is not known any more.
func (f *Facts) definitionsOf(hashes map[string]string) map[string]*Definition {
	if len(hashes) == 0 {
		return nil
	}
	out := make(map[string]*Definition, len(hashes))
	for name, hash := range hashes {
		d := f.Definition(hash)
		if d == nil {
			return nil
		}
		out[name] = d
	}
	return out
}

// RollsBackFor reports whether nodes go back for a cause. A policy does not decide what runs on nodes: Rollback of its proof is Hold.
func (f *Facts) RollsBackFor(cause v1alpha1.RollbackCause) bool {
	if f.Skyhook.Spec.Rollback != nil {
		return true
	}
	p := f.Skyhook.Spec.Proof
	return cause == v1alpha1.RollbackProofFailed && p != nil && p.OnTimeout == v1alpha1.ProofRollback
}

// HasWayBack reports whether something else was complete on a node before, or nothing was and something is uninstalled.
func (f *Facts) HasWayBack(rec *node.SkyhookRecord) bool {
	if rec.First {
		return f.uninstallsFirst(rec)
	}
	return len(rec.Complete) > 0 && RevisionKey(rec.Complete) != f.Key && f.definitionsOf(rec.Complete) != nil
}

// DescribeRevision names a set of packages by the number of its revision.
func (f *Facts) DescribeRevision(key string) string {
	switch number := f.RevisionNumber(key); {
	case number > 0:
		return fmt.Sprintf("revision %d", number)
	case key == f.Key:
		return "the present revision"
	}
	return "an earlier revision"
}

// FirstRollback is the first node that goes or went back from the packages of the spec, because they failed on it.
type FirstRollback struct {
	node    string // empty if only the status knows
	At      time.Time
	failure string
	Since   time.Time // since when the Skyhook is not complete
}

func (w *FirstRollback) isAfter(other *FirstRollback) bool {
	if isKnown := w.node != ""; isKnown != (other.node != "") {
		return !isKnown
	}
	return cmp.Or(w.At.Compare(other.At), cmp.Compare(w.node, other.node)) > 0
}

// Text says why another node goes back too.
func (w *FirstRollback) Text() string {
	if w.node == "" {
		return w.failure
	}
	return node.Truncate("they failed on "+w.node+": "+w.failure, 300)
}

// FindRollback finds the first node that went back from the packages of the spec, by the records of all nodes. When that node is gone, the
// status still knows. With scope Rollout nothing new begins then.
func (f *Facts) FindRollback(nodes []*node.Node, known *v1alpha1.RollbackStatus, since time.Time) *FirstRollback {
	var first *FirstRollback
	s := f.Skyhook
	for _, n := range nodes {
		on := n.Skyhook(s.Name)
		if on.Record.Rollback == nil || on.Record.Rollback.Of != f.Key {
			continue
		}
		back := on.Record.Effective(n.UID, string(s.UID), on.StateHash, on.State).Rollback
		if back == nil {
			continue
		}
		found := &FirstRollback{node: n.Name, At: back.At, failure: back.Text, Since: since}
		if back.Others { // its text names the node that failed, whose own record may never have been written
			found.node = ""
		}
		if first == nil || first.isAfter(found) {
			first = found
		}
	}
	if first == nil && f.GoesBackTogether() && known != nil && known.Key == f.Key {
		first = &FirstRollback{failure: known.Message, At: known.Since.UTC(), Since: since}
	}
	return first
}

// GoesBackTogether reports whether all nodes of the rollout go back when the packages of the spec failed on one of them.
func (f *Facts) GoesBackTogether() bool {
	r := f.Skyhook.Spec.Rollback
	return r != nil && r.Scope == v1alpha1.RollbackScopeRollout
}

// RollbackCause says why no further node gets the packages of the spec; nil if nodes get them.
func (f *Facts) RollbackCause() *rollout.Why {
	if !f.GoesBackTogether() || f.WentBack == nil {
		return nil
	}
	return &rollout.Why{
		Reason: rollout.ReasonRolledBack, Since: f.WentBack.At,
		Text: node.Truncate("no further node gets "+f.DescribeRevision(f.Key)+": "+f.WentBack.Text(), 400),
	}
}

// RevisionNumber returns the number of the revision with a key; 0 if it is not known.
func (f *Facts) RevisionNumber(key string) int64 {
	at := slices.IndexFunc(f.Revisions, func(r Revision) bool { return r.Key == key })
	if at < 0 {
		return 0
	}
	return f.Revisions[at].Number
}
