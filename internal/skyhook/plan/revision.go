// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// AnnotationChangeCause is what kubectl and others write to say why an object was changed.
const AnnotationChangeCause = "kubernetes.io/change-cause"

// Revision is a set of packages that began to roll out: a ControllerRevision without its content.
type Revision struct {
	Number int64
	Name   string // of the ControllerRevision
	Key    string // of the set of packages
	Cause  string // annotation kubernetes.io/change-cause, when it began
	Pins   []v1alpha1.ImagePin
}

// ReadRevision reads a revision of a Skyhook from the metadata of its ControllerRevision. It returns false for those of others.
func ReadRevision(m *metav1.ObjectMeta) (r Revision, isRevision bool) {
	number, err := strconv.ParseInt(m.Annotations[v1alpha1.AnnotationRevision], 10, 64)
	r = Revision{Number: number, Name: m.Name, Key: m.Annotations[v1alpha1.AnnotationRevisionKey], Cause: m.Annotations[AnnotationChangeCause], Pins: PinsOf(m)}
	return r, err == nil && number > 0 && r.Key != ""
}

// RevisionKey returns the key of a set of packages, by the hashes of their definitions; empty for none.
func RevisionKey(hashes map[string]string) string {
	if hashes == nil {
		return ""
	}
	parts := make([]string, 0, 2*len(hashes))
	for _, name := range SortedNames(hashes) {
		parts = append(parts, name, hashes[name])
	}
	return HashID(parts...)
}

// FinishedHashes returns the hashes of the packages that are finished on a node, by name; nil if there are none, or while one is
// between two definitions.
func FinishedHashes(state v1alpha1.NodeState, packages map[string]*node.PackageRecord) map[string]string {
	hashes := make(map[string]string, len(state))
	for key, e := range state {
		rec := packages[key]
		isFinished := rec != nil && rec.Goal == "" && rec.Hash != "" && e.State == v1alpha1.StateComplete
		if _, isTwice := hashes[e.Name]; isTwice || !isFinished {
			return nil
		}
		hashes[e.Name] = rec.Hash
	}
	if len(hashes) == 0 {
		return nil
	}
	return hashes
}

// KeyOfDefinitions returns the key of a set of packages.
func KeyOfDefinitions(defs map[string]*Definition) string {
	hashes := make(map[string]string, len(defs))
	for name, d := range defs {
		hashes[name] = d.Hash
	}
	return RevisionKey(hashes)
}
