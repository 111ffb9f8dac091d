// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func newTestCache(t *testing.T) *Cache {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c, err := Open(new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func buildOneFile(made *atomic.Int32) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		made.Add(1)
		return os.WriteFile(filepath.Join(dir, "program"), nil, 0o755)
	}
}

func TestBuiltOnce(t *testing.T) {
	c := newTestCache(t)
	var made atomic.Int32
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			dir, err := c.getOrBuild(context.Background(), artifact{name: "thing", make: buildOneFile(&made)})
			if err != nil || !fileExists(filepath.Join(dir, "program")) {
				t.Errorf("got %s, %v", dir, err)
			}
		})
	}
	together.Wait()
	if made.Load() != 1 {
		t.Errorf("eight that wanted it at the same time built it %d times", made.Load())
	}
}

// TestProgress: a build that takes long says so again and again.
func TestProgress(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	read, write := io.Pipe()
	c, err := Open(write)
	if err != nil {
		t.Fatal(err)
	}
	c.interval = time.Millisecond
	enough := make(chan struct{})
	go func() {
		for lines, n := bufio.NewScanner(read), 0; lines.Scan(); {
			if n++; lines.Text() == "building thing: 0 s" && n == 4 {
				close(enough)
			}
		}
	}()
	if _, err := c.getOrBuild(context.Background(), artifact{name: "thing", note: "long", make: func(context.Context, string) error {
		select {
		case <-enough:
			return nil
		case <-time.After(10 * time.Second):
			return errors.New("there is no third line about its progress")
		}
	}}); err != nil {
		t.Error(err)
	}
}

func TestInputsDecide(t *testing.T) {
	c := newTestCache(t)
	var made atomic.Int32
	seen := map[string]bool{}
	for _, inputs := range [][]string{{"a", "b"}, {"ab"}, {"a", "b", ""}, {"b", "a"}} {
		dir, err := c.getOrBuild(context.Background(), artifact{name: "thing", inputs: inputs, make: buildOneFile(&made)})
		if err != nil {
			t.Fatal(err)
		}
		seen[dir] = true
	}
	if len(seen) != 4 || made.Load() != 4 {
		t.Errorf("four different inputs gave %d results from %d builds", len(seen), made.Load())
	}
}

func TestBrokenOffBuildIsNotUsed(t *testing.T) {
	c := newTestCache(t)
	broken := artifact{name: "thing", make: func(_ context.Context, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o755), errors.New("compiler ended"))
	}}
	if _, err := c.getOrBuild(context.Background(), broken); err == nil || err.Error() != "building thing: compiler ended" {
		t.Errorf("the error is %v", err)
	}
	// A killed builder leaves its directory.
	if err := os.MkdirAll(filepath.Join(c.Dir, ".making-thing", "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	dir, err := c.getOrBuild(context.Background(), artifact{name: "thing", make: buildOneFile(&made)})
	if err != nil {
		t.Fatal(err)
	}
	if made.Load() != 1 || fileExists(filepath.Join(dir, "half")) {
		t.Errorf("after a broken-off build %s holds its leavings", dir)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, ".making-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestFullDisk(t *testing.T) {
	c := newTestCache(t)
	_, err := c.getOrBuild(context.Background(), artifact{name: "thing", needed: 1 << 60, make: buildOneFile(new(atomic.Int32))})
	if err == nil || !strings.Contains(err.Error(), "free some space or set XDG_CACHE_HOME to a directory with more") {
		t.Errorf("before a build that does not fit the error is %v", err)
	}
	for _, cause := range []error{fmt.Errorf("link: %w", syscall.ENOSPC), errors.New("ld: write failed: no space left on device")} {
		_, err := c.getOrBuild(context.Background(), artifact{name: "thing", make: func(context.Context, string) error { return cause }})
		if err == nil || !strings.Contains(err.Error(), "is full: free some space, or set XDG_CACHE_HOME and XDG_STATE_HOME to a larger one") {
			t.Errorf("on a full disk the error is %v", err)
		}
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	c := newTestCache(t)
	r := artifact{name: "thing", make: buildOneFile(new(atomic.Int32))}
	unlock, err := c.lockArtifact(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.getOrBuild(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for another build with a context that ended gave %v", err)
	}
}

func TestNoCacheDirectory(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := Open(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "set XDG_CACHE_HOME or HOME") {
		t.Errorf("without a home the error is %v", err)
	}
}
