// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import "slices"

// ModeDrift has no steps of its own: it runs the checks of a package again, compares what was delivered, and changes nothing.
const ModeDrift Mode = "drift"

// Variables of a check for drift.
const (
	// EnvReadOnlyRoot is where the host's / is mounted read-only, for comparing files. Without it they are read below the root mount.
	EnvReadOnlyRoot = "SKYHOOK_READ_ONLY_ROOT"
	// EnvDriftChecks are the check modes that run, separated by commas. Those without steps are left out.
	EnvDriftChecks = "SKYHOOK_DRIFT_CHECKS"
	// EnvDrift is true for the scripts of such a check.
	EnvDrift = "SKYHOOK_DRIFT"
	// EnvMessageLimit is the most bytes that the termination message may have, if fewer than MaxMessage.
	EnvMessageLimit = "SKYHOOK_MESSAGE_LIMIT"
)

// DriftDiffPrefix begins the lines of the output that show how a delivered file differs.
const DriftDiffPrefix = "drift| "

// Drift is what was found when it was looked whether a package is still as it was left.
type Drift struct {
	Checks       []Mode       `json:"checks,omitempty"`       // check modes that failed
	Files        []DriftFile  `json:"files,omitempty"`        // delivered files that differ, the first ones
	Total        int          `json:"total,omitempty"`        // how many differ
	Wrote        []DriftWrite `json:"wrote,omitempty"`        // delivered files that a check changed
	NotCheckable string       `json:"notCheckable,omitempty"` // why nothing is known about the package
	Ran          []Mode       `json:"ran,omitempty"`          // check modes that have run
}

// DriftFile is a delivered file that differs.
type DriftFile struct {
	Path   string `json:"path"`             // on the host
	What   string `json:"what"`             // DriftChanged, …
	Config bool   `json:"config,omitempty"` // a file of the configMap; others come with apply
}

// DriftWrite is a delivered file that changed while the checks ran.
type DriftWrite struct {
	Path  string `json:"path"`            // on the host
	Check Mode   `json:"check,omitempty"` // the check mode after which it had changed last; empty if that is not known
	Step  string `json:"step,omitempty"`  // and its step
}

// How files differ.
const (
	DriftChanged = "changed"
	DriftMissing = "missing"
	DriftMode    = "mode"
	DriftKind    = "kind"
)

// IsDrifted reports whether the package is not as it was left.
func (d *Drift) IsDrifted() bool { return len(d.Checks) > 0 || d.Total > 0 || len(d.Wrote) > 0 }

// Most of what a message has of a check for drift.
const (
	mostDriftFiles = 5
	mostDriftWrote = 3
	longestPath    = 160
	longestStep    = 60
)

// clip returns what a message has of it.
func (d *Drift) clip() *Drift {
	if d == nil {
		return nil
	}
	out := &Drift{Checks: clipModes(d.Checks), Total: d.Total, Ran: clipModes(d.Ran), NotCheckable: clipToJSON(d.NotCheckable, 400)}
	for _, f := range d.Files[:min(len(d.Files), mostDriftFiles)] {
		out.Files = append(out.Files, DriftFile{Path: clipToJSON(f.Path, longestPath), What: clipToJSON(f.What, 16), Config: f.Config})
	}
	for _, w := range d.Wrote[:min(len(d.Wrote), mostDriftWrote)] {
		clipped := DriftWrite{Path: clipToJSON(w.Path, longestPath), Step: clipToJSON(w.Step, longestStep)}
		if w.Check.IsCheck() {
			clipped.Check = w.Check
		}
		out.Wrote = append(out.Wrote, clipped)
	}
	return out
}

// clipModes returns the check modes that exist.
func clipModes(of []Mode) (out []Mode) {
	for _, m := range modes {
		if m.IsCheck() && slices.Contains(of, m) {
			out = append(out, m)
		}
	}
	return out
}

// shorten drops the least important part that there is, and reports whether there was one. What was found stays known.
func (w *wireMessage) shorten() bool {
	switch d := w.Drift; {
	case d != nil && len(d.Files) > 1:
		d.Files = d.Files[:len(d.Files)-1]
	case d != nil && len(d.Wrote) > 1:
		d.Wrote = d.Wrote[:len(d.Wrote)-1]
	case d != nil && len(d.Wrote) > 0 && len(d.Wrote[0].Path) > 60:
		d.Wrote[0].Path = clipToJSON(d.Wrote[0].Path, len(d.Wrote[0].Path)-20)
	case w.Agent != "":
		w.Agent = ""
	case w.Duration != "":
		w.Duration = ""
	case len(w.Reason) > 100:
		w.Reason = clipToJSON(w.Reason, len(w.Reason)-50)
	case d != nil && len(d.Ran) > 0:
		d.Ran = nil
	case d != nil && len(d.NotCheckable) > 60:
		d.NotCheckable = clipToJSON(d.NotCheckable, len(d.NotCheckable)-40)
	case d != nil && len(d.Files) > 0 && len(d.Files[0].Path) > 60:
		d.Files[0].Path = clipToJSON(d.Files[0].Path, len(d.Files[0].Path)-20)
	default:
		return w.shortenPreflight()
	}
	return true
}
