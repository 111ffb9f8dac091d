// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package sandbox takes a package through its lifecycle on a temporary host and compares the host before and after
// every stage.
//
// The host is a directory: a copy of a root file system, or a small one that resembles a distribution. The real agent
// runs the steps there, in namespaces of their own, with kernel settings that are plain files and a simulated systemctl
// and boot. Steps cannot change this machine.
//
// A test fails when a step or check fails, when repeating a stage changes anything, when going back to an earlier
// config does not restore the earlier host, when the uninstall leaves anything behind, and when a preflight changes
// anything, gives no answer, or asks for more after an install.
package sandbox

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// SpecFile is the file of a package with the inputs of its test.
const SpecFile = "testdata/test.yaml"

// Distributions are the values for Request.Distribution.
var Distributions = []string{"debian", "ubuntu"}

// Spec is the input of a test.
type Spec struct {
	Config    map[string]string  `json:"config,omitempty"`    // the configMap of the first install
	Change    map[string]*string `json:"change,omitempty"`    // what changes in it afterwards; nil removes a key
	Env       map[string]string  `json:"env,omitempty"`       // of the package
	Services  []string           `json:"services,omitempty"`  // that run on the host in addition to the usual ones
	Interrupt *Interrupt         `json:"interrupt,omitempty"` // runs after each config
	Host      map[string]string  `json:"host,omitempty"`      // files on the host before
	Ignore    []string           `json:"ignore,omitempty"`    // paths in which differences do not count
}

// Interrupt is the interrupt of the package in a Skyhook.
type Interrupt struct {
	Type     string   `json:"type"`
	Services []string `json:"services,omitempty"`
}

// ReadSpec parses a Spec. Unknown keys are errors.
func ReadSpec(raw []byte) (Spec, error) {
	var s Spec
	if err := yaml.UnmarshalStrict(raw, &s); err != nil {
		return s, fmt.Errorf("it has config, change, env, services, interrupt, host and ignore: %w", err)
	}
	return s, s.validate()
}

func (s Spec) validate() error {
	if s.Interrupt != nil {
		if _, err := s.Interrupt.encode(); err != nil {
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

// encode returns the interrupt as an argument of the agent.
func (i Interrupt) encode() (string, error) {
	kind, err := pack.ParseInterruptType(i.Type)
	if err != nil || kind == pack.InterruptScript {
		return "", fmt.Errorf("interrupt: type %q is not one of reboot, service, restartAllServices and noop", i.Type)
	}
	for _, name := range i.Services {
		if reason := pack.InvalidServiceReason(name); reason != "" {
			return "", fmt.Errorf("interrupt: services: %s", reason)
		}
	}
	return pack.Interrupt{Type: kind, Services: i.Services}.Encode(), nil
}

// hasReboot reports whether the interrupt is a reboot.
func (s Spec) hasReboot() bool {
	if s.Interrupt == nil {
		return false
	}
	kind, err := pack.ParseInterruptType(s.Interrupt.Type)
	return err == nil && kind == pack.InterruptReboot
}

// configAfterChange returns the configMap after the change.
func (s Spec) configAfterChange() map[string]string {
	out := map[string]string{}
	maps.Copy(out, s.Config)
	for key, value := range s.Change {
		if value == nil {
			delete(out, key)
		} else {
			out[key] = *value
		}
	}
	return out
}

// isIgnored reports whether differences at a path are ignored.
func (s Spec) isIgnored(file string) bool {
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

// Request is one test to run.
type Request struct {
	Package      Version // the package to test
	Older        *Version
	Agent        string // the program
	Root         string // root file system to copy; empty to create one like Distribution
	Distribution string // debian or ubuntu
	Work         string // empty directory for the hosts
	Network      bool   // steps may use the machine's network
	Verbose      bool   // log the agent's output
	Timeout      time.Duration
	Spec         Spec

	Privileged bool // set by RunTest: it runs as root
}

// Version is a package in one version.
type Version struct{ Dir, Name, Version string }

// Report is the result of a test.
type Report struct {
	Package string   `json:"package"`
	Version string   `json:"version"`
	Host    string   `json:"host"`
	Passed  bool     `json:"passed"`
	Stages  []Stage  `json:"stages"`
	Notes   []string `json:"notes,omitempty"`
}

// Stage is one stage of the lifecycle.
type Stage struct {
	Name     string   `json:"name"`
	Passed   bool     `json:"passed"`
	Runs     []Run    `json:"runs"`
	Changes  []Change `json:"changes"`
	Calls    []string `json:"calls,omitempty"` // of systemctl, without queries
	Problems []string `json:"problems,omitempty"`
}

// Run is one run of the agent.
type Run struct {
	Mode   pack.Mode  `json:"mode"`
	Exit   int        `json:"exit"`
	Class  pack.Class `json:"class,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Ran    int        `json:"ran"`
	Lines  []string   `json:"lines,omitempty"` // last output lines of the failed step

	Preflight *pack.Preflight `json:"preflight,omitempty"` // its answer
}

// Change is a difference at one path.
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

// Limits of the printed changes of a stage, and of the printed lines of a diff.
const (
	maxShownChanges = 40
	maxShownLines   = 30
)

// WriteText prints a report; with diffs, also the changes in text files.
func (r Report) WriteText(w io.Writer, diffs bool) {
	fmt.Fprintf(w, "Package %s %s on %s\n", r.Package, r.Version, r.Host)
	for _, s := range r.Stages {
		s.writeText(w, diffs)
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

func (s Stage) writeText(w io.Writer, diffs bool) {
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
		if p := run.Preflight; p != nil {
			fmt.Fprintf(w, "  answer: %s\n", describeAnswer(p))
		}
		if run.Exit == 0 {
			continue
		}
		fmt.Fprintf(w, "  %s exited with %d: %s\n", run.Mode, run.Exit, run.Reason)
		for _, line := range run.Lines {
			fmt.Fprintf(w, "    | %s\n", line)
		}
	}
	for i, c := range s.Changes {
		if i == maxShownChanges {
			fmt.Fprintf(w, "  … and %d more\n", len(s.Changes)-maxShownChanges)
			break
		}
		c.writeText(w, diffs)
	}
	for _, call := range s.Calls {
		fmt.Fprintf(w, "  systemctl %s\n", call)
	}
}

// describeAnswer returns an answer in the form in which steps write it.
func describeAnswer(p *pack.Preflight) string {
	what := string(p.Answer)
	if len(p.Services) > 0 {
		what += " " + strings.Join(p.Services, ",")
	}
	return what + ": " + p.Reason
}

func (c Change) writeText(w io.Writer, diffs bool) {
	mark := map[string]string{added: "+", removed: "-", changed: "~"}[c.Kind]
	fmt.Fprintf(w, "  %s %s  %s\n", mark, c.Path, c.What)
	if !diffs {
		return
	}
	for i, line := range strings.Split(strings.TrimRight(c.Diff, "\n"), "\n") {
		if c.Diff == "" {
			break
		}
		if i == maxShownLines {
			fmt.Fprintln(w, "      …")
			break
		}
		fmt.Fprintf(w, "      %s\n", line)
	}
}
