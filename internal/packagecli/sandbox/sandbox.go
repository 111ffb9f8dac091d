// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package sandbox takes a package through its whole life on a host that is thrown away afterwards, and compares the host
// before and after every stage.
//
// The host is a folder: a copy of a root file system, or a small one that looks like a distribution. The steps run in it
// by the real agent, in namespaces of their own, with kernel settings that are files, a systemctl that only remembers,
// and a boot that is played. So nothing of the machine changes, whatever a step does.
//
// A trial fails when a step or check does, when doing the same again changes anything, when going back to an earlier
// config does not lead back to the earlier host, and when the uninstall leaves anything.
package sandbox

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// SpecFile is where a package keeps what a trial gives it.
const SpecFile = "testdata/test.yaml"

// Likes are the distributions that can be imitated.
var Likes = []string{"debian", "ubuntu"}

// A Spec is what a trial gives the package.
type Spec struct {
	Config    map[string]string  `json:"config,omitempty"`    // the configMap of the first install
	Change    map[string]*string `json:"change,omitempty"`    // what changes in it afterwards; nil removes a key
	Env       map[string]string  `json:"env,omitempty"`       // of the package
	Services  []string           `json:"services,omitempty"`  // that run on the host besides the usual ones
	Interrupt *Interrupt         `json:"interrupt,omitempty"` // tried after each config
	Host      map[string]string  `json:"host,omitempty"`      // files on the host before
	Ignore    []string           `json:"ignore,omitempty"`    // paths in which differences do not count
}

// Interrupt is what a Skyhook says of a package.
type Interrupt struct {
	Type     string   `json:"type"`
	Services []string `json:"services,omitempty"`
}

// ReadSpec reads a Spec. Keys nobody knows are errors: a misspelt one would test nothing.
func ReadSpec(raw []byte) (Spec, error) {
	var s Spec
	if err := yaml.UnmarshalStrict(raw, &s); err != nil {
		return s, fmt.Errorf("it has config, change, env, services, interrupt, host and ignore: %w", err)
	}
	return s, s.check()
}

func (s Spec) check() error {
	if s.Interrupt != nil {
		if _, err := s.Interrupt.encoded(); err != nil {
			return err
		}
	}
	for _, pattern := range s.Ignore {
		if !path.IsAbs(pattern) {
			return fmt.Errorf("ignore: %q must be an absolute path; * stands for a part of a name, /** for everything below", pattern)
		}
		if _, err := path.Match(strings.TrimSuffix(pattern, "/**"), ""); err != nil {
			return fmt.Errorf("ignore: %q: %w", pattern, err)
		}
	}
	for file := range s.Host {
		if !path.IsAbs(file) || path.Clean(file) != file {
			return fmt.Errorf("host: %q must be an absolute path in its shortest form", file)
		}
	}
	return nil
}

// encoded is the interrupt as the agent takes it.
func (i Interrupt) encoded() (string, error) {
	kind, err := pack.ParseInterruptType(i.Type)
	if err != nil || kind == pack.InterruptScript {
		return "", fmt.Errorf("interrupt: type %q is not one of reboot, service, restartAllServices and noop", i.Type)
	}
	for _, name := range i.Services {
		if reason := pack.BadService(name); reason != "" {
			return "", fmt.Errorf("interrupt: services: %s", reason)
		}
	}
	return pack.Interrupt{Type: kind, Services: i.Services}.Encode(), nil
}

// reboots says that the interrupt is a reboot.
func (s Spec) reboots() bool {
	if s.Interrupt == nil {
		return false
	}
	kind, err := pack.ParseInterruptType(s.Interrupt.Type)
	return err == nil && kind == pack.InterruptReboot
}

// changed is the configMap after the change.
func (s Spec) changed() map[string]string {
	out := map[string]string{}
	for key, value := range s.Config {
		out[key] = value
	}
	for key, value := range s.Change {
		if value == nil {
			delete(out, key)
		} else {
			out[key] = *value
		}
	}
	return out
}

// ignores says that differences at a path do not count.
func (s Spec) ignores(file string) bool {
	return slices.ContainsFunc(s.Ignore, func(pattern string) bool {
		dir, all := strings.CutSuffix(pattern, "/**")
		for at := file; ; at = path.Dir(at) {
			if ok, _ := path.Match(dir, at); ok && (all || at == file) {
				return true
			}
			if at == "/" || at == "." {
				return false
			}
		}
	})
}

