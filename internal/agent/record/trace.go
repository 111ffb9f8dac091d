// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// A Trace writes the files below flags/ and history/. They tell people, and an agent of an earlier kind that comes back,
// what the records say. Nothing here is waited for or read again: a trace that cannot be written costs a warning.
type Trace struct {
	State *host.Dir
	// Owner is the package whose record the files repeat.
	Owner string
	// Config and Version are those of config.json.
	Config, Version string
}

// Start notes that an agent was here.
func (t Trace) Start() error {
	start := path.Join(flagsDir, "START")
	if t.State.Exists(start) {
		return nil
	}
	return t.put(start, "")
}

// StepDone sets the flag of a step, named by its path and a piece of its key, in the place of an earlier flag for it. A
// step that is done for longer keeps the flag it has.
func (t Trace) StepDone(mode pack.Mode, s pack.Step, key string, at time.Time, anew bool) error {
	always := "False"
	if s.Idempotence {
		always = "True"
	}
	same := fmt.Sprintf("step_always_runs: %s\nmode: %s\nname: %s\nrecord: %s\n", always, mode, s.Title(), t.Owner)
	text := fmt.Sprintf("last_run: %s\n%s", at.UTC().Format(time.RFC3339Nano), same)
	file := path.Join(flagsDir, t.Config, t.Version, s.File()+"_"+key[:16])
	if !anew && t.State.Exists(file) {
		return nil
	}
	if err := t.put(file, text); err != nil {
		return err
	}
	list, err := t.State.Names(path.Dir(file))
	if err != nil {
		return err
	}
	for _, e := range list {
		other := path.Join(path.Dir(file), e.Name())
		if other == file || !strings.HasPrefix(e.Name(), path.Base(s.File())+"_") {
			continue
		}
		content, err := t.State.Bytes(other)
		if err == nil && strings.HasSuffix(string(content), same) {
			err = t.State.Delete(other)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Check is how one step of a check mode ended.
type Check struct {
	Step   string `json:"step"`
	Path   string `json:"path"`
	Passed bool   `json:"passed"`
	Exit   int    `json:"exit"`
	Detail string `json:"detail,omitempty"`
}

// Checked writes how the steps of a check mode ended: <mode>_RESULTS beside the record, which no other package overwrites,
// and the two files earlier agents wrote for the whole Skyhook.
func (t Trace) Checked(mode pack.Mode, checks []Check) error {
	content, err := json.MarshalIndent(checks, "", "  ")
	if err != nil {
		return err
	}
	all := path.Join(flagsDir, string(mode)+"_ALL_CHECKED")
	err = errors.Join(
		t.put(path.Join(packagesDir, t.Owner, string(mode)+"_RESULTS"), string(content)+"\n"),
		t.put(path.Join(flagsDir, "check_results"), string(content)+"\n"))
	for _, c := range checks {
		if !c.Passed {
			return errors.Join(err, t.State.Delete(all))
		}
	}
	return errors.Join(err, t.put(all, ""))
}

// Installed writes the history file.
func (t Trace) Installed(p Package) error {
	h := history{Current: p.Installed.Version, History: []historyEntry{}, Owner: t.Owner}
	for _, v := range p.History {
		h.History = append(h.History, historyEntry{Version: v.Version, Time: v.At.UTC().Format("2006-01-02T15:04:05.000000-07:00")})
	}
	content, err := encode(h)
	if err != nil {
		return err
	}
	return t.put(path.Join(historyDir, t.Config+".json"), string(content))
}

// Forget removes the flags that tell of this package; keep names a version whose flags stay.
func (t Trace) Forget(p Package, config pack.Config, keep string) error {
	top := path.Join(flagsDir, t.Config)
	files, err := t.State.Files(top)
	if err != nil {
		return err
	}
	var former []string
	for _, steps := range config.Modes {
		for _, s := range steps {
			former = append(former, FormerFlag(s))
		}
	}
	for _, file := range files {
		version, flag, ok := strings.Cut(file, "/")
		if !ok || version == keep {
			continue
		}
		content, err := t.State.Bytes(path.Join(top, file))
		if err != nil {
			return err
		}
		if p.owns(content, version, former, flag) {
			if err := t.State.Delete(path.Join(top, file)); err != nil {
				return err
			}
		}
	}
	return t.prune(top)
}

// prune removes the directories below a directory that hold nothing.
func (t Trace) prune(name string) error {
	list, err := t.State.Names(name)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		inner := path.Join(name, e.Name())
		if err := t.prune(inner); err != nil {
			return err
		}
		rest, err := t.State.Names(inner)
		if err == nil && len(rest) == 0 {
			err = t.State.Delete(inner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t Trace) put(file, content string) error {
	if err := t.State.MkdirAll(path.Dir(file), 0o700); err != nil {
		return fmt.Errorf("making %s on the host: %w", path.Join(t.State.Path, path.Dir(file)), err)
	}
	return t.State.Note(file, content, 0o600)
}
