// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
)

// Defaults of spec.drift, on how many nodes of a Skyhook checks and preflights run at the same time, and how long a check of one package and the pod of a node may take.
const (
	defaultDriftInterval = 6 * time.Hour
	MaxChecks            = 10
	DriftTimeout         = 10 * time.Minute
	DriftPodTimeout      = 12 * time.Minute
)

// DriftInterval returns how much time passes between two checks of a node.
func DriftInterval(s *v1alpha1.Skyhook) time.Duration {
	if every := s.Spec.Drift.Every; every != nil {
		return every.Duration
	}
	return defaultDriftInterval
}

// DriftOf returns what the last check found on a node, as far as it still counts: for packages that have not changed since, on a node
// on which no work has been done since. A repair that is requested has not been done.
func (f *Facts) DriftOf(t *Target) node.DriftRecord {
	rec := t.On.Drift.Effective(t.Node.UID, string(f.Skyhook.UID), f.Now)
	if len(rec.Packages) == 0 {
		return rec
	}
	packages := map[string]node.PackageDrift{}
	for key, found := range rec.Packages {
		p := t.Record.Packages[key]
		isInstalled := !t.Record.Admitted && p != nil && p.Goal == "" && p.Hash == found.Hash
		if isInstalled || found.Repair != "" {
			packages[key] = found
		}
	}
	if t.Record.FinishedAt != nil && t.Record.FinishedAt.After(rec.CheckedAt) {
		packages = nil
	}
	if rec.Packages = packages; len(rec.Drifted()) == 0 {
		rec.Pod = ""
	}
	return rec
}

// DriftPodName returns the name of the pod of the next check.
func (f *Facts) DriftPodName(t *Target) string {
	last := t.On.Drift.Effective(t.Node.UID, string(f.Skyhook.UID), f.Now).CheckedAt
	return SafeName(MaxPodName, f.Skyhook.Name, "drift", t.Node.Name, last.UTC().Format(time.RFC3339))
}

// DriftContainer returns the name of the container that checks a package, given as name|version.
func DriftContainer(key string) string {
	name, version, _ := CutKey(key)
	return SafeName(63, PackageName(name), "drift", version)
}

// CheckedPackages returns the packages that are finished on a node, with their definitions; nil for one that is not known any more.
func (f *Facts) CheckedPackages(rec *node.SkyhookRecord) map[string]*Definition {
	out := map[string]*Definition{}
	for key, p := range rec.Packages {
		if p.Goal == "" && !p.Kept {
			out[key] = f.Definition(p.Hash)
		}
	}
	return out
}

// HasPackageToCheck reports whether a node has a finished package that can be checked for drift.
func (f *Facts) HasPackageToCheck(rec *node.SkyhookRecord) bool {
	for _, p := range rec.Packages {
		if p.Goal == "" && !p.Kept && f.Definition(p.Hash) != nil {
			return true
		}
	}
	return false
}

// ReadDrift returns what a pod found that checked a node: the packages that drifted or could not be checked.
func (f *Facts) ReadDrift(t *Target, p *corev1.Pod) map[string]node.PackageDrift {
	out := map[string]node.PackageDrift{}
	for key, def := range f.CheckedPackages(&t.Record) {
		found := node.PackageDrift{NotCheckable: true, Text: "its definition is not known any more"}
		switch {
		case def == nil:
		case f.IsRightByAnswer(t, key):
			found = podstate.ReadDriftAnswer(p, PreflightContainer(key))
		default:
			found = podstate.ReadDriftContainer(p, DriftContainer(key))
		}
		if found.Text == "" {
			continue
		}
		found.Hash, found.Since = t.Record.Packages[key].Hash, node.WholeSeconds(f.Now)
		if before, isKnown := f.DriftOf(t).Packages[key]; isKnown && before.NotCheckable == found.NotCheckable {
			found.Since = before.Since
		}
		out[key] = found
	}
	return out
}