// An Order is everything a trial needs.
type Order struct {
	Package Version // the package to try
	Older   *Version
	Agent   string // the program
	Root    string // a root file system to copy; empty for Like
	Like    string // debian or ubuntu
	Work    string // an empty folder for the hosts
	Network bool   // steps may use the machine's network
	Loud    bool   // what the agent says goes to the log
	Timeout time.Duration
	Spec    Spec

	Privileged bool // set by Try: it is root who tries
}

// A Version is a package in one version.
type Version struct{ Dir, Name, Version string }

// A Report is what became of a trial.
type Report struct {
	Package string   `json:"package"`
	Version string   `json:"version"`
	Host    string   `json:"host"`
	Passed  bool     `json:"passed"`
	Stages  []Stage  `json:"stages"`
	Notes   []string `json:"notes,omitempty"`
}

// A Stage is one part of the package's life.
type Stage struct {
	Name     string   `json:"name"`
	Passed   bool     `json:"passed"`
	Runs     []Run    `json:"runs"`
	Changes  []Change `json:"changes"`
	Calls    []string `json:"calls,omitempty"` // of systemctl, but for those that only ask
	Problems []string `json:"problems,omitempty"`
}

// A Run is one run of the agent.
type Run struct {
	Mode   pack.Mode  `json:"mode"`
	Exit   int        `json:"exit"`
	Class  pack.Class `json:"class,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Ran    int        `json:"ran"`
	Lines  []string   `json:"lines,omitempty"` // the last of the step that failed
}

// A Change is one path that is not as it was.
type Change struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // added, removed or changed
	What string `json:"what"`
	Diff string `json:"diff,omitempty"` // of text
}

// The kinds of changes.
const (
	added   = "added"
	removed = "removed"
	changed = "changed"
)

// mostShown is how many changes of a stage are printed, and mostLines how many lines of a text.
const (
	mostShown = 40
	mostLines = 30
)

// Text prints a report; with diffs, also what changed inside of texts.
func (r Report) Text(w io.Writer, diffs bool) {
	fmt.Fprintf(w, "Package %s %s on %s\n", r.Package, r.Version, r.Host)
	for _, s := range r.Stages {
		s.text(w, diffs)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\nnote: %s\n", n)
	}
	failed := 0
	for _, s := range r.Stages {
		if !s.Passed {
			failed++
		}
	}
	if r.Passed {
		fmt.Fprintf(w, "\nPASS: %d stages\n", len(r.Stages))
	} else {
		fmt.Fprintf(w, "\nFAIL: %d of %d stages\n", failed, len(r.Stages))
	}
}

func (s Stage) text(w io.Writer, diffs bool) {
	word := "ok"
	if !s.Passed {
		word = "FAILED"
	}
	var modes []string
	for _, run := range s.Runs {
		modes = append(modes, string(run.Mode))
	}
	fmt.Fprintf(w, "\n%s: %s (%s)\n", s.Name, word, strings.Join(modes, ", "))
	for _, p := range s.Problems {
		fmt.Fprintf(w, "  problem: %s\n", p)
	}
	for _, run := range s.Runs {
		if run.Exit == 0 {
			continue
		}
		fmt.Fprintf(w, "  %s exited with %d: %s\n", run.Mode, run.Exit, run.Reason)
		for _, line := range run.Lines {
			fmt.Fprintf(w, "    | %s\n", line)
		}
	}
	for i, c := range s.Changes {
		if i == mostShown {
			fmt.Fprintf(w, "  … and %d more\n", len(s.Changes)-mostShown)
			break
		}
		c.text(w, diffs)
	}
	for _, call := range s.Calls {
		fmt.Fprintf(w, "  systemctl %s\n", call)
	}
}

func (c Change) text(w io.Writer, diffs bool) {
	mark := map[string]string{added: "+", removed: "-", changed: "~"}[c.Kind]
	fmt.Fprintf(w, "  %s %s  %s\n", mark, c.Path, c.What)
	if !diffs {
		return
	}
	for i, line := range strings.Split(strings.TrimRight(c.Diff, "\n"), "\n") {
		if c.Diff == "" {
			break
		}
		if i == mostLines {
			fmt.Fprintln(w, "      …")
			break
		}
		fmt.Fprintf(w, "      %s\n", line)
	}
}
