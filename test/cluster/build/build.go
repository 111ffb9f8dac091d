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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Cache is a directory of build results. Programs may share it at the same time: the second one waits for the first and uses
// its result.
type Cache struct {
	Dir string
	Log io.Writer // told what is being built and why it takes long

	interval time.Duration // the longest time without a line about a build
}

// Open opens the cache of this user, and creates its directory.
func Open(log io.Writer) (*Cache, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("finding the cache directory: %w; set XDG_CACHE_HOME or HOME", err)
	}
	c := &Cache{Dir: filepath.Join(user, "skyhook-test-cluster"), Log: &lockedWriter{to: log}, interval: 10 * time.Second}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w; set XDG_CACHE_HOME to a directory that can be written", err)
	}
	return c, nil
}

// artifact describes one build result.
type artifact struct {
	name   string   // for people: kubernetes-v1.37.2
	inputs []string // everything that decides the result, contents included
	needed uint64   // bytes that must be free before the build
	note   string   // shown while it is built
	make   func(ctx context.Context, dir string) error
}

// artifactDir is the directory of an artifact: its name and a digest of its inputs.
func (c *Cache) artifactDir(r artifact) string {
	h := sha256.New()
	for _, input := range append([]string{runtime.GOARCH}, r.inputs...) {
		fmt.Fprintf(h, "%d:%s", len(input), input)
	}
	return filepath.Join(c.Dir, r.name+"-"+hex.EncodeToString(h.Sum(nil))[:12])
}

// getOrBuild returns the directory of an artifact, and builds it if it is missing. The result appears by a rename, so that an
// interrupted build is never used.
func (c *Cache) getOrBuild(ctx context.Context, r artifact) (string, error) {
	dir := c.artifactDir(r)
	if fileExists(dir) {
		return dir, nil
	}
	unlock, err := c.lockArtifact(ctx, r)
	if err != nil {
		return "", err
	}
	defer unlock()
	if fileExists(dir) {
		return dir, nil
	}
	if err := c.prepareBuild(r); err != nil {
		return "", err
	}
	fmt.Fprintf(c.Log, "building %s, once: %s\n", r.name, r.note)
	tmp := filepath.Join(c.Dir, ".making-"+r.name)
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return "", fmt.Errorf("building %s: %w", r.name, err)
	}
	stop := c.reportProgress(r.name)
	defer stop()
	if err := r.make(ctx, tmp); err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w", r.name, AdviseOnFullDisk(err, c.Dir)), os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w", r.name, err), os.RemoveAll(tmp))
	}
	return dir, nil
}

// reportProgress says again and again what is being built, until it is stopped.
func (c *Cache) reportProgress(name string) (stop func()) {
	began, done := time.Now(), make(chan struct{})
	go func() {
		tick := time.NewTicker(c.interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintf(c.Log, "building %s: %.0f s\n", name, time.Since(began).Seconds())
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// lockedWriter serves builds that run at the same time.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write writes to the common log.
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// prepareBuild removes leftovers of an interrupted build, and checks the free space.
func (c *Cache) prepareBuild(r artifact) error {
	if err := os.RemoveAll(filepath.Join(c.Dir, ".making-"+r.name)); err != nil {
		return fmt.Errorf("building %s: removing what an earlier attempt left: %w", r.name, err)
	}
	if free, err := FreeSpace(c.Dir); err == nil && free < r.needed {
		return fmt.Errorf("building %s needs %d MiB in %s, and %d MiB are free: free some space or set XDG_CACHE_HOME to a directory with more",
			r.name, r.needed>>20, c.Dir, free>>20)
	}
	return nil
}

// lockArtifact prevents concurrent builds of the same artifact. The kernel releases the lock with the process.
func (c *Cache) lockArtifact(ctx context.Context, r artifact) (func(), error) {
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

// FreeSpace returns the number of bytes that an ordinary user may write below dir.
func FreeSpace(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// AdviseOnFullDisk adds advice to an error that a full disk caused.
func AdviseOnFullDisk(err error, dir string) error {
	if errors.Is(err, syscall.ENOSPC) || (err != nil && strings.Contains(err.Error(), "no space left on device")) {
		return fmt.Errorf("%w; the disk of %s is full: free some space, or set XDG_CACHE_HOME and XDG_STATE_HOME to a larger one", err, dir)
	}
	return err
}

// runCommand runs a program; its error contains the last lines that the program printed.
func (c *Cache) runCommand(cmd *exec.Cmd) error {
	var out tailBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args[:min(3, len(cmd.Args))], " "), err, out.lastLines())
	}
	return nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
