// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Paths of records below the state root.
const (
	packagesDir = "records"
	recordFile  = "record.json"
	lockFile    = "lock"
	backupDir   = "backup"
)

// locked is a directory of records, locked by this agent.
type locked struct {
	// Dir is the directory on the host.
	Dir     *host.Dir
	release func()
}

// lockWait is how long an agent waits for another one.
const lockWait = 2 * time.Minute

var errLocked = errors.New("it is still held")

// lock locks a directory of records and creates it if needed. waiting is called once if another agent holds it.
func lock(ctx context.Context, root *host.Root, at, doing string, waiting func()) (locked, error) {
	dir, err := root.MakeDir(at, 0o700)
	if err != nil {
		return locked{}, err
	}
	wait, cancel := context.WithTimeoutCause(ctx, lockWait, errLocked)
	defer cancel()
	release, err := dir.Lock(wait, lockFile, waiting)
	if errors.Is(err, errLocked) {
		err = fault.New(pack.RetryLater, "another agent has been %s for more than %s: %w", doing, lockWait, err)
	}
	if err != nil {
		return locked{}, errors.Join(err, dir.Close())
	}
	return locked{dir, release}, nil
}

// Release releases the lock.
func (l locked) Release() {
	l.release()
	_ = l.Dir.Close()
}

// Held is the record of a package, locked by this agent.
type Held struct {
	locked
	name string
}

// LockPackage locks the record of a package and creates its directory if needed.
func LockPackage(ctx context.Context, root *host.Root, state, name string, waiting func()) (*Held, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	l, err := lock(ctx, root, path.Join(state, packagesDir, name), "working on "+name, waiting)
	return &Held{locked: l, name: name}, err
}

// Load reads the record. Without a record it is empty. An unreadable record is renamed with a number and returned in
// broken; the record is then empty.
func (h *Held) Load() (p Package, broken string, err error) {
	fresh := Package{Schema: Schema, Name: h.name}
	if !h.Dir.Exists(recordFile) {
		return fresh, "", nil
	}
	content, err := h.Dir.ReadFile(recordFile)
	if err != nil {
		return fresh, "", err
	}
	p, err = Decode(content)
	if err == nil && p.Name != h.name {
		err = fmt.Errorf("it is the record of %q", p.Name)
	}
	if err == nil {
		return p, "", nil
	}
	if errors.Is(err, ErrNewer) {
		return fresh, "", fmt.Errorf("reading the record %s on the host: %w; use that agent, or move the file away", path.Join(h.Dir.Path, recordFile), err)
	}
	aside, moveErr := setAside(h.Dir, recordFile)
	if moveErr != nil {
		return fresh, "", errors.Join(err, moveErr)
	}
	return fresh, fmt.Sprintf("the record %s could not be read (%v) and was set aside as %s", path.Join(h.Dir.Path, recordFile), err, aside), nil
}

// Save writes the record. When it returns, the record survives a power failure.
func (h *Held) Save(p Package) error {
	content, err := Encode(p)
	if err != nil {
		return fmt.Errorf("encoding the record of %s: %w", p.Name, err)
	}
	return h.Dir.Write(recordFile, content, 0o600)
}

// OpenBackup opens the directory for files that the overlay replaces.
func (h *Held) OpenBackup(root *host.Root) (*host.Dir, error) {
	return root.MakeDir(path.Join(h.Dir.Path, backupDir), 0o700)
}

// ListPackages lists the packages that have a record below a state root.
func ListPackages(root *host.Root, state string) (names []string, err error) {
	err = root.EachEntry(path.Join(state, packagesDir), func(dir *host.Dir, e fs.DirEntry) error {
		if e.IsDir() && dir.Exists(path.Join(e.Name(), recordFile)) {
			names = append(names, e.Name())
		}
		return nil
	})
	return names, err
}

// ReadPackage reads a record without a lock, to show it. Writes are atomic.
func ReadPackage(root *host.Root, state, name string) (Package, error) {
	if err := checkName(name); err != nil {
		return Package{}, err
	}
	file := path.Join(state, packagesDir, name, recordFile)
	content, err := root.ReadFile(file)
	if err != nil {
		return Package{}, err
	}
	p, err := Decode(content)
	if err != nil {
		return Package{}, fmt.Errorf("reading the record %s on the host: %w", file, err)
	}
	return p, nil
}

// setAside renames an unreadable file to the next free number. The oldest numbers are reused.
func setAside(dir *host.Dir, name string) (string, error) {
	aside, err := freeNumber(dir, name)
	if err != nil {
		return "", err
	}
	return aside, dir.Move(name, aside)
}

// copyAside does the same but keeps the file.
func copyAside(dir *host.Dir, name string, content []byte) (string, error) {
	aside, err := freeNumber(dir, name)
	if err != nil {
		return "", err
	}
	return aside, dir.Write(aside, content, 0o600)
}

func freeNumber(dir *host.Dir, name string) (string, error) {
	number := func(i int) string { return fmt.Sprintf("%s.broken-%d", name, i) }
	for i := 1; i <= keepBroken; i++ {
		if !dir.Exists(number(i)) {
			return number(i), nil
		}
	}
	for i := 1; i < keepBroken; i++ {
		if err := dir.Move(number(i+1), number(i)); err != nil {
			return "", err
		}
	}
	return number(keepBroken), nil
}

// checkName rejects names that would leave the directory of records.
func checkName(name string) error {
	if name == "" || name[0] == '.' || len(name) > 200 || path.Base(name) != name || bytes.ContainsRune([]byte(name), 0) {
		return fmt.Errorf("package name %q cannot name a record; it must be one plain file name", name)
	}
	return nil
}
