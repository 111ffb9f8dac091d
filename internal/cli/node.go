// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/output"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

func (a *factory) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "See and steer what Skyhooks do on nodes",
		Long: "See and steer what Skyhooks do on nodes.\n\n" +
			"A node is given by its name, or by a regular expression for the whole name when it contains one of .*+?^${}[]|()\\",
		RunE: helpOnly,
	}
	cmd.AddCommand(a.nodeListCommand(), a.nodeStatusCommand(), a.nodeIgnoreCommand(), a.nodeUnignoreCommand(), a.nodeResetCommand(),
		a.nodeRebootCommand(), a.nodeDrainCommand(), a.nodeRunCommand())
	return cmd
}

// nodeSummary is how one Skyhook stands on one node.
type nodeSummary struct {
	NodeName         string         `json:"nodeName"`
	SkyhookName      string         `json:"skyhookName"`
	Status           string         `json:"status"`
	PackagesComplete int            `json:"packagesComplete"`
	PackagesTotal    int            `json:"packagesTotal"`
	Packages         []packageState `json:"packages"`
	Problem          string         `json:"problem,omitempty"` // why its state cannot be read
}

// packageState is one package of it.
type packageState struct {
	Name     string         `json:"name"`
	Version  string         `json:"version"`
	Stage    v1alpha1.Stage `json:"stage"`
	State    v1alpha1.State `json:"state"`
	Restarts int32          `json:"restarts"`
	Image    string         `json:"image"`
}

func (s *nodeSummary) restarts() int32 {
	var sum int32
	for _, p := range s.Packages {
		sum += p.Restarts
	}
	return sum
}

// share is how many packages are complete.
func (s *nodeSummary) share() string {
	return fmt.Sprintf("%d/%d", s.PackagesComplete, s.PackagesTotal)
}

// summary says how a Skyhook stands on a node. With the Skyhook itself it counts the packages that are wanted, otherwise
// those that are there.
func summary(n *skyhook.Node, name string, s *v1alpha1.Skyhook) nodeSummary {
	out := nodeSummary{NodeName: n.Name, SkyhookName: name, Packages: []packageState{}}
	installed, err := n.Installed(name)
	if err != nil {
		out.Status, out.Problem = string(v1alpha1.StatusUnknown), err.Error()
		return out
	}
	erroring := false
	for _, i := range installed {
		out.Packages = append(out.Packages, packageState{
			Name: i.Name, Version: i.Version, Stage: i.Stage, State: i.State, Restarts: i.Restarts, Image: i.Image,
		})
		erroring = erroring || i.State == v1alpha1.StateErroring
		if i.Finished && (s == nil || wanted(s, i)) {
			out.PackagesComplete++
		}
	}
	out.PackagesTotal = len(installed)
	if s != nil {
		out.PackagesTotal = len(s.Spec.Packages)
	}
	out.Status = n.Annotations[v1alpha1.PrefixStatus+name]
	if out.Status == "" {
		out.Status = derived(&out, erroring)
	}
	return out
}

// wanted says that a package is in the Skyhook, in this version.
func wanted(s *v1alpha1.Skyhook, i skyhook.Installed) bool {
	p, ok := s.Spec.Packages[i.Name]
	return ok && pack.CompareVersions(string(p.Version), i.Version) == 0
}

// derived is the status of a node that the operator has not said.
func derived(s *nodeSummary, erroring bool) string {
	switch {
	case erroring:
		return string(v1alpha1.StatusErroring)
	case s.PackagesTotal > 0 && s.PackagesComplete == s.PackagesTotal:
		return string(v1alpha1.StatusComplete)
	case len(s.Packages) > 0:
		return string(v1alpha1.StatusInProgress)
	}
	return string(v1alpha1.StatusUnknown)
}

// tally counts statuses, the most urgent first.
func tally(all []nodeSummary) string {
	counts := map[string]int{}
	for _, s := range all {
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

// ofSkyhook are the Skyhooks of a node to show: all, or the one asked for.
func ofSkyhook(n *skyhook.Node, only string) []string {
	all := n.Skyhooks()
	if only == "" {
		return all
	}
	return slices.DeleteFunc(all, func(name string) bool { return name != only })
}
