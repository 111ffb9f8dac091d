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

// Trace writes the files below flags/ and history/, which repeat the records for people and for a downgrade to an older
// agent. They are not synced and not read again: a file that cannot be written causes only a warning.
type Trace struct {
	State *host.Dir
	// Owner is the package whose record the files repeat.
	Owner string
	// Config and Version are those of config.json.
	Config, Version string
}

// WriteStart writes the START flag.
func (t Trace) WriteStart() error {
	start := path.Join(flagsDir, "START")
	if t.State.Exists(start) {
		return nil
	}
	return t.writeFile(start, "")
}

// WriteStepDone writes the flag of a step, named by its path and a part of its key, and removes an earlier flag of it.
// A step that was done before keeps its flag.
func (t Trace) WriteStepDone(mode pack.Mode, s pack.Step, key string, at time.Time, anew bool) error {
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
	if err := t.writeFile(file, text); err != nil {
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
		content, err := t.State.ReadFile(other)
		if err == nil && strings.HasSuffix(string(content), same) {
			err = t.State.Delete(other)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Check is the result of one step of a check mode.
type Check struct {
	Step   string `json:"step"`
	Path   string `json:"path"`
	Passed bool   `json:"passed"`
	Exit   int    `json:"exit"`
	Detail string `json:"detail,omitempty"`
}

// WriteChecks writes the results of a check mode: <mode>_RESULTS beside the record, which belongs to this package
// alone, and the two files that earlier agents wrote per Skyhook.
func (t Trace) WriteChecks(mode pack.Mode, checks []Check) error {
	content, err := json.MarshalIndent(checks, "", "  ")
	if err != nil {
		return err
	}
	all := path.Join(flagsDir, string(mode)+"_ALL_CHECKED")
	err = errors.Join(
		t.writeFile(path.Join(packagesDir, t.Owner, string(mode)+"_RESULTS"), string(content)+"\n"),
		t.writeFile(path.Join(flagsDir, "check_results"), string(content)+"\n"))
	for _, c := range checks {
		if !c.Passed {
			return errors.Join(err, t.State.Delete(all))
		}
	}
	return errors.Join(err, t.writeFile(all, ""))
}

// WriteHistory writes the history file.
func (t Trace) WriteHistory(p Package) error {
	h := history{Current: p.Installed.Version, History: []historyEntry{}, Owner: t.Owner}
	for _, v := range p.History {
		h.History = append(h.History, historyEntry{Version: v.Version, Time: v.At.UTC().Format("2006-01-02T15:04:05.000000-07:00")})
	}
	content, err := encodeJSON(h)
	if err != nil {
		return err
	}
	return t.writeFile(path.Join(historyDir, t.Config+".json"), string(content))
}

// RemoveFlags removes the flags of this package, except those of the version keep.
func (t Trace) RemoveFlags(p Package, config pack.Config, keep string) error {
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
		content, err := t.State.ReadFile(path.Join(top, file))
		if err != nil {
			return err
		}
		if p.ownsFlag(content, version, former, flag) {
			if err := t.State.Delete(path.Join(top, file)); err != nil {
				return err
			}
		}
	}
	return t.pruneEmptyDirs(top)
}

// pruneEmptyDirs removes empty directories below a directory.
func (t Trace) pruneEmptyDirs(name string) error {
	list, err := t.State.Names(name)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		inner := path.Join(name, e.Name())
		if err := t.pruneEmptyDirs(inner); err != nil {
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

func (t Trace) writeFile(file, content string) error {
	if err := t.State.MkdirAll(path.Dir(file), 0o700); err != nil {
		return fmt.Errorf("making %s on the host: %w", path.Join(t.State.Path, path.Dir(file)), err)
	}
	return t.State.WriteUnsynced(file, content, 0o600)
}
