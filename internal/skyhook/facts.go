// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// facts are what all nodes of a Skyhook are compiled from. They are built once and not changed.
type facts struct {
	Skyhook   *v1alpha1.Skyhook          // without its status
	Policy    *v1alpha1.DeploymentPolicy // without its status; nil when none is named, or when it is missing
	Config    Config
	Now       time.Time
	Packages  map[string]*Definition // of the spec, by name
	Frozen    map[string]*Definition // those that a node may record, by hash
	Revisions []Revision             // that exist, the newest first; nil when they are not known
	Pins      []v1alpha1.ImagePin    // by which nodes pull: see knownPins
	Key       string                 // of the packages of the spec
	WentBack  *wentBack              // the first node on which the packages of the spec failed, and that goes or went back; nil for none
	Deleting  bool
	Standing  bool // it is paused or cannot be carried out

	byHash map[string]*Definition // Packages
	keys   nodeKeys
}

// newFacts returns the facts of a Skyhook. What is in a status only reports: what else counts of it is in Pins and WentBack.
func newFacts(in *Input) *facts {
	s := *in.Skyhook
	s.ResourceVersion, s.ManagedFields, s.Status = "", nil, v1alpha1.SkyhookStatus{}
	f := &facts{
		Skyhook: &s, Config: in.Config, Now: in.Now, Packages: make(map[string]*Definition, len(s.Spec.Packages)), Frozen: in.Definitions,
		Revisions: in.Revisions, Pins: knownPins(in.Skyhook.Status.ImagePins, in.Revisions), Deleting: s.DeletionTimestamp != nil,
		byHash: make(map[string]*Definition, len(s.Spec.Packages)), keys: newNodeKeys(s.Name),
	}
	if in.Policy != nil {
		p := *in.Policy
		p.ResourceVersion, p.ManagedFields, p.Status = "", nil, v1alpha1.DeploymentPolicyStatus{}
		f.Policy = &p
	}
	for name, p := range s.Spec.Packages {
		d := newDefinition(name, p)
		f.Packages[name], f.byHash[d.Hash] = d, d
	}
	f.Key = keyOfDefinitions(f.Packages)
	return f
}

// isEqual reports whether nodes are compiled alike from both, but for the time.
func (f *facts) isEqual(o *facts) bool {
	a, b := *f, *o
	a.Now, b.Now = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// definition finds a definition by its hash; nil when it is not known.
func (f *facts) definition(hash string) *Definition {
	if d := f.byHash[hash]; d != nil {
		return d
	}
	return f.Frozen[hash]
}

// uninstalls reports whether the spec requests the uninstall of a package that stays in the list.
func (f *facts) uninstalls(name string) bool {
	u := f.Skyhook.Spec.Packages[name].Uninstall
	return u != nil && u.Enabled && u.Apply
}

// isUninstalled reports whether a wanted package is to be uninstalled. Nodes that go back have nothing of that.
func (f *facts) isUninstalled(w wanted, name string) bool { return !w.isBack && f.uninstalls(name) }

// uninstallsOnDeletion reports whether a package of the spec must be uninstalled before the Skyhook is deleted.
func (f *facts) uninstallsOnDeletion() bool {
	for _, d := range f.Packages {
		if d.isUninstallEnabled() {
			return true
		}
	}
	return false
}

// edits reports whether the definition of a finished package changed in a way that affects its pods but runs nothing.
func (f *facts) edits(hash string, want *Definition) bool {
	old := f.definition(hash)
	return old == nil || old.pod != want.pod
}

// deadlineOf returns how long one pod of a task may take; 0 for no limit.
func (f *facts) deadlineOf(st *step) time.Duration {
	if d := st.def.Package.StageTimeout; d != nil {
		return d.Duration
	}
	if st.isInterrupt() {
		return f.Config.interruptDeadline()
	}
	return f.Config.stageDeadline()
}

// nodeKeys are the keys of one Skyhook on nodes, built once.
type nodeKeys struct {
	status, version    string
	notReady, erroring corev1.NodeConditionType
}

func newNodeKeys(skyhook string) nodeKeys {
	return nodeKeys{
		status: v1alpha1.PrefixStatus + skyhook, version: v1alpha1.PrefixVersion + skyhook,
		notReady: corev1.NodeConditionType(v1alpha1.NodeConditionNotReady(skyhook)),
		erroring: corev1.NodeConditionType(v1alpha1.NodeConditionErroring(skyhook)),
	}
}

// isCondition reports whether a condition of nodes is one of the Skyhook.
func (k nodeKeys) isCondition(t corev1.NodeConditionType) bool {
	return t == k.notReady || t == k.erroring
}

// hasCondition reports whether a node has conditions of the Skyhook.
func (k nodeKeys) hasCondition(conditions []corev1.NodeCondition) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return k.isCondition(c.Type) })
}
