// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Paths below the state root of files for people and of earlier agents.
const (
	flagsDir   = "flags"
	historyDir = "history"
)

// history is history/<package_name>.json, in the format of earlier agents.
type history struct {
	Current string         `json:"current-version"`
	History []historyEntry `json:"history"`
	// Owner is the package whose record the file repeats. Earlier agents wrote none.
	Owner string `json:"record,omitempty"`
}

type historyEntry struct {
	Version string `json:"version"`
	Time    string `json:"time"`
}

// ImportEarlier imports what an earlier agent recorded about a package: the installed version, and which apply steps of
// that version are done. Its files are named by package_name, which two packages of one Skyhook can share and which
// does not contain the release. So history counts since first, when this package was first delivered, and flags since
// released, when this release was. Flags of post-interrupt never count, because they do not name the interrupt.
// Unreadable files are renamed and listed in notes.
func (p *Package) ImportEarlier(state *host.Dir, config pack.Config, release string, first, released time.Time) (notes []string, err error) {
	p.Imported = true
	past, at, note, err := readHistory(state, config.Name)
	if err != nil {
		return nil, err
	}
	if note != "" {
		notes = append(notes, note)
	}
	if at.Before(first) || past.Owner != "" && past.Owner != p.Name {
		past = history{}
	}
	if past.Current != "" {
		p.Installed = Version{Version: past.Current, At: at.UTC()}
		p.History = adoptEntries(past.History)
	}
	version := past.Current
	if version == "" {
		// It was never finished: its flags count only if no other version can have changed the host since.
		list, err := state.Names(path.Join(flagsDir, config.Name))
		if err != nil || len(list) != 1 {
			return notes, err
		}
		version = list[0].Name()
	}
	if version != config.Version {
		return notes, nil
	}
	for _, s := range config.Steps(pack.ModeApply) {
		flag := FormerFlag(s)
		at, ok := readFlag(state, path.Join(flagsDir, config.Name, version, flag))
		if ok && !at.Before(released) {
			p.MarkDone(Step{Mode: string(pack.ModeApply), Name: s.Title(), Flag: flag, Release: release, At: at, SelfManaged: s.Idempotence})
		}
	}
	return notes, nil
}

// readHistory reads the history file of a package_name. A file that is not JSON is renamed.
func readHistory(state *host.Dir, name string) (h history, at time.Time, note string, err error) {
	file := path.Join(historyDir, name+".json")
	st, err := state.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return h, at, "", nil
	}
	content, err := state.ReadFile(file)
	if err != nil {
		return h, at, "", err
	}
	if bad := json.Unmarshal(content, &h); bad != nil {
		aside, err := setAside(state, file)
		return history{}, at, fmt.Sprintf("the history %s could not be read (%v) and was set aside as %s; the version installed is unknown", path.Join(state.Path, file), bad, aside), err
	}
	return h, st.ModTime(), "", nil
}

func adoptEntries(list []historyEntry) []Version {
	var out []Version
	for _, e := range list {
		at, err := time.Parse("2006-01-02T15:04:05.999999Z07:00", e.Time)
		if err != nil || e.Version == "" {
			continue
		}
		// Earlier agents added an entry at every check.
		if n := len(out); n > 0 && out[n-1].Version == e.Version {
			out[n-1].At = at.UTC()
			continue
		}
		if len(out) == keepHistory {
			break
		}
		out = append(out, Version{Version: e.Version, At: at.UTC()})
	}
	return out
}

// readFlag returns when a flag was set. Flags of this agent do not count.
func readFlag(state *host.Dir, file string) (time.Time, bool) {
	st, err := state.Lstat(file)
	if err != nil || !st.Mode().IsRegular() {
		return time.Time{}, false
	}
	content, err := state.ReadFile(file)
	return st.ModTime().UTC(), err == nil && readFlagOwner(content) == ""
}

// readFlagOwner returns the package whose record a flag repeats; empty for a flag of an earlier agent.
func readFlagOwner(content []byte) string {
	lines := bufio.NewScanner(strings.NewReader(string(content)))
	for lines.Scan() {
		if owner, ok := strings.CutPrefix(lines.Text(), "record: "); ok {
			return owner
		}
	}
	return ""
}

// FormerFlag is the name that earlier agents gave the flag of a step: its path, and base64 of its arguments and return
// codes in Python's notation.
func FormerFlag(s pack.Step) string {
	var args, codes []string
	for _, a := range s.Arguments {
		args = append(args, quotePython(a))
	}
	for _, c := range s.ReturnCodes {
		codes = append(codes, strconv.Itoa(c))
	}
	text := "[" + strings.Join(args, ", ") + "]_[" + strings.Join(codes, ", ") + "]"
	return s.Path + "_" + base64.StdEncoding.EncodeToString([]byte(text))
}

// quotePython quotes a string like Python's repr.
func quotePython(s string) string {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// ownsFlag reports whether a flag file belongs to this package: by name, or as a flag of an earlier agent for this
// version.
func (p *Package) ownsFlag(content []byte, version string, former []string, file string) bool {
	if owner := readFlagOwner(content); owner != "" {
		return owner == p.Name
	}
	return version == p.Previous.Version && slices.Contains(former, file)
}
