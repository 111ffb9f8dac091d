// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/overlay"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Preview is what a mode would do on this host.
type Preview struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Plan
	Overlay  []overlay.Change `json:"overlay"`
	Problems pack.Problems    `json:"problems"`
}

// Preview returns what a run would do, and changes nothing. It reads the package on the host.
func (a *Agent) Preview() (Preview, error) {
	p := Preview{Overlay: []overlay.Change{}, Problems: pack.Problems{}}
	copied, err := a.Host.Dir(a.CopyDir)
	if err != nil {
		return p, err
	}
	defer copied.Close()
	config, problems := pack.Load(copied.FS(), a.Mode, pack.Want{Version: a.Resource.Version})
	p.Version, p.Problems = config.Version, append(p.Problems, problems...)
	if problems.Failed() {
		return p, problems.Err()
	}
	p.Package = cmp.Or(a.Resource.Package, config.Name)
	rec, err := record.ReadPackage(a.Host, a.StateDir, p.Package)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	situation, err := a.describeSituation(a.Mode, copied, config, rec)
	if err != nil {
		return p, err
	}
	p.Plan = Decide(situation)
	if a.Mode.IsReadOnly() {
		return p, nil
	}
	from := copied
	if a.Mode.Uninstalls() {
		from = nil
	}
	changes, _, err := overlay.Plan(a.Host, from, rec.Overlay)
	p.Overlay = append(p.Overlay, changes...)
	return p, err
}

// Text is the preview for people.
func (p Preview) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s %s\n", p.Mode, p.Package, p.Version)
	if p.Mode.Upgrades() {
		fmt.Fprintf(&b, "from %s to %s\n", p.Previous, p.Current)
	}
	for _, c := range p.Overlay {
		fmt.Fprintf(&b, "  overlay  %-8s %s%s\n", c.Verb, c.Path, formatReason(c.Why))
	}
	for _, a := range p.Actions {
		act := "run"
		if !a.Run {
			act = "skip"
		}
		if len(a.Missing) > 0 {
			act = "fail"
			a.Why = "not set: " + strings.Join(a.Missing, ", ")
		}
		fmt.Fprintf(&b, "  step     %-8s %s%s\n", act, strings.Join(append([]string{a.Path}, a.Arguments...), " "), formatReason(a.Why))
	}
	if len(p.Actions) == 0 {
		b.WriteString("  no steps\n")
	}
	for _, problem := range p.Problems {
		fmt.Fprintf(&b, "  %s\n", problem)
	}
	return b.String()
}

func formatReason(why string) string {
	if why == "" {
		return ""
	}
	return "  (" + why + ")"
}

// Status is the state recorded on a host.
type Status struct {
	StateDir   string             `json:"stateDir"`
	Packages   []record.Package   `json:"packages"`
	Interrupts []record.Interrupt `json:"interrupts"`
	// Unreadable are records that cannot be shown.
	Unreadable []string `json:"unreadable,omitempty"`
}

// ReadStatus reads the records below a state root.
func ReadStatus(root *host.Root, stateDir string) (Status, error) {
	s := Status{StateDir: stateDir, Packages: []record.Package{}, Interrupts: []record.Interrupt{}}
	names, err := record.ListPackages(root, stateDir)
	if err != nil {
		return s, err
	}
	for _, name := range names {
		p, err := record.ReadPackage(root, stateDir, name)
		if err != nil {
			s.Unreadable = append(s.Unreadable, err.Error())
			continue
		}
		s.Packages = append(s.Packages, p)
	}
	interrupts, err := record.ReadInterrupts(root, stateDir)
	if err != nil {
		s.Unreadable = append(s.Unreadable, err.Error())
	}
	s.Interrupts = append(s.Interrupts, interrupts...)
	return s, nil
}

// StateDirs lists the state roots at a directory of the host: the directory itself, or those of the Skyhooks below it.
func StateDirs(root *host.Root, stateDir string) (dirs []string, err error) {
	isState := func(at string) bool {
		_, noRecords := root.Stat(path.Join(at, "records"))
		_, noInterrupts := root.Stat(path.Join(at, "interrupts", "records"))
		return noRecords == nil || noInterrupts == nil
	}
	if isState(stateDir) {
		dirs = append(dirs, path.Clean(stateDir))
	}
	err = root.EachEntry(stateDir, func(_ *host.Dir, e fs.DirEntry) error {
		if at := path.Join(stateDir, e.Name()); e.IsDir() && e.Name() != "interrupts" && isState(at) {
			dirs = append(dirs, at)
		}
		return nil
	})
	return dirs, err
}

// Text is the status for people.
func (s Status) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.StateDir)
	for _, p := range s.Packages {
		installed := cmp.Or(p.Installed.Version, "not installed yet")
		if p.Installed.Release != "" && p.Installed.Release != p.Installed.Version && installed != pack.Uninstalled {
			installed += " (as " + p.Installed.Release + ")"
		}
		if !p.Installed.At.IsZero() {
			installed += " since " + p.Installed.At.UTC().Format("2006-01-02T15:04:05Z")
		}
		fmt.Fprintf(&b, "  package %s: %s\n", p.Name, installed)
		for _, step := range p.Steps {
			fmt.Fprintf(&b, "    done: %s %s\n", step.Mode, step.Name)
		}
		if n := len(p.Overlay.Files); n > 0 {
			fmt.Fprintf(&b, "    files laid over the host's: %d\n", n)
		}
		if f := p.Failure; f != nil {
			fmt.Fprintf(&b, "    last failure: %s %s: %s\n", f.Mode, f.Outcome, f.Detail)
		}
	}
	for _, i := range s.Interrupts {
		fmt.Fprintf(&b, "  interrupt %s: %s %s", i.ID, i.Type, i.State)
		if i.From != "" && i.To != "" {
			fmt.Fprintf(&b, ", boot %s to %s", i.From, i.To)
		}
		b.WriteByte('\n')
	}
	for _, u := range s.Unreadable {
		fmt.Fprintf(&b, "  unreadable: %s\n", u)
	}
	return b.String()
}
