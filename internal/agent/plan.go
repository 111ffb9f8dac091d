// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Situation is the input of Decide.
type Situation struct {
	Mode   pack.Mode
	Config pack.Config
	// Scripts are the digests of the step files by pack.Step.File.
	Scripts map[string]string
	// ConfigDigest is that of the configMap's files.
	ConfigDigest string
	Record       record.Package
	// Env is the agent's environment.
	Env map[string]string
	// RunID is the admission; empty for operators that set none.
	RunID string
	// Run identifies the run that "done" refers to when there is no RunID.
	Run string
	// Release is the package version in the Skyhook.
	Release   string
	AlwaysRun bool
}

// Plan is the list of actions of a mode on this host.
type Plan struct {
	Mode    pack.Mode `json:"mode"`
	Actions []Action  `json:"steps"`
	// Previous and Current are passed to steps in upgrade and upgrade-check.
	Previous string `json:"previousVersion,omitempty"`
	Current  string `json:"currentVersion,omitempty"`
}

// Action is one step of a plan.
type Action struct {
	Step pack.Step `json:"-"`
	Name string    `json:"name"`
	Path string    `json:"path"`
	// Arguments are those of the package: env:NAME is not replaced.
	Arguments []string `json:"arguments"`
	// Missing are variables that the arguments need and the environment does not have. The step then fails without
	// being run.
	Missing []string `json:"missing,omitempty"`
	Run     bool     `json:"run"`
	Why     string   `json:"why"`
	// Key is the digest of everything that defines the step.
	Key string `json:"key"`
}

// Decide returns which steps of the mode run and why. It is a pure function.
func Decide(s Situation) Plan {
	p := Plan{Mode: s.Mode, Actions: []Action{}}
	if s.Mode.Upgrades() {
		p.Previous, p.Current = previousVersion(s), s.Config.Version
	}
	for i, step := range s.Config.Steps(s.Mode) {
		a := Action{Step: step, Name: step.Title(), Path: step.File(), Arguments: step.Arguments}
		if step.UpgradeStep {
			a.Arguments = append(slices.Clone(step.Arguments), p.Previous, p.Current)
		}
		for _, name := range listEnvArguments(step) {
			if _, ok := s.Env[name]; !ok {
				a.Missing = append(a.Missing, name)
			}
		}
		a.Key = stepKey(s, i, step)
		a.Run, a.Why = decideStep(s, step, a.Key)
		p.Actions = append(p.Actions, a)
	}
	return p
}

// previousVersion is the version before an upgrade. It stays the same for a repeated check.
func previousVersion(s Situation) string {
	was := s.Record.Installed
	if was.Version == s.Config.Version && was.Release == s.Release && was.Run == s.Run && s.Run != "" {
		was = s.Record.Previous
	}
	return cmp.Or(was.Version, pack.UnknownVersion)
}

// decideStep decides whether one step runs. The first rule that applies is the reason.
func decideStep(s Situation, step pack.Step, key string) (run bool, why string) {
	if s.Mode.IsCheck() {
		return true, "checks always run"
	}
	if s.Mode == pack.ModePreflight {
		return true, "preflight steps always run"
	}
	if s.AlwaysRun {
		return true, pack.EnvAlwaysRun + " is true"
	}
	done, same := findMark(s, step, key)
	if s.RunID != "" {
		switch {
		case done.Run == s.RunID:
			return false, "done in this run"
		case same:
			return true, "it changed since it was done in this run"
		}
		return true, "not done in this run"
	}
	switch {
	case s.Mode != pack.ModeApply && s.Mode != pack.ModePostInterrupt:
		return true, fmt.Sprintf("%s steps always run", s.Mode)
	case step.Idempotence:
		return true, "the package takes care of its idempotence"
	case done.Name != "" && s.Mode == pack.ModePostInterrupt && done.Run != s.Run:
		return true, "it was done after an earlier interrupt"
	case done.Name != "":
		return false, "done for this version"
	case same:
		return true, "it changed since it was done for this version"
	}
	return true, "not done for this version"
}

// findMark finds the mark of this step, and reports whether it has the same content.
func findMark(s Situation, step pack.Step, key string) (done record.Step, same bool) {
	for _, m := range s.Record.Steps {
		if m.Mode != string(s.Mode) || m.Name != step.Title() || !isCurrent(s, m) {
			continue
		}
		if m.Key == key || m.Key == "" && m.Flag == record.FormerFlag(step) && s.RunID == "" {
			return m, true
		}
		same = true
	}
	return record.Step{}, same
}

// isCurrent reports whether a mark counts: within a run only its own marks, otherwise those of this version.
func isCurrent(s Situation, m record.Step) bool {
	if s.RunID != "" {
		return m.Run == s.RunID
	}
	return m.Release == s.Release
}

// stepKey is the digest of everything that defines a step: its file, arguments, values and config.
func stepKey(s Situation, index int, step pack.Step) string {
	h := sha256.New()
	pack.WriteFramed(h, "skyhook step 1", string(s.Mode), fmt.Sprint(index), step.Name, step.File(), s.Scripts[step.File()], s.ConfigDigest, s.Config.Version)
	for _, a := range step.Arguments {
		value := ""
		if name, ok := strings.CutPrefix(a, pack.EnvArgument); ok {
			value = s.Env[name]
		}
		pack.WriteFramed(h, a, value)
	}
	pack.WriteFramed(h, "codes")
	for _, c := range step.ReturnCodes {
		pack.WriteFramed(h, fmt.Sprint(c))
	}
	pack.WriteFramed(h, "env")
	for _, name := range slices.Sorted(maps.Keys(step.Env)) {
		pack.WriteFramed(h, name, step.Env[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// listEnvArguments lists the variables that the arguments of a step refer to.
func listEnvArguments(step pack.Step) []string {
	var names []string
	for _, a := range step.Arguments {
		if name, ok := strings.CutPrefix(a, pack.EnvArgument); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// resolveArguments returns the arguments with values of the environment. Only the step gets them.
func (a Action) resolveArguments(env map[string]string) []string {
	args := make([]string, 0, len(a.Arguments))
	for i, arg := range a.Arguments {
		if name, ok := strings.CutPrefix(arg, pack.EnvArgument); ok && i < len(a.Step.Arguments) {
			arg = env[name]
		}
		args = append(args, arg)
	}
	return args
}
