// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/node"
)

// DriftReport is what the command prints.
type DriftReport struct {
	Skyhooks []driftSummary   `json:"skyhooks"`
	Packages []DriftedPackage `json:"packages"` // that drifted, or cannot be checked

	Now time.Time `json:"-"` // of the data
}

// driftSummary sums up the checks of one Skyhook.
type driftSummary struct {
	Name      string `json:"name"`
	Nodes     int    `json:"nodes"`   // that it selects
	Checked   int    `json:"checked"` // at least once since packages were installed there
	Drifted   int    `json:"drifted"`
	Unknown   int    `json:"unknown"`             // nodes with packages that cannot be checked
	LastCheck string `json:"lastCheck,omitempty"` // when the last check of any node ended
}

// DriftedPackage is a package on a node that is not as it was left, or cannot be checked.
type DriftedPackage struct {
	Node    string   `json:"node"`
	Skyhook string   `json:"skyhook"`
	Package string   `json:"package"`
	Version string   `json:"version"`
	Result  string   `json:"result"` // Drifted, Repairing or Unknown
	Since   string   `json:"since"`
	Text    string   `json:"text"`
	Checks  []string `json:"checks,omitempty"`
	Files   []string `json:"files,omitempty"`
	Diff    []string `json:"diff,omitempty"`

	Key, Pod string `json:"-"`
}

// NewDriftReport collects what is known of all Skyhooks, of one, or of those on one node.
func (v *Cluster) NewDriftReport(name string) (*DriftReport, error) {
	report := &DriftReport{Skyhooks: []driftSummary{}, Packages: []DriftedPackage{}, Now: v.Snapshot.Now}
	isNode := v.Objects.Node(name) != nil
	isKnown := name == "" || isNode
	for _, s := range v.Objects.Skyhooks {
		isAsked := name == "" || isNode || s.Name == name
		isKnown = isKnown || s.Name == name
		if !isAsked || s.Spec.Drift == nil {
			continue
		}
		summary := driftSummary{Name: s.Name}
		compiled := v.Compiled.Skyhook(s)
		for _, t := range compiled.Rollout.Targets {
			if t.Leaving || isNode && t.Node != name {
				continue
			}
			report.addNode(&summary, t.Node, compiled.DriftOf(t.Node), !t.Visit.FinishedAt.IsZero() && t.Visit.FinishedAt.After(compiled.DriftOf(t.Node).CheckedAt))
		}
		if summary.Nodes > 0 || !isNode {
			report.Skyhooks = append(report.Skyhooks, summary)
		}
	}
	switch {
	case !isKnown:
		return nil, fmt.Errorf("there is no node and no Skyhook %q: %s", name, v.ListNames())
	case len(report.Skyhooks) == 0:
		return nil, fmt.Errorf("nobody checks for drift: set spec.drift of the Skyhook, such as {every: 6h}")
	}
	return report, nil
}

// addNode adds what is known of one node. A check before the last work there tells nothing.
func (r *DriftReport) addNode(summary *driftSummary, name string, rec node.DriftRecord, isOutdated bool) {
	summary.Nodes++
	if !rec.CheckedAt.IsZero() && !isOutdated {
		summary.Checked++
		summary.LastCheck = max(summary.LastCheck, rec.CheckedAt.UTC().Format(time.RFC3339))
	}
	if len(rec.Drifted()) > 0 {
		summary.Drifted++
	} else if len(rec.Packages) > 0 {
		summary.Unknown++
	}
	for _, key := range slices.Sorted(maps.Keys(rec.Packages)) {
		found := rec.Packages[key]
		pkg, version, _ := strings.Cut(key, "|")
		p := DriftedPackage{
			Node: name, Skyhook: summary.Name, Package: pkg, Version: version, Result: driftFound, Since: found.Since.UTC().Format(time.RFC3339),
			Text: found.Text, Checks: found.Checks, Files: found.Files, Key: key, Pod: rec.Pod,
		}
		switch {
		case found.NotCheckable:
			p.Result = DriftUnknown
		case found.Repair != "":
			p.Result = driftRepairing
		}
		r.Packages = append(r.Packages, p)
	}
}

// The results of a package that is not as it was left, or cannot be checked.
const (
	driftFound     = "Drifted"
	driftRepairing = "Repairing"
	DriftUnknown   = "Unknown"
)
