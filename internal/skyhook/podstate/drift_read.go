// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// ReadDriftContainer returns what a container found; nothing if the package is as it was left.
func ReadDriftContainer(p *corev1.Pod, name string) node.PackageDrift {
	notCheckable := func(format string, args ...any) node.PackageDrift {
		return node.PackageDrift{NotCheckable: true, Text: node.Truncate(strings.TrimSpace(fmt.Sprintf(format, args...)), MaxDriftText)}
	}
	at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if at < 0 {
		return notCheckable("the check did not start: %s %s", p.Status.Reason, p.Status.Message)
	}
	state := p.Status.ContainerStatuses[at].State
	switch {
	case state.Terminated == nil && state.Waiting != nil:
		return notCheckable("the check did not start: %s %s", state.Waiting.Reason, state.Waiting.Message)
	case state.Terminated == nil:
		return notCheckable("the check did not end in time")
	}
	m, isOurs := pack.DecodeMessage(state.Terminated.Message)
	switch {
	case isOurs && m.Drift != nil && m.Drift.NotCheckable != "":
		return notCheckable("%s", m.Drift.NotCheckable)
	case isOurs && m.Drift != nil && m.Drift.IsDrifted():
		return describeDrift(m)
	case isOurs && m.Drift != nil && m.Outcome == pack.Succeeded:
		return node.PackageDrift{}
	case !isOurs && state.Terminated.ExitCode == 0:
		return notCheckable("the agent of the package is of a version that cannot check for drift")
	}
	return notCheckable("%s", failureText(name, state.Terminated))
}

// maxDriftText is the most bytes of what was found about a package, and mostDriftFiles the most files that are recorded.
const (
	MaxDriftText   = 300
	mostDriftFiles = 5
)

// describeDrift returns what a package's container found.
func describeDrift(m pack.Message) node.PackageDrift {
	d, out := m.Drift, node.PackageDrift{}
	var parts, files []string
	for _, mode := range d.Checks {
		out.Checks = append(out.Checks, string(mode))
	}
	for _, f := range d.Files[:min(len(d.Files), mostDriftFiles)] {
		out.Files = append(out.Files, f.Path)
		files = append(files, f.Path+" ("+f.What+")")
	}
	if len(files) > 0 {
		text := "delivered files differ: " + strings.Join(files, ", ")
		if more := d.Total - len(files); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, text)
	}
	if len(d.Checks) > 0 {
		text := strings.Join(out.Checks, " and ") + " failed"
		if m.Reason != "" {
			text += ": " + strings.TrimSuffix(m.Reason, ".")
		}
		if n := len(m.Lines); n > 0 {
			text += rollout.LastOutput + strings.Join(m.Lines[max(0, n-3):], " | ")
		}
		parts = append(parts, text)
	}
	if len(d.Wrote) > 0 {
		parts = append(parts, describeWrites(d.Wrote))
	}
	out.Repair = string(repairStage(d))
	out.Text = node.Truncate(strings.Join(strings.Fields(strings.Join(parts, "; ")), " "), MaxDriftText)
	return out
}

// describeWrites names the checks that changed delivered files.
func describeWrites(wrote []pack.DriftWrite) string {
	var parts []string
	for _, w := range wrote {
		who := "one of its own checks"
		if w.Check != "" {
			who = "step " + w.Step + " of its own " + string(w.Check)
		}
		parts = append(parts, who+" changed "+w.Path)
	}
	return strings.Join(parts, ", ")
}

// repairStage returns the stage from which a package runs again so that it is as it was left; empty if its own checks changed it.
func repairStage(d *pack.Drift) v1alpha1.Stage {
	isOfApply := slices.Contains(d.Checks, pack.ModeApplyCheck) || slices.ContainsFunc(d.Files, func(f pack.DriftFile) bool { return !f.Config })
	switch {
	case isOfApply:
		return v1alpha1.StageApply
	case slices.Contains(d.Checks, pack.ModeConfigCheck), len(d.Files) > 0:
		return v1alpha1.StageConfig
	case slices.Contains(d.Checks, pack.ModePostInterruptCheck):
		return v1alpha1.StagePostInterrupt
	}
	return ""
}
