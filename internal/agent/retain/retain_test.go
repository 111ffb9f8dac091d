// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package retain

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// fullHost is a host with many old files.
type fullHost struct {
	*testing.T
	dir  string
	root *host.Root
}

func newFullHost(t *testing.T) fullHost {
	t.Helper()
	dir := t.TempDir()
	root, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return fullHost{t, dir, root}
}

// createFile creates a sparse file of that size and age.
func (a fullHost) createFile(name string, size int64, age time.Duration) {
	a.Helper()
	at := filepath.Join(a.dir, name)
	when := time.Now().Add(-age)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o600), os.Truncate(at, size), os.Chtimes(at, when, when)); err != nil {
		a.Fatal(err)
	}
}

func (a fullHost) countFiles(pattern string) int {
	names, _ := filepath.Glob(filepath.Join(a.dir, pattern))
	return len(names)
}

// TestLogsAreBoundedInBytes checks that the newest logs within the limit are kept, and the newest of all whatever its
// size.
func TestLogsAreBoundedInBytes(t *testing.T) {
	a := newFullHost(t)
	for i := range 4 {
		a.createFile(fmt.Sprintf("logs/p/1.0.0/step%d.sh-2026-01-0%d-000000.log", i, i+1), 100<<20, time.Duration(10-i)*time.Hour)
	}
	s := NewPruner(a.root)
	if err := s.PruneLogs("/logs/p"); err != nil {
		t.Fatal(err)
	}
	if len(s.Removed) != 2 || a.countFiles("logs/p/1.0.0/step[23].sh-*") != 2 {
		t.Errorf("removed %+v", s.Removed)
	}
	a.createFile("logs/big/1.0.0/step.sh-2026-01-01-000000.log", logBytes+1, time.Hour)
	s = NewPruner(a.root)
	if err := s.PruneLogs("/logs/big"); err != nil || len(s.Removed) != 0 {
		t.Errorf("the only log is gone: %+v, %v", s.Removed, err)
	}
}

// TestLogOfOneRunIsBounded checks that a run that never stops writing fills its files, ends the last with a line that says so, and
// that the limits of the step hold again afterwards.
func TestLogOfOneRunIsBounded(t *testing.T) {
	a := newFullHost(t)
	a.createFile("logs/p/1.0.0/step.sh-2026-01-01-000000.log", 1, 2*time.Hour)
	a.createFile("logs/p/1.0.0/step.sh-2026-01-02-000000.log", 1, time.Hour)
	log, closeLog, err := OpenLog(a.root, "/logs/p/1.0.0/step.sh")
	if err != nil {
		t.Fatal(err)
	}
	written, chunk := 0, bytes.Repeat([]byte("0123456789abcde\n"), 3<<12)
	for err == nil && written <= 2*filesPerRun*bytesPerFile {
		n := 0
		n, err = log.Write(chunk)
		written += n
	}
	if written != filesPerRun*bytesPerFile || err == nil || !strings.Contains(err.Error(), "at most 64 MiB") {
		t.Errorf("%d bytes are written: %v", written, err)
	}
	if err := closeLog(); err != nil {
		t.Error(err)
	}
	names, _ := filepath.Glob(filepath.Join(a.dir, "logs/p/1.0.0/*"))
	if len(names) != logsPerStep {
		t.Fatalf("%q", names)
	}
	for _, name := range names[1:] {
		if st, err := os.Stat(name); err != nil || st.Size() > bytesPerFile+200 {
			t.Errorf("%s: %v %v", name, st.Size(), err)
		}
	}
	last, err := os.ReadFile(names[logsPerStep-1])
	if err != nil || !bytes.Contains(last[len(last)-200:], []byte("no more is written: the logs of one run have at most 64 MiB; the container's log goes on\n")) {
		t.Errorf("the last ends with %q, %v", last[len(last)-200:], err)
	}
}

// TestInterruptsAreBounded checks that the number of records and flags of done interrupts is limited, and that others
// are kept.
func TestInterruptsAreBounded(t *testing.T) {
	a := newFullHost(t)
	for i := range interruptsKept + 10 {
		state := record.Done
		if i < 3 {
			state = record.Intended
		}
		name := fmt.Sprintf("state/interrupts/records/i%02d-0.json", i)
		a.createFile(name, 0, time.Duration(100-i)*time.Hour)
		text := fmt.Sprintf(`{"schema":1,"id":"i%02d","type":"noop","state":"%s"}`, i, state)
		when := time.Now().Add(-time.Duration(100-i) * time.Hour)
		if err := errors.Join(os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600), os.Chtimes(filepath.Join(a.dir, name), when, when)); err != nil {
			t.Fatal(err)
		}
		a.createFile(fmt.Sprintf("state/interrupts/flags/id%02d/no_op.complete", i), 1, 0)
	}
	s := NewPruner(a.root)
	if err := s.PruneInterrupts("/state"); err != nil {
		t.Fatal(err)
	}
	if n := a.countFiles("state/interrupts/records/*.json"); n != interruptsKept+3 || a.countFiles("state/interrupts/records/i0[0-2]-*") != 3 || a.countFiles("state/interrupts/records/i03-*") != 0 {
		t.Errorf("%d records stay", n)
	}
	if n := a.countFiles("state/interrupts/flags/*"); n != interruptsKept {
		t.Errorf("flags of %d interrupts stay", n)
	}
}

// TestCopiesOfUninstalledPackages checks that copies of an uninstalled package and staged copies are removed after an
// hour, and that the copy in use and those of other packages are kept.
func TestCopiesOfUninstalledPackages(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	a := newFullHost(t)
	for _, name := range []string{"tuning-1.0.0-" + uid + "-1", "tuning-1.0.0-" + uid + "-2", "tuning-1.0.0-" + uid + "-3", "tuning-1.0.0-" + uid + "-3.pod", "other-1.0.0-" + uid + "-1"} {
		a.createFile("state/"+name+"/config.json", 1, 0)
	}
	state, err := a.root.Dir("/state")
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	rec := record.Package{Name: "tuning", Installed: record.Version{Version: pack.Uninstalled, Release: "1.0.0"}}
	for _, c := range []struct {
		after  time.Duration
		remain int
	}{{time.Minute, 5}, {2 * stagingAge, 2}} {
		s := &Pruner{root: a.root, now: time.Now().Add(c.after)}
		if err := s.PruneCopies(state, rec, "tuning-1.0.0-"+uid+"-2"); err != nil {
			t.Fatal(err)
		}
		if n := a.countFiles("state/*"); n != c.remain {
			t.Errorf("after %s %d copies stay, want %d: removed %+v", c.after, n, c.remain, s.Removed)
		}
	}
	if a.countFiles("state/other-*") != 1 || a.countFiles("state/tuning-1.0.0-"+uid+"-2") != 1 {
		t.Error("what stays is neither in use nor another package's")
	}
}
