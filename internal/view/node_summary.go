// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// NodeSummary is the state of one Skyhook on one node.
type NodeSummary struct {
	NodeName         string         `json:"nodeName"`
	SkyhookName      string         `json:"skyhookName"`
	Status           string         `json:"status"`
	PackagesComplete int            `json:"packagesComplete"`
	PackagesTotal    int            `json:"packagesTotal"`
	Packages         []PackageState `json:"packages"`
	Problem          string         `json:"problem,omitempty"` // why its state cannot be read
}

// PackageState is the state of one package on one node.
type PackageState struct {
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Stage    v1alpha1.Stage `json:"stage"`
	State    v1alpha1.State `json:"state"`
	Restarts int32          `json:"restarts"`
	Image    string         `json:"image"`
}

// CountRestarts counts the failed attempts on a node.
func (s *NodeSummary) CountRestarts() int32 {
	var sum int32
	for _, p := range s.Packages {
		sum += p.Restarts
	}
	return sum
}

// FormatProgress returns complete packages of all packages, such as 1/3.
func (s *NodeSummary) FormatProgress() string {
	return fmt.Sprintf("%d/%d", s.PackagesComplete, s.PackagesTotal)
}

// SummarizeNode summarizes a Skyhook on a node. It counts the packages in the spec, or those on the node when s is nil.
func SummarizeNode(n *node.Node, name string, s *v1alpha1.Skyhook) NodeSummary {
	out := NodeSummary{NodeName: n.Name, SkyhookName: name, Packages: []PackageState{}}
	installed, err := n.Installed(name)
	if err != nil {
		out.Status, out.Problem = string(v1alpha1.StatusUnknown), err.Error()
		return out
	}
	for _, i := range installed {
		out.Packages = append(out.Packages, PackageState{
			Name: i.Name, Version: i.Version, Stage: i.Stage, State: i.State, Restarts: i.Restarts, Image: i.Image,
		})
		if i.Finished && (s == nil || IsInSpec(s, i)) {
			out.PackagesComplete++
		}
	}
	out.PackagesTotal = len(installed)
	if s != nil {
		out.PackagesTotal = len(s.Spec.Packages)
	}
	out.Status = n.Annotations[v1alpha1.PrefixStatus+name]
	switch {
	case out.Status != "":
	case n.Skyhook(name).IsKept():
		out.Status = statusKept
	default:
		out.Status = out.deriveStatus()
	}
	return out
}

// IsInSpec reports whether the spec has the package in this version.
func IsInSpec(s *v1alpha1.Skyhook, i node.Installed) bool {
	p, ok := s.Spec.Packages[i.Name]
	return ok && pack.CompareVersions(string(p.Version), i.Version) == 0
}

// deriveStatus is for nodes to which the operator has written no status.
func (s *NodeSummary) deriveStatus() string {
	for _, p := range s.Packages {
		if p.State == v1alpha1.StateErroring {
			return string(v1alpha1.StatusErroring)
		}
	}
	switch {
	case s.PackagesTotal > 0 && s.PackagesComplete == s.PackagesTotal:
		return string(v1alpha1.StatusComplete)
	case len(s.Packages) > 0:
		return string(v1alpha1.StatusInProgress)
	}
	return string(v1alpha1.StatusUnknown)
}

// CountStatuses counts nodes by status, the most urgent status first.
func CountStatuses(summaries []NodeSummary) string {
	counts := map[string]int{}
	for _, s := range summaries {
		counts[s.Status]++
	}
	var parts []string
	for _, status := range []v1alpha1.Status{
		v1alpha1.StatusErroring, v1alpha1.StatusBlocked, v1alpha1.StatusUnknown, v1alpha1.StatusInProgress,
		v1alpha1.StatusPaused, v1alpha1.StatusDisabled, v1alpha1.StatusWaiting, v1alpha1.StatusComplete,
	} {
		if n := counts[string(status)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	if len(parts) == 0 {
		return "no nodes"
	}
	return output.List(parts, len(parts))
}

// statusKept is shown for packages that stayed on a node when their Skyhook was deleted.
const statusKept = "kept"
