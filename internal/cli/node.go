// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

func newNodeCommand(f *factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Show and control Skyhooks on nodes",
		Long: "Show and control Skyhooks on nodes.\n\n" +
			"NODE is a name, or a regular expression for the whole name when it contains one of .*+?^${}[]|()\\",
		RunE: runGroup,
	}
	cmd.AddCommand(newNodeListCommand(f), newNodeStatusCommand(f), newNodeDescribeCommand(f), newNodeIgnoreCommand(f), newNodeUnignoreCommand(f), newNodeResetCommand(f),
		newNodeRebootCommand(f), newNodeDrainCommand(f), newNodeRunCommand(f))
	return cmd
}

// nodeSummary is the state of one Skyhook on one node.
type nodeSummary struct {
	NodeName         string         `json:"nodeName"`
	SkyhookName      string         `json:"skyhookName"`
	Status           string         `json:"status"`
	PackagesComplete int            `json:"packagesComplete"`
	PackagesTotal    int            `json:"packagesTotal"`
	Packages         []packageState `json:"packages"`
	Problem          string         `json:"problem,omitempty"` // why its state cannot be read
}

// packageState is the state of one package on one node.
type packageState struct {
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Stage    v1alpha1.Stage `json:"stage"`
	State    v1alpha1.State `json:"state"`
	Restarts int32          `json:"restarts"`
	Image    string         `json:"image"`
}

func (s *nodeSummary) countRestarts() int32 {
	var sum int32
	for _, p := range s.Packages {
		sum += p.Restarts
	}
	return sum
}

// formatProgress returns complete packages of all packages, such as 1/3.
func (s *nodeSummary) formatProgress() string {
	return fmt.Sprintf("%d/%d", s.PackagesComplete, s.PackagesTotal)
}

// summarizeNode summarizes a Skyhook on a node. It counts the packages in the spec, or those on the node when s is nil.
func summarizeNode(n *node.Node, name string, s *v1alpha1.Skyhook) nodeSummary {
	out := nodeSummary{NodeName: n.Name, SkyhookName: name, Packages: []packageState{}}
	installed, err := n.Installed(name)
	if err != nil {
		out.Status, out.Problem = string(v1alpha1.StatusUnknown), err.Error()
		return out
	}
	for _, i := range installed {
		out.Packages = append(out.Packages, packageState{
			Name: i.Name, Version: i.Version, Stage: i.Stage, State: i.State, Restarts: i.Restarts, Image: i.Image,
		})
		if i.Finished && (s == nil || isInSpec(s, i)) {
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

// statusKept is shown for packages that stayed on a node when their Skyhook was deleted.
const statusKept = "kept"

// isInSpec reports whether the spec has the package in this version.
func isInSpec(s *v1alpha1.Skyhook, i node.Installed) bool {
	p, ok := s.Spec.Packages[i.Name]
	return ok && pack.CompareVersions(string(p.Version), i.Version) == 0
}

// deriveStatus is for nodes to which the operator has written no status.
func (s *nodeSummary) deriveStatus() string {
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

// countStatuses counts nodes by status, the most urgent status first.
func countStatuses(summaries []nodeSummary) string {
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
