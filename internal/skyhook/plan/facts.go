// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package plan compares what a node records with what a Skyhook wants, and returns the steps that are left. It is pure: facts about the
// Skyhook and a node come in, steps go out.
package plan

import (
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Facts are what all nodes of a Skyhook are compiled from. They are built once and not changed.
type Facts struct {
	Skyhook   *v1alpha1.Skyhook          // without its status
	Policy    *v1alpha1.DeploymentPolicy // without its status; nil when none is named, or when it is missing
	Config    Config
	Now       time.Time
	Packages  map[string]*Definition     // of the spec, by name
	Frozen    map[string]*Definition     // those that a node may record, by hash
	Revisions []Revision                 // that exist, the newest first; nil when they are not known
	Pins      []v1alpha1.ImagePin        // by which nodes pull: see knownPins
	OtherPins int                        // how many of them take room of images that the spec does not have; 0 where all have room
	Key       string                     // of the packages of the spec
	Silent    map[string]bool            // hashes of definitions without a preflight, as nodes say
	Declared  map[string]pack.Privileges // what config.json of packages declares, by image, as nodes say
	WentBack  *FirstRollback             // the first node on which the packages of the spec failed, and that goes or went back; nil for none
	Deleting  bool
	Standing  bool // it is paused or cannot be carried out

	ByHash map[string]*Definition // Packages
	Keys   Keys
}

// NewFacts returns the facts of a Skyhook. What is in a status only reports: what else counts of it is in Pins and WentBack.
func NewFacts(in *Input) *Facts {
	s := *in.Skyhook
	s.ResourceVersion, s.ManagedFields, s.Status = "", nil, v1alpha1.SkyhookStatus{}
	f := &Facts{
		Skyhook: &s, Config: in.Config, Now: in.Now, Packages: make(map[string]*Definition, len(s.Spec.Packages)), Frozen: in.Definitions,
		Revisions: in.Revisions, Pins: knownPins(in.Skyhook.Status.Internal.ImagePins, in.Revisions), Deleting: s.DeletionTimestamp != nil,
		ByHash: make(map[string]*Definition, len(s.Spec.Packages)), Keys: newNodeKeys(s.Name),
	}
	if in.Policy != nil {
		p := *in.Policy
		p.ResourceVersion, p.ManagedFields, p.Status = "", nil, v1alpha1.DeploymentPolicyStatus{}
		f.Policy = &p
	}
	for name, p := range s.Spec.Packages {
		d := NewDefinition(name, p)
		f.Packages[name], f.ByHash[d.Hash] = d, d
	}
	f.Key = KeyOfDefinitions(f.Packages)
	f.Silent, f.Declared = f.readNodes(in.Nodes)
	if f.PinsImages() && len(f.Pins) >= MostPins-len(f.Packages) {
		_, f.OtherPins = f.UsefulPins(in.Nodes)
	}
	return f
}

// IsEqual reports whether nodes are compiled alike from both, but for the time.
func (f *Facts) IsEqual(o *Facts) bool {
	a, b := *f, *o
	a.Now, b.Now = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

// Definition finds a definition by its hash; nil when it is not known.
func (f *Facts) Definition(hash string) *Definition {
	if d := f.ByHash[hash]; d != nil {
		return d
	}
	return f.Frozen[hash]
}

// Uninstalls reports whether the spec requests the uninstall of a package that stays in the list.
func (f *Facts) Uninstalls(name string) bool {
	u := f.Skyhook.Spec.Packages[name].Uninstall
	return u != nil && u.Enabled && u.Apply
}

// IsUninstalled reports whether a wanted package is to be uninstalled. Nodes that go back have nothing of that.
func (f *Facts) IsUninstalled(w Wanted, name string) bool { return !w.IsBack && f.Uninstalls(name) }

// UninstallsOnDeletion reports whether a package of the spec must be uninstalled before the Skyhook is deleted.
func (f *Facts) UninstallsOnDeletion() bool {
	for _, d := range f.Packages {
		if d.IsUninstallEnabled() {
			return true
		}
	}
	return false
}

// Edits reports whether the definition of a finished package changed in a way that affects its pods but runs nothing.
func (f *Facts) Edits(hash string, want *Definition) bool {
	old := f.Definition(hash)
	return old == nil || old.PodHash != want.PodHash
}

// DeadlineOf returns how long one pod of a task may take; 0 for no limit.
func (f *Facts) DeadlineOf(st *Step) time.Duration {
	if d := st.Definition.Package.StageTimeout; d != nil {
		return d.Duration
	}
	if st.IsInterrupt() {
		return f.Config.interruptDeadline()
	}
	return f.Config.stageDeadline()
}

// Keys are the keys of one Skyhook on nodes, built once.
type Keys struct {
	Status, Version    string
	NotReady, Erroring corev1.NodeConditionType
}

func newNodeKeys(skyhook string) Keys {
	return Keys{
		Status: v1alpha1.PrefixStatus + skyhook, Version: v1alpha1.PrefixVersion + skyhook,
		NotReady: corev1.NodeConditionType(v1alpha1.NodeConditionNotReady(skyhook)),
		Erroring: corev1.NodeConditionType(v1alpha1.NodeConditionErroring(skyhook)),
	}
}

// IsCondition reports whether a condition of nodes is one of the Skyhook.
func (k Keys) IsCondition(t corev1.NodeConditionType) bool {
	return t == k.NotReady || t == k.Erroring
}

// HasCondition reports whether a node has conditions of the Skyhook.
func (k Keys) HasCondition(conditions []corev1.NodeCondition) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return k.IsCondition(c.Type) })
}

// PackageList names the packages of the spec with their versions.
func (f *Facts) PackageList() string {
	var out []string
	for _, name := range SortedNames(f.Packages) {
		out = append(out, name+":"+string(f.Packages[name].Package.Version))
	}
	return strings.Join(out, ",")
}
