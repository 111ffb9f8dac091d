// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
)

// DefaultRevisionLimit is how many earlier revisions are kept for a Skyhook that does not say.
const DefaultRevisionLimit = 10

// annotationChangeCause is what kubectl and others write to say why an object was changed.
const annotationChangeCause = "kubernetes.io/change-cause"

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
	r = Revision{Number: number, Name: m.Name, Key: m.Annotations[v1alpha1.AnnotationRevisionKey], Cause: m.Annotations[annotationChangeCause], Pins: PinsOf(m)}
	return r, err == nil && number > 0 && r.Key != ""
}

// revisionContent is the content of a ControllerRevision, in the shape of a Skyhook.
type revisionContent struct {
	Spec struct {
		Packages map[string]v1alpha1.Package `json:"packages"`
	} `json:"spec"`
}

// PackagesOf returns the packages of a ControllerRevision.
func PackagesOf(r *appsv1.ControllerRevision) (map[string]v1alpha1.Package, error) {
	var content revisionContent
	if err := json.Unmarshal(r.Data.Raw, &content); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s/%s does not contain packages: %w", r.Namespace, r.Name, err)
	}
	return content.Spec.Packages, nil
}

// revisionKey returns the key of a set of packages, by the hashes of their definitions; empty for none.
func revisionKey(hashes map[string]string) string {
	if hashes == nil {
		return ""
	}
	parts := make([]string, 0, 2*len(hashes))
	for _, name := range sortedNames(hashes) {
		parts = append(parts, name, hashes[name])
	}
	return hashID(parts...)
}

// finishedHashes returns the hashes of the packages that are finished on a node, by name; nil if there are none, or while one is
// between two definitions.
func finishedHashes(state v1alpha1.NodeState, packages map[string]*node.PackageRecord) map[string]string {
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

// HasBegun reports whether the packages of the spec have begun to roll out: a node was admitted for them, or has them.
func (c *Compiled) HasBegun() bool {
	if c.Rollout.Broken != nil || c.facts.Deleting || len(c.facts.Packages) == 0 {
		return false
	}
	key := c.facts.Key
	for i := range c.targets {
		t := c.targets[i]
		isAdmitted := t.rec.Admitted && t.rec.Generation == c.facts.Skyhook.Generation
		if t.selected && (isAdmitted || t.revision == key) {
			return true
		}
	}
	return false
}

// newRevision returns the ControllerRevision of the packages of the spec.
func (r renderer) newRevision(number int64) (*appsv1.ControllerRevision, error) {
	s := r.facts.Skyhook
	var content revisionContent
	content.Spec.Packages = WithoutUninstallRequests(s.Spec.Packages)
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding the packages of a revision: %w", err)
	}
	key := r.facts.Key
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: revisionName(s.Name, key), Namespace: r.facts.Config.Namespace, OwnerReferences: ownerReferences(s),
			Labels:      map[string]string{v1alpha1.LabelRevisionOf: s.Name},
			Annotations: revisionAnnotations(s, number, key),
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: number,
	}, nil
}

// revisionAnnotations returns the annotations of a revision: its number, because the field itself is not metadata, and its cause.
func revisionAnnotations(s *v1alpha1.Skyhook, number int64, key string) map[string]string {
	out := map[string]string{v1alpha1.AnnotationRevision: strconv.FormatInt(number, 10), v1alpha1.AnnotationRevisionKey: key}
	if cause := s.Annotations[annotationChangeCause]; cause != "" {
		out[annotationChangeCause] = node.Truncate(cause, 1024)
	}
	return out
}

// RenumberPatch returns the merge patch that gives an existing ControllerRevision the number and cause of this one. It says what an
// earlier cause is replaced by, also when that is nothing.
func RenumberPatch(r *appsv1.ControllerRevision) ([]byte, error) {
	annotations := map[string]any{annotationChangeCause: nil}
	for key, value := range r.Annotations {
		annotations[key] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "revision": r.Revision})
	if err != nil {
		return nil, fmt.Errorf("encoding the number of a revision: %w", err)
	}
	return patch, nil
}

func revisionName(skyhook, key string) string {
	most := 253 - 1 - len(key)
	return strings.TrimRight(skyhook[:min(len(skyhook), most)], "-.") + "-" + key
}

// SuperfluousRevisions returns the revisions beyond the limit that no node has, of all that exist, the newest first.
func (c *Compiled) SuperfluousRevisions(all []Revision) []Revision {
	limit := DefaultRevisionLimit
	if wanted := c.facts.Skyhook.Spec.RevisionHistoryLimit; wanted != nil {
		limit = int(*wanted)
	}
	if len(all) <= limit {
		return nil
	}
	current, onNodes := c.facts.Key, map[string]bool{}
	for i := range c.targets {
		onNodes[c.targets[i].revision] = true
	}
	var out []Revision
	earlier := 0
	for _, r := range all {
		if r.Key == current {
			continue
		}
		if earlier++; earlier > limit && !onNodes[r.Key] {
			out = append(out, r)
		}
	}
	return out
}

// revisions reports how many nodes have each revision. Before they are known, what was reported stays.
func (rep reporter) revisions(nodes []nodeStatus) []v1alpha1.Revision {
	if rep.facts.Revisions == nil {
		return rep.stored.Revisions
	}
	current, counts := rep.facts.Key, map[string]int{}
	for _, n := range nodes {
		key := current // of a complete node, also when its definition was edited in a way that runs nothing
		if n.status != v1alpha1.StatusComplete {
			key = n.target.revision
		}
		counts[key]++
	}
	var out []v1alpha1.Revision
	for _, r := range rep.facts.Revisions[:min(len(rep.facts.Revisions), 200)] {
		out = append(out, v1alpha1.Revision{Revision: r.Number, Name: r.Name, ChangeCause: node.Truncate(r.Cause, 1024), Nodes: counts[r.Key]})
	}
	return out
}

// HasSamePackages reports whether two sets of packages are the same revision.
func HasSamePackages(a, b map[string]v1alpha1.Package) bool {
	return keyOfPackages(a) == keyOfPackages(b)
}

func keyOfPackages(packages map[string]v1alpha1.Package) string {
	defs := make(map[string]*Definition, len(packages))
	for name, p := range packages {
		defs[name] = newDefinition(name, p)
	}
	return keyOfDefinitions(defs)
}

// keyOfDefinitions returns the key of a set of packages.
func keyOfDefinitions(defs map[string]*Definition) string {
	hashes := make(map[string]string, len(defs))
	for name, d := range defs {
		hashes[name] = d.Hash
	}
	return revisionKey(hashes)
}

// WithoutUninstallRequests returns packages as a revision keeps them: going back must not uninstall again.
func WithoutUninstallRequests(packages map[string]v1alpha1.Package) map[string]v1alpha1.Package {
	out := make(map[string]v1alpha1.Package, len(packages))
	for name, p := range packages {
		if p.Uninstall != nil && p.Uninstall.Apply {
			p.Uninstall = &v1alpha1.Uninstall{Enabled: p.Uninstall.Enabled}
		}
		out[name] = p
	}
	return out
}

// RepositoryOf returns an image without its tag and digest.
func RepositoryOf(image string) string { return repository(image) }
