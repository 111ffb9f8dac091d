// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestStart: with text in the file nothing begins; what has begun, and not failed, goes on.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := filepath.Join(t.TempDir(), "stop")
	newRun := func(mode pack.Mode, run string) *Agent {
		a, err := New(Request{Mode: mode, RootMount: dir, CopyDir: "/state/tuning"}, Settings{
			Env: map[string]string{}, CompactPod: CompactPod{StopFile: stop, WithCheck: true}, StateDir: "/state", RunID: run, Resource: pack.ResourceID{Owner: "o", Package: "tuning", Version: "1.0.0"},
		}, "test", io.Discard)
		check(err)
		t.Cleanup(func() { _ = a.Host.Close() })
		return a
	}
	expect := func(a *Agent, want pack.Class) {
		t.Helper()
		class := pack.Class("")
		if err := a.requireStart(); err != nil {
			class = fault.Classify(err).Class
		}
		if class != want {
			t.Errorf("%s %s: %q, want %q", a.Mode, a.RunID, class, want)
		}
	}
	begin := func(a *Agent) *stageRun {
		held, err := record.LockPackage(t.Context(), a.Host, a.StateDir, "tuning", nil)
		check(err)
		r := &stageRun{Agent: a, mode: a.Mode, held: held}
		check(r.noteBegin())
		return r
	}
	end := func(r *stageRun, result error) {
		r.noteEnd(result)
		r.held.Release()
	}
	expect(newRun(pack.ModeApply, "1"), "") // no file
	check(os.WriteFile(stop, []byte(" \n"), 0o600))
	expect(newRun(pack.ModeApply, "1"), "")
	check(os.WriteFile(stop, []byte("edited"), 0o600))
	expect(newRun(pack.ModeApply, "1"), pack.NotBegun)
	expect(newRun(pack.ModeApplyCheck, "1"), "")
	expect(newRun(pack.ModeDrift, "1"), "")

	r := begin(newRun(pack.ModeApply, "1"))
	end(r, fault.New(pack.Stopped, "stopped"))
	expect(newRun(pack.ModeApply, "1"), "")
	expect(newRun(pack.ModeApply, "2"), pack.NotBegun)
	expect(newRun(pack.ModeConfig, "1"), pack.NotBegun)
	end(begin(newRun(pack.ModeApply, "1")), fault.New(pack.RetryLater, "later"))
	expect(newRun(pack.ModeApply, "1"), "")
	r = begin(newRun(pack.ModeApply, "1"))
	r.noteEnd(nil) // its check is to follow
	expect(newRun(pack.ModeApply, "1"), "")
	r.beginCheck()
	end(r, nil)
	expect(newRun(pack.ModeApply, "1"), pack.NotBegun)
	end(begin(newRun(pack.ModeConfig, "1")), errors.New("the host is full"))
	expect(newRun(pack.ModeConfig, "1"), pack.NotBegun)
	if files, err := os.ReadDir(filepath.Join(dir, "state/records/tuning")); err != nil || slices.ContainsFunc(files, func(e fs.DirEntry) bool { return e.Name() != "lock" }) {
		t.Errorf("%v %v", files, err)
	}
}
