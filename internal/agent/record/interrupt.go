// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
)

// State is the state of an interrupt.
type State string

// The states of an interrupt.
const (
	// Intended: it may have been requested.
	Intended State = "intended"
	// Done: it has happened.
	Done State = "done"
	// Lost: the record could not be read, so the outcome is unknown. It is never requested again.
	Lost State = "lost"
)

// Interrupt is the record of one interrupt.
type Interrupt struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Type   string `json:"type"`
	State  State  `json:"state"`
	// From and To are the boots before and after a reboot.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Asks counts the reboot requests.
	Asks  int    `json:"asks,omitempty"`
	Units []Unit `json:"units,omitempty"`
	// Sysctl is done once per interrupt that restarts all services.
	Sysctl bool      `json:"sysctl,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Unit is one service of an interrupt, before and after the restart.
type Unit struct {
	Name   string `json:"name"`
	Before Life   `json:"before"`
	After  *Life  `json:"after,omitempty"`
}

// Life identifies one run of a service.
type Life struct {
	Boot       string `json:"boot,omitempty"`
	Invocation string `json:"invocation,omitempty"`
	Since      uint64 `json:"since,omitempty"` // monotonic microseconds of becoming active
	PID        uint32 `json:"pid,omitempty"`
}

// IsOver reports whether a service has been started again since this run. The most reliable evidence is checked first.
// A stopped service has not been started again, unless it was stopped after the interrupt began.
func (l Life) IsOver(now Life, active bool) bool {
	switch {
	case l.Boot != now.Boot:
		return active
	case now.Invocation != "" || l.Invocation != "":
		return now.Invocation != "" && now.Invocation != l.Invocation
	case now.Since != l.Since:
		return now.Since != 0
	}
	return now.PID != 0 && now.PID != l.PID
}

// DecodeInterrupt reads the record of an interrupt.
func DecodeInterrupt(content []byte) (Interrupt, error) {
	var i Interrupt
	if err := json.Unmarshal(content, &i); err != nil {
		return Interrupt{}, fmt.Errorf("it is not a record: %w", err)
	}
	if i.Schema > Schema {
		return Interrupt{}, fmt.Errorf("its schema is %d, this agent knows %d: %w", i.Schema, Schema, ErrNewer)
	}
	switch {
	case i.Schema < 1 || i.ID == "":
		return Interrupt{}, errors.New("it is not a record: schema or id is missing")
	case i.State != Intended && i.State != Done && i.State != Lost:
		return Interrupt{}, fmt.Errorf("it is not a record: state %q is unknown", i.State)
	}
	return i, nil
}

// Interrupts are the records of all interrupts below one state root, locked by this agent.
type Interrupts struct{ locked }

const interruptsDir = "interrupts"

// LockInterrupts locks the interrupts of a state root.
func LockInterrupts(ctx context.Context, root *host.Root, state string, waiting func()) (*Interrupts, error) {
	l, err := lock(ctx, root, path.Join(state, interruptsDir, packagesDir), "interrupting this host", waiting)
	return &Interrupts{l}, err
}

// Load reads the record of an interrupt; ok is false when there is none. An unreadable record is renamed, returned in
// broken, and replaced by one in the state Lost.
func (r *Interrupts) Load(id string) (i Interrupt, ok bool, broken string, err error) {
	name := interruptFile(id)
	if !r.Dir.Exists(name) {
		return Interrupt{Schema: Schema, ID: id}, false, "", nil
	}
	content, err := r.Dir.ReadFile(name)
	if err != nil {
		return i, false, "", err
	}
	i, err = DecodeInterrupt(content)
	if err == nil && i.ID != id {
		err = fmt.Errorf("it is the record of %q", i.ID)
	}
	if err == nil {
		return i, true, "", nil
	}
	if errors.Is(err, ErrNewer) {
		return i, false, "", fmt.Errorf("reading the record %s on the host: %w", path.Join(r.Dir.Path, name), err)
	}
	// It is copied so that there is always a record: without one the host would be rebooted again.
	aside, writeErr := copyAside(r.Dir, name, content)
	if writeErr != nil {
		return i, false, "", errors.Join(err, writeErr)
	}
	i = Interrupt{Schema: Schema, ID: id, State: Lost}
	broken = fmt.Sprintf("the record %s could not be read (%v) and was set aside as %s", path.Join(r.Dir.Path, name), err, aside)
	return i, true, broken, r.Save(i)
}

// HasInterrupt reports, without a lock, whether there is a record of an interrupt.
func HasInterrupt(root *host.Root, state, id string) bool {
	_, err := root.Stat(path.Join(state, interruptsDir, packagesDir, interruptFile(id)))
	return err == nil
}

// Save writes the record of an interrupt. When it returns, the record survives a power failure.
func (r *Interrupts) Save(i Interrupt) error {
	content, err := encodeJSON(i)
	if err != nil {
		return fmt.Errorf("encoding the record of interrupt %s: %w", i.ID, err)
	}
	return r.Dir.Write(interruptFile(i.ID), content, 0o600)
}

// ReadInterrupts lists the interrupts below a state root, without a lock.
func ReadInterrupts(root *host.Root, state string) (out []Interrupt, err error) {
	err = root.EachEntry(path.Join(state, interruptsDir, packagesDir), func(dir *host.Dir, e fs.DirEntry) error {
		if !strings.HasSuffix(e.Name(), ".json") {
			return nil
		}
		content, err := dir.ReadFile(e.Name())
		if err != nil {
			return err
		}
		i, err := DecodeInterrupt(content)
		if err != nil {
			return fmt.Errorf("reading the record %s on the host: %w", path.Join(dir.Path, e.Name()), err)
		}
		out = append(out, i)
		return nil
	})
	return out, err
}

// interruptFile is the file name of the record of an interrupt: readable, and unique per ID.
func interruptFile(id string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, id)
	if len(readable) > 80 {
		readable = readable[:80]
	}
	sum := sha256.Sum256([]byte(id))
	return readable + "-" + hex.EncodeToString(sum[:8]) + ".json"
}

// FormerInterrupt returns when an earlier agent flagged a command of an interrupt as complete. It set the flag before
// it ran the command.
func FormerInterrupt(state *host.Dir, resource, flag string) (time.Time, bool) {
	if checkName(resource) != nil {
		return time.Time{}, false
	}
	st, err := state.Lstat(path.Join(interruptsDir, flagsDir, resource, flag+".complete"))
	if err != nil {
		return time.Time{}, false
	}
	return st.ModTime(), true
}

// WriteInterruptFlags writes the flags that earlier agents and people look for.
func WriteInterruptFlags(state *host.Dir, resource string, flags []string, at time.Time) error {
	if checkName(resource) != nil {
		return nil
	}
	dir := path.Join(interruptsDir, flagsDir, resource)
	if err := state.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making %s on the host: %w", path.Join(state.Path, dir), err)
	}
	for _, flag := range flags {
		text := fmt.Sprintf("%d.%06d", at.Unix(), at.Nanosecond()/1000)
		if err := state.WriteUnsynced(path.Join(dir, flag+".complete"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
