// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package record is what a host remembers: of every package what is installed, which steps are done and which files were
// laid over the host's own, and of every interrupt how far it came.
//
// A record is one JSON file below the state root, replaced atomically and durably, and read and written under a lock. The
// flags and history files beside it are written for people, and for an older agent that may come back; this agent reads
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

// Schema is the version of the records this agent writes. It refuses newer ones.
const Schema = 1

// Bounds of what a record keeps.
const (
	keepHistory = 50
	keepBroken  = 10
)

// Package is what the host remembers of one package of one Skyhook.
type Package struct {
	Schema int    `json:"schema"`
	Name   string `json:"package"`
	// Config is package_name of its config.json: logs, flags and history for people are filed under it.
	Config    string    `json:"configName,omitempty"`
	Installed Version   `json:"installed"`
	Previous  Version   `json:"previous"`
	Steps     []Step    `json:"steps,omitempty"`
	Overlay   Overlay   `json:"overlay"`
	History   []Version `json:"history,omitempty"`
	Failure   *Failure  `json:"failure,omitempty"`
	// Imported says that the flags and history of an earlier agent have been looked at.
	Imported bool `json:"imported,omitempty"`
}

// Version is one thing that was installed, or that nothing is.
type Version struct {
	// Version is that of config.json, or pack.Uninstalled; empty means that nothing is known.
	Version string `json:"version,omitempty"`
	// Release is the version the Skyhook names; published packages often carry another one in their config.json.
	Release string `json:"release,omitempty"`
	// Digest is that of the package's files.
	Digest string `json:"digest,omitempty"`
	// Run is the admission that installed it.
	Run string    `json:"run,omitempty"`
	At  time.Time `json:"at,omitzero"`
}

// Step is one step that ended well.
type Step struct {
	Mode string `json:"mode"`
	Name string `json:"name"`
	// Key digests everything that makes the step what it is; empty for a step known only from an earlier agent's flag.
	Key string `json:"key,omitempty"`
	// Flag is the name of that earlier agent's flag file.
	Flag    string    `json:"flag,omitempty"`
	Run     string    `json:"run,omitempty"`
	Release string    `json:"release,omitempty"`
	Exit    int       `json:"exit"`
	At      time.Time `json:"at,omitzero"`
	// SelfManaged steps are done again when the check that follows fails.
	SelfManaged bool `json:"selfManaged,omitempty"`
}

// Failure is why the last attempt at a mode did not end well.
type Failure struct {
	Mode    string    `json:"mode"`
	Step    string    `json:"step,omitempty"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`
	At      time.Time `json:"at,omitzero"`
}

// Overlay is what the package's root_dir put on the host.
type Overlay struct {
	Files []File `json:"files,omitempty"`
	// Dirs were made for it, outermost first.
	Dirs []string `json:"dirs,omitempty"`
}

// File is one file or link that the overlay put on the host.
type File struct {
	Path string `json:"path"`
	// Wrote is what the overlay put there, or is about to; Before what it had put there until then.
	Wrote  Content  `json:"wrote"`
	Before *Content `json:"before,omitempty"`
	// Origin is what was there before; nil means nothing was.
	Origin *Content `json:"origin,omitempty"`
}

// Content is what a path of the host holds. Two of them that are equal hold the same.
type Content struct {
	Digest string      `json:"digest,omitempty"`
	Link   string      `json:"link,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	UID    int         `json:"uid,omitempty"`
	GID    int         `json:"gid,omitempty"`
}

// Put notes a file in its place by path.
func (o *Overlay) Put(f File) {
	i, found := slices.BinarySearchFunc(o.Files, f.Path, func(g File, at string) int { return strings.Compare(g.Path, at) })
	if found {
		o.Files[i] = f
		return
	}
	o.Files = slices.Insert(o.Files, i, f)
}

// Drop forgets a file.
func (o *Overlay) Drop(at string) {
	o.Files = slices.DeleteFunc(o.Files, func(f File) bool { return f.Path == at })
}

// ErrNewer is a record that a newer agent wrote.
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

// Encode writes a package's record, with a line feed at its end.
func Encode(p Package) ([]byte, error) { return encode(p) }

func encode(v any) ([]byte, error) {
	content, err := json.MarshalIndent(v, "", "  ")
	return append(content, '\n'), err
}

// Install notes what is installed now. Installing the same again in the same run changes nothing, so that a repeated
// check leaves neither a new entry nor a wrong previous version.
func (p *Package) Install(v Version) bool {
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

// Finish marks a step as done, in the place of an earlier mark for it.
func (p *Package) Finish(s Step) {
	for i, old := range p.Steps {
		if old.Mode == s.Mode && old.Name == s.Name && old.Key == s.Key && old.Flag == s.Flag {
			p.Steps[i] = s
			return
		}
	}
	p.Steps = append(p.Steps, s)
}

// Retain drops the marks that keep does not want.
func (p *Package) Retain(keep func(Step) bool) bool {
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
