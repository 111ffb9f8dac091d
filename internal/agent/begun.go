// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// requireStart returns an error when the operator wants nothing more to begin. What has begun goes on in spite of it: a stage that
// was killed before its end, an interrupt that is recorded, and a check, which belongs to its stage.
func (a *Agent) requireStart() error {
	if a.StopFile == "" || a.Mode.IsReadOnly() {
		return nil
	}
	text, err := readLocal(a.StopFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fault.New(pack.RetryLater, "%s cannot be read, so it is not known whether %s may begin: %w", pack.EnvStopFile, a.Mode, err)
	}
	why, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if why == "" {
		return nil
	}
	if a.hasBegun() {
		a.Log.Info("nothing more is to begin after this, which has begun", "mode", a.Mode, "why", why)
		return nil
	}
	return fault.New(pack.NotBegun, "%s was replaced before it began, and nothing was changed on the host: %.200s", a.Mode, why)
}

// hasBegun reports whether the stage began earlier in this run and neither ended nor failed, or whether the interrupt is recorded.
func (a *Agent) hasBegun() bool {
	if a.Mode == pack.ModeInterrupt {
		return a.interrupt().HasBegun()
	}
	name, err := a.recordName()
	if err != nil {
		return false
	}
	return record.ReadBegun(a.Host, a.StateDir, name) == a.begun()
}

func (a *Agent) begun() record.Begun { return record.Begun{Mode: string(a.Mode), Run: a.admissionID()} }

// noteBegin notes that the stage has begun, before anything but the package's own copy changes on the host.
func (t *stageRun) noteBegin() error {
	if t.StopFile == "" || t.mode.IsCheck() {
		return nil
	}
	return t.held.NoteBegun(t.begun())
}

// noteEnd notes that the stage has ended: it succeeded, with its check, or this attempt failed. A stage that was stopped goes on.
func (t *stageRun) noteEnd(result error) {
	switch {
	case t.StopFile == "":
	case result == nil && t.owesCheck():
	case result != nil && fault.Classify(result).Class.Outcome() != pack.Failed:
	default:
		fault.LogIgnored(t.Log, t.held.ForgetBegun())
	}
}
