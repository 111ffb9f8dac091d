// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package record stores the state of a host: for every package the installed version, the steps that are done and the
// files of its rootfs overlay, and for every interrupt its progress.
//
// A record is one JSON file below the state root, replaced atomically and durably, and read and written under a lock.
// The flags and history files beside it are written for people, and for a downgrade to an older agent. This agent reads
// them once, on a host that has no record yet.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Schema is the version of the records that this agent writes. It rejects newer ones.
const Schema = 1

// Limits of a record.
const (
	keepHistory = 50
	keepBroken  = 10
)

// Package is the record of one package of one Skyhook.
type Package struct {
	Schema int    `json:"schema"`
	Name   string `json:"package"`
	// Config is package_name in its config.json; logs, flags and history for people are named by it.
	Config    string  `json:"configName,omitempty"`
	Installed Version `json:"installed"`
	Previous  Version `json:"previous"`
	Steps     []Step  `json:"steps,omitempty"`
	Overlay   Overlay `json:"overlay"`
	// Delivered are the files of the overlay and of the config as they were when the last check of a stage passed: steps may have
	// changed them since they were delivered.
	Delivered []Delivered `json:"delivered,omitempty"`
	History   []Version   `json:"history,omitempty"`
	Failure   *Failure    `json:"failure,omitempty"`
	// Imported is true once the flags and history of an earlier agent have been imported.
	Imported bool `json:"imported,omitempty"`
}

// Version is one installed version, or the absence of one.
type Version struct {
	// Version is that of config.json, or pack.Uninstalled; empty when unknown.
	Version string `json:"version,omitempty"`
	// Release is the version in the Skyhook. Published packages often have another one in their config.json.
	Release string `json:"release,omitempty"`
	// Digest is the digest of the package's files.
	Digest string `json:"digest,omitempty"`
	// Run is the admission that installed it.
	Run string    `json:"run,omitempty"`
	At  time.Time `json:"at,omitzero"`
}

// Step is one step that succeeded.
type Step struct {
	Mode string `json:"mode"`
	Name string `json:"name"`
	// Key is the digest of everything that defines the step; empty for a step known only from the flag of an earlier
	// agent.
	Key string `json:"key,omitempty"`
	// Flag is the name of that earlier agent's flag file.
	Flag    string    `json:"flag,omitempty"`
	Run     string    `json:"run,omitempty"`
	Release string    `json:"release,omitempty"`
	Exit    int       `json:"exit"`
	At      time.Time `json:"at,omitzero"`
	// SelfManaged steps run again when the check that follows fails.
	SelfManaged bool `json:"selfManaged,omitempty"`
}

// Failure is why the last attempt at a mode failed.
type Failure struct {
	Mode    string    `json:"mode"`
	Step    string    `json:"step,omitempty"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`
	At      time.Time `json:"at,omitzero"`
}

// Overlay records the files that the package's root_dir put on the host.
type Overlay struct {
	Files []File `json:"files,omitempty"`
	// Dirs were created for it, outermost first.
	Dirs []string `json:"dirs,omitempty"`
}

// File is one file or link of the overlay.
type File struct {
	Path string `json:"path"`
	// Wrote is what the overlay wrote there, or is about to write; Before is what it had written earlier.
	Wrote  Content  `json:"wrote"`
	Before *Content `json:"before,omitempty"`
	// Origin is the file before the overlay; nil when there was none.
	Origin *Content `json:"origin,omitempty"`
}

// Content describes the content of a path of the host. Equal values mean equal content.
type Content struct {
	Digest string      `json:"digest,omitempty"`
	Link   string      `json:"link,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	UID    int         `json:"uid,omitempty"`
	GID    int         `json:"gid,omitempty"`
}

// Delivered is a file that a package left on the host.
type Delivered struct {
	Path string `json:"path"`
	// Config is true for a file of the configMap, in the copy of the package.
	Config  bool    `json:"config,omitempty"`
	Content Content `json:"content"`
}

// SetFiles adds or replaces files, sorted by path.
func (o *Overlay) SetFiles(files []File) {
	all := slices.Concat(files, o.Files)
	slices.SortStableFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	o.Files = slices.CompactFunc(all, func(a, b File) bool { return a.Path == b.Path })
}

// ErrNewer means that a newer agent wrote the record.
var ErrNewer = errors.New("a newer agent wrote it")

// Decode reads a package's record.
func Decode(content []byte) (Package, error) {
	var p Package
	if err := json.Unmarshal(content, &p); err != nil {
		return Package{}, fmt.Errorf("it is not a record: %w", err)
	}
	if p.Schema > Schema {
		return Package{}, fmt.Errorf("its schema is %d, this agent knows %d: %w", p.Schema, Schema, ErrNewer)
	}
	if p.Schema < 1 || p.Name == "" {
		return Package{}, errors.New("it is not a record: schema or package is missing")
	}
	for _, f := range p.Overlay.Files {
		if f.Path == "" || f.Path[0] != '/' {
			return Package{}, fmt.Errorf("it is not a record: overlay path %q is not absolute", f.Path)
		}
	}
	slices.SortFunc(p.Overlay.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// Encode encodes a package's record, with a newline at its end.
func Encode(p Package) ([]byte, error) { return encodeJSON(p) }

func encodeJSON(v any) ([]byte, error) {
	content, err := json.MarshalIndent(v, "", "  ")
	return append(content, '\n'), err
}

// SetInstalled records the installed version. The same version in the same run changes nothing, so that a repeated
// check adds no entry and keeps the previous version.
func (p *Package) SetInstalled(v Version) bool {
	same := p.Installed
	same.At = v.At
	if same == v {
		return false
	}
	if p.Installed.Version != "" {
		p.Previous = p.Installed
	}
	p.Installed = v
	p.History = append([]Version{v}, p.History...)
	if len(p.History) > keepHistory {
		p.History = p.History[:keepHistory]
	}
	return true
}

// MarkDone marks a step as done and replaces an earlier mark of it.
func (p *Package) MarkDone(s Step) {
	for i, old := range p.Steps {
		if old.Mode == s.Mode && old.Name == s.Name && old.Key == s.Key && old.Flag == s.Flag {
			p.Steps[i] = s
			return
		}
	}
	p.Steps = append(p.Steps, s)
}

// RetainSteps removes the marks for which keep is false.
func (p *Package) RetainSteps(keep func(Step) bool) bool {
	var kept []Step
	for _, s := range p.Steps {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	changed := len(kept) != len(p.Steps)
	p.Steps = kept
	return changed
}
