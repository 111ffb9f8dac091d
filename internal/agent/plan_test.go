// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

var actions = []pack.Mode{pack.ModeUninstall, pack.ModeUpgrade, pack.ModeApply, pack.ModeConfig, pack.ModePostInterrupt}

// drawSituation draws a package, a record of it or of another one, and an environment.
func drawSituation(t *rapid.T) Situation {
	word := rapid.SampledFrom([]string{"a", "b", "env:A", "env:B", ""})
	step := rapid.Custom(func(t *rapid.T) pack.Step {
		return pack.Step{
			Name: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "name"), Path: rapid.SampledFrom([]string{"x.sh", "sub/y.sh"}).Draw(t, "path"),
			Arguments: rapid.SliceOfN(word, 0, 2).Draw(t, "arguments"), ReturnCodes: []int{0}, Idempotence: rapid.Bool().Draw(t, "self"),
			Env: map[string]string{"K": word.Draw(t, "value")},
		}
	})
	s := Situation{
		Config:       pack.Config{Name: "p", Version: rapid.SampledFrom([]string{"1.0.0", "2.0.0"}).Draw(t, "version"), Modes: map[pack.Mode][]pack.Step{}},
		Scripts:      map[string]string{"x.sh": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "x"), "sub/y.sh": "3"},
		ConfigDigest: rapid.SampledFrom([]string{"", "c"}).Draw(t, "config"),
		Env:          map[string]string{"A": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "A")},
		RunID:        rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "run"),
		Release:      rapid.SampledFrom([]string{"1.0.0", "2.0.0"}).Draw(t, "release"),
		AlwaysRun:    rapid.IntRange(0, 9).Draw(t, "always") == 0,
	}
	generation := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "generation")
	if s.Run = s.RunID; s.Run == "" {
		s.Run = "resource:" + generation
	}
	s.Mode = rapid.SampledFrom(actions).Draw(t, "mode")
	s.Config.Modes[s.Mode] = rapid.SliceOfN(step, 0, 4).Draw(t, "steps")
	s.Record.Name = "p"
	for i := range rapid.IntRange(0, 3).Draw(t, "marks") {
		s.Record.Steps = append(s.Record.Steps, record.Step{Mode: string(s.Mode), Name: "x", Key: fmt.Sprint(i), Run: "r1", Release: "1.0.0"})
	}
	return s
}

// TestDecideIsPure calls Decide twice with the same input and checks that the input has not changed.
func TestDecideIsPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		before := s
		before.Env, before.Scripts = maps.Clone(s.Env), maps.Clone(s.Scripts)
		before.Record.Steps = slices.Clone(s.Record.Steps)
		one, two := Decide(s), Decide(s)
		if d := cmp.Diff(one, two); d != "" {
			t.Fatalf("the same situation, two plans: %s", d)
		}
		if d := cmp.Diff(before, s); d != "" {
			t.Fatalf("deciding changed the situation: %s", d)
		}
		for _, a := range one.Actions {
			if a.Why == "" {
				t.Fatalf("%s has no reason", a.Name)
			}
		}
	})
}

// TestDoneStepsAreSkipped marks the steps of a plan as done and decides again: within a run no step is left; without
// run IDs, only steps that always run. In another run or release all steps run.
func TestDoneStepsAreSkipped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		s.AlwaysRun = false
		for _, a := range Decide(s).Actions {
			if a.Run {
				s.Record.MarkDone(record.Step{Mode: string(s.Mode), Name: a.Name, Key: a.Key, Run: s.Run, Release: s.Release, SelfManaged: a.Step.Idempotence})
			}
		}
		for _, a := range Decide(s).Actions {
			always := s.RunID == "" && (a.Step.Idempotence || s.Mode != pack.ModeApply && s.Mode != pack.ModePostInterrupt)
			if a.Run != always {
				t.Fatalf("%s in %s: run is %v (%s)", a.Name, s.Mode, a.Run, a.Why)
			}
		}
		s.RunID, s.Run, s.Release = "another", "another", "another"
		for _, a := range Decide(s).Actions {
			if !a.Run {
				t.Fatalf("%s is skipped in another run of another release: %s", a.Name, a.Why)
			}
		}
	})
}

// TestStepKeyIsUnique changes one property at a time.
func TestStepKeyIsUnique(t *testing.T) {
	sample := func() (Situation, int, pack.Step) {
		return Situation{
			Mode: pack.ModeApply, Config: pack.Config{Version: "1.0.0"}, Scripts: map[string]string{"x.sh": "1"}, ConfigDigest: "c", Env: map[string]string{"A": "1"},
		}, 0, pack.Step{Name: "n", Path: "x.sh", Arguments: []string{"a", "env:A"}, ReturnCodes: []int{0}, Env: map[string]string{"K": "v"}}
	}
	keys := map[string]string{}
	for name, change := range map[string]func(*Situation, *int, *pack.Step){
		"nothing":        func(*Situation, *int, *pack.Step) {},
		"mode":           func(s *Situation, _ *int, _ *pack.Step) { s.Mode = pack.ModePostInterrupt },
		"script":         func(s *Situation, _ *int, _ *pack.Step) { s.Scripts = map[string]string{"x.sh": "2"} },
		"config":         func(s *Situation, _ *int, _ *pack.Step) { s.ConfigDigest = "d" },
		"version":        func(s *Situation, _ *int, _ *pack.Step) { s.Config.Version = "1.0.1" },
		"value":          func(s *Situation, _ *int, _ *pack.Step) { s.Env = map[string]string{"A": "2"} },
		"place":          func(_ *Situation, i *int, _ *pack.Step) { *i = 1 },
		"name":           func(_ *Situation, _ *int, p *pack.Step) { p.Name = "m" },
		"path":           func(_ *Situation, _ *int, p *pack.Step) { p.Path = "y.sh" },
		"argument":       func(_ *Situation, _ *int, p *pack.Step) { p.Arguments = []string{"b", "env:A"} },
		"argument order": func(_ *Situation, _ *int, p *pack.Step) { p.Arguments = []string{"env:A", "a"} },
		"return codes":   func(_ *Situation, _ *int, p *pack.Step) { p.ReturnCodes = []int{0, 1} },
		"env":            func(_ *Situation, _ *int, p *pack.Step) { p.Env = map[string]string{"K": "w"} },
	} {
		s, i, step := sample()
		change(&s, &i, &step)
		k := stepKey(s, i, step)
		if other, taken := keys[k]; taken {
			t.Errorf("%s and %s make the same key", name, other)
		}
		keys[k] = name
	}
}
