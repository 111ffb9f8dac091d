// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// testPreflight has the package look at the host, if it has a preflight. It must answer and change nothing.
func (j *lifecycle) testPreflight(name string, want requirement) error {
	config, _ := pack.Load(os.DirFS(j.pkg.Dir), pack.ModePreflight, pack.Want{})
	if j.failed || len(config.Steps(pack.ModePreflight)) == 0 {
		return nil
	}
	return j.recordStage(name, j.runPreflight, func(s *Stage) {
		j.requireUnchanged("a preflight only looks, and this one changed something")(s)
		if len(s.Calls) > 0 {
			s.Problems = append(s.Problems, "a preflight only looks, and this one called systemctl "+listFirst(s.Calls))
		}
		if want != nil {
			want(s)
		}
	})
}

// runPreflight does what the operator's pod does. A preflight that fails does not keep the package from being tested.
func (j *lifecycle) runPreflight(s *Stage) (bool, error) {
	before, err := j.listTemporary()
	if err != nil {
		return false, err
	}
	j.pods++
	id := fmt.Sprintf("pod-%d", j.pods)
	dir := path.Join("/tmp/skyhook", path.Base(j.copyDir()))
	if err := j.addPackage(dir + "." + id); err != nil {
		return false, fmt.Errorf("bringing the package to the host: %w", err)
	}
	run, err := j.runAgent(pack.ModePreflight, []string{string(pack.ModePreflight), j.dir, dir}, pack.EnvPodUID+"="+id)
	if err != nil {
		return false, err
	}
	s.Runs = append(s.Runs, run)
	if run.Preflight == nil {
		s.Problems = append(s.Problems, "the preflight gave no answer")
	}
	return true, j.removeTemporary(before)
}

// listTemporary returns the names in /tmp.
func (h *host) listTemporary() (out []string, err error) {
	there, err := os.ReadDir(filepath.Join(h.dir, "tmp"))
	for _, d := range there {
		out = append(out, d.Name())
	}
	return out, err
}

// removeTemporary removes what is new in /tmp: a preflight has one of its own, which goes with its pod.
func (h *host) removeTemporary(before []string) error {
	now, err := h.listTemporary()
	if err != nil {
		return err
	}
	for _, name := range now {
		if slices.Contains(before, name) {
			continue
		}
		if err := h.root.RemoveAll(path.Join("tmp", name)); err != nil {
			return err
		}
	}
	return nil
}

// requireNone requires that nothing is to be done after an install. Running services and the kernel of this host are not real, so that an
// answer about them is a note.
func (j *lifecycle) requireNone(s *Stage) {
	p := s.Runs[0].Preflight
	switch {
	case p == nil || p.Answer == pack.AnswerNone && !p.Wrong:
	case p.Wrong:
		s.Problems = append(s.Problems, "the preflight answers none, but a check disagrees")
	case p.Answer == pack.AnswerService || p.Answer == pack.AnswerReboot:
		j.report.Notes = append(j.report.Notes, fmt.Sprintf("the preflight answers %s after the install: services and the kernel of this host are not real, so look on a node", p.Answer))
	default:
		s.Problems = append(s.Problems, fmt.Sprintf("the preflight answers %s after the install, where nothing is to be done", p.Answer))
	}
}
