// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package build makes what a test cluster consists of, each thing once: programs from Go modules and the root file
// system of a node from Debian packages. Results live in the user's cache directory under a name that says what went
// into them, so a second run builds nothing and a changed input never finds an old result.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cache is where results live. Several programs may use one cache at the same time: whoever comes second waits for the
// first and uses its result.
type Cache struct {
	Dir string
	Log io.Writer // told what is being built and why it takes long
}

// Open finds the cache of this user and makes its directory.
func Open(log io.Writer) (*Cache, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("finding the cache directory: %w; set XDG_CACHE_HOME or HOME", err)
	}
	c := &Cache{Dir: filepath.Join(user, "skyhook-test-cluster"), Log: log}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w; set XDG_CACHE_HOME to a directory that can be written", err)
	}
	return c, nil
}

// A recipe says how one thing is made.
type recipe struct {
	name   string   // for people: kubernetes-v1.36.3
	inputs []string // everything that decides the result, contents included
	room   uint64   // bytes that must be free before it starts
	note   string   // what to tell whoever waits
	make   func(ctx context.Context, dir string) error
}

// dir is where the result of a recipe lives: its name and a digest of its inputs.
func (c *Cache) dir(r recipe) string {
	h := sha256.New()
	for _, input := range append([]string{runtime.GOARCH}, r.inputs...) {
		fmt.Fprintf(h, "%d:%s", len(input), input)
	}
	return filepath.Join(c.Dir, r.name+"-"+hex.EncodeToString(h.Sum(nil))[:12])
}

// get returns the directory with the result of r and makes it first if it is not there. The result appears by a
// rename: a build that was broken off is never used.
func (c *Cache) get(ctx context.Context, r recipe) (string, error) {
	dir := c.dir(r)
	if exists(dir) {
		return dir, nil
	}
	unlock, err := c.lock(ctx, r)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(dir) {
		return dir, nil
	}
	if err := c.prepare(r); err != nil {
		return "", err
	}
	fmt.Fprintf(c.Log, "building %s, once: %s\n", r.name, r.note)
	tmp := filepath.Join(c.Dir, ".making-"+r.name)
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return "", fmt.Errorf("building %s: %w", r.name, err)
	}
	if err := r.make(ctx, tmp); err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w", r.name, Advice(err, c.Dir)), os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w", r.name, err), os.RemoveAll(tmp))
	}
	return dir, nil
}

// prepare removes what a broken-off build left and makes sure that there is room for a new one.
func (c *Cache) prepare(r recipe) error {
	if err := os.RemoveAll(filepath.Join(c.Dir, ".making-"+r.name)); err != nil {
		return fmt.Errorf("building %s: removing what an earlier attempt left: %w", r.name, err)
	}
	if free, err := Free(c.Dir); err == nil && free < r.room {
		return fmt.Errorf("building %s needs %d MiB in %s, and %d MiB are free: free some space or set XDG_CACHE_HOME to a directory with more",
			r.name, r.room>>20, c.Dir, free>>20)
	}
	return nil
}

// lock keeps others from making the same thing at the same time. The kernel drops it with the process.
func (c *Cache) lock(ctx context.Context, r recipe) (func(), error) {
	path := filepath.Join(c.Dir, ".lock-"+r.name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", r.name, err)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		fmt.Fprintf(c.Log, "waiting for another build of %s\n", r.name)
		if err := waitLock(ctx, f); err != nil {
			return nil, fmt.Errorf("waiting for another build of %s: %w", r.name, errors.Join(err, f.Close()))
		}
	}
	return func() { _ = f.Close() }, nil
}

// Free tells how many bytes an ordinary user may still write below dir.
func Free(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// Advice adds to an error that a full disk caused what to do about it.
func Advice(err error, dir string) error {
	if errors.Is(err, syscall.ENOSPC) || (err != nil && strings.Contains(err.Error(), "no space left on device")) {
		return fmt.Errorf("%w; the disk of %s is full: free some space, or set XDG_CACHE_HOME and XDG_STATE_HOME to a larger one", err, dir)
	}
	return err
}

// run executes a program and, when it fails, says what it printed last.
func (c *Cache) run(cmd *exec.Cmd) error {
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args[:min(3, len(cmd.Args))], " "), err, out.text())
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
