// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Situation is everything Decide looks at.
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
	// RunID is the admission; empty under an operator that has none.
	RunID string
	// Run is what "done" refers to when there is no RunID.
	Run string
	// Release is the package's version as the Skyhook names it.
	Release   string
	AlwaysRun bool
}

// Plan is what a mode comes to on this host.
type Plan struct {
	Mode    pack.Mode `json:"mode"`
	Actions []Action  `json:"steps"`
	// Previous and Current are given to steps in upgrade and upgrade-check.
	Previous string `json:"previousVersion,omitempty"`
	Current  string `json:"currentVersion,omitempty"`
}

// Action is one step of a plan.
type Action struct {
	Step pack.Step `json:"-"`
	Name string    `json:"name"`
	Path string    `json:"path"`
	// Arguments are as the package has them: what env:NAME stands for is not shown.
	Arguments []string `json:"arguments"`
	// Missing are variables the arguments need and the environment lacks; the step then fails without being run.
	Missing []string `json:"missing,omitempty"`
	Run     bool     `json:"run"`
	Why     string   `json:"why"`
	// Key digests everything that makes the step what it is.
	Key string `json:"key"`
}

// Decide says which steps of the mode run and why. It is a pure function.
func Decide(s Situation) Plan {
	p := Plan{Mode: s.Mode, Actions: []Action{}}
	if s.Mode.Upgrades() {
		p.Previous, p.Current = previous(s), s.Config.Version
	}
	for i, step := range s.Config.Steps(s.Mode) {
		a := Action{Step: step, Name: step.Title(), Path: step.File(), Arguments: step.Arguments}
		if step.UpgradeStep {
			a.Arguments = append(slices.Clone(step.Arguments), p.Previous, p.Current)
		}
		for _, name := range fromEnv(step) {
			if _, ok := s.Env[name]; !ok {
				a.Missing = append(a.Missing, name)
			}
		}
		a.Key = key(s, i, step)
		a.Run, a.Why = judge(s, step, a.Key)
		p.Actions = append(p.Actions, a)
	}
	return p
}

// previous is the version an upgrade comes from. Its check still says the same after a first check has succeeded.
func previous(s Situation) string {
	was := s.Record.Installed
	if was.Version == s.Config.Version && was.Release == s.Release && was.Run == s.Run && s.Run != "" {
		was = s.Record.Previous
	}
	return or(was.Version, pack.UnknownVersion)
}

// judge decides about one step: the first rule that applies is the reason.
func judge(s Situation, step pack.Step, key string) (run bool, why string) {
	if s.Mode.IsCheck() {
		return true, "checks always run"
	}
	if s.AlwaysRun {
		return true, pack.EnvAlwaysRun + " is true"
	}
	done, same := marks(s, step, key)
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

// marks finds the mark that says that this very step is done, and whether one with other content is there.
func marks(s Situation, step pack.Step, key string) (done record.Step, same bool) {
	for _, m := range s.Record.Steps {
		if m.Mode != string(s.Mode) || m.Name != step.Title() || !current(s, m) {
			continue
		}
		if m.Key == key || m.Key == "" && m.Flag == record.FormerFlag(step) && s.RunID == "" {
			return m, true
		}
		same = true
	}
	return record.Step{}, same
}

// current tells whether a mark counts at all: within a run only its own, otherwise those of this version.
func current(s Situation, m record.Step) bool {
	if s.RunID != "" {
		return m.Run == s.RunID
	}
	return m.Release == s.Release
}

// key digests everything that makes a step what it is: what runs, with which arguments and values, on which config.
func key(s Situation, index int, step pack.Step) string {
	h := sha256.New()
	frame(h, "skyhook step 1", string(s.Mode), fmt.Sprint(index), step.Name, step.File(), s.Scripts[step.File()], s.ConfigDigest, s.Config.Version)
	for _, a := range step.Arguments {
		value := ""
		if name, ok := strings.CutPrefix(a, pack.EnvArgument); ok {
			value = s.Env[name]
		}
		frame(h, a, value)
	}
	frame(h, "codes")
	for _, c := range step.ReturnCodes {
		frame(h, fmt.Sprint(c))
	}
	frame(h, "env")
	for _, name := range slices.Sorted(maps.Keys(step.Env)) {
		frame(h, name, step.Env[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// frame writes texts after their lengths, so that no two lists of them meet.
func frame(w io.Writer, texts ...string) {
	for _, text := range texts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = w.Write(n[:]) // a hash takes everything
		_, _ = io.WriteString(w, text)
	}
}

// fromEnv names the variables a step's arguments are taken from.
func fromEnv(step pack.Step) []string {
	var names []string
	for _, a := range step.Arguments {
		if name, ok := strings.CutPrefix(a, pack.EnvArgument); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// resolve is the argument list with the values of the environment; only the step sees it.
func (a Action) resolve(env map[string]string) []string {
	args := make([]string, 0, len(a.Arguments))
	for i, arg := range a.Arguments {
		if name, ok := strings.CutPrefix(arg, pack.EnvArgument); ok && i < len(a.Step.Arguments) {
			arg = env[name]
		}
		args = append(args, arg)
	}
	return args
}
