// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// runChecks runs all steps of a check mode, also after a failure, and summarizes them. Of the host it changes only the
// record.
func (t *stageRun) runChecks(ctx context.Context) error {
	var checks []record.Check
	var first *fault.Fault
	for _, action := range t.plan.Actions {
		result, err := t.performStep(ctx, action)
		var f *fault.Fault
		if err != nil && !errors.As(err, &f) {
			return err
		}
		if f != nil && f.Class == pack.Stopped {
			return f
		}
		c := record.Check{Step: action.Name, Path: action.Path, Passed: f == nil, Exit: result.Exit}
		if f != nil {
			c.Detail = t.redact.Replace(f.Error())
		}
		checks = append(checks, c)
		if f != nil && first == nil {
			first = f
		}
		if f != nil && errors.Is(f.Err, fault.ErrDeadline) {
			break
		}
	}
	if len(checks) > 0 {
		fault.LogIgnored(t.Log, t.trace.WriteChecks(t.mode, checks))
	}
	if first != nil {
		t.revokeSelfManaged()
		return summarizeChecks(checks, first, len(t.plan.Actions))
	}
	return t.recordPassed()
}

// runCheckSteps runs all steps of a planned check mode, also after a failure, and returns the first failure. It records nothing.
func (t *stageRun) runCheckSteps(ctx context.Context, ended func(step string)) (first *fault.Fault, err error) {
	for _, action := range t.plan.Actions {
		_, err := t.performStep(ctx, action)
		ended(action.Name)
		var f *fault.Fault
		if err != nil && !errors.As(err, &f) {
			return nil, err
		}
		if f != nil && (f.Class == pack.Stopped || errors.Is(f.Err, fault.ErrDeadline)) {
			return nil, f
		}
		if f != nil && first == nil {
			first = f
		}
	}
	return first, nil
}

// noteFailedCheck describes the step of a check in the result of a run that succeeds nevertheless.
func (a *Agent) noteFailedCheck(f *fault.Fault) {
	a.result.Step, a.result.Exit, a.result.Signal, a.result.Lines = f.Step, f.Exit, f.Signal, f.Lines
}

// summarizeChecks is the Fault of a check mode: the first failure sets its class, and all are listed.
func summarizeChecks(checks []record.Check, first *fault.Fault, total int) *fault.Fault {
	var failed []string
	for _, c := range checks {
		if !c.Passed {
			failed = append(failed, c.Step)
		}
	}
	f := *first
	if f.Class == pack.StepFailed {
		f.Class = pack.CheckFailed
	}
	if total > 1 {
		f.Err = fmt.Errorf("%d of %d checks failed (%s): %w", len(failed), total, strings.Join(failed, ", "), first.Err)
	}
	return &f
}

// revokeSelfManaged removes the marks of done steps that are idempotent by themselves, so that the next attempt runs
// them again after a failed check. Steps that the agent runs only once stay done.
func (t *stageRun) revokeSelfManaged() {
	action := string(t.mode.Action())
	t.rec.RetainSteps(func(m record.Step) bool { return m.Mode != action || !m.SelfManaged })
}

// recordPassed records the result of a successful check.
func (t *stageRun) recordPassed() error {
	version := record.Version{
		Version: t.config.Version, Release: t.releaseVersion(t.config), Run: t.Settings.admissionID(), At: time.Now().UTC(),
	}
	switch t.mode {
	case pack.ModeApplyCheck, pack.ModeUpgradeCheck:
		digest, err := digestPackage(t.copied)
		if err != nil {
			return err
		}
		version.Digest = digest
	case pack.ModeUninstallCheck:
		version.Version = pack.Uninstalled
		t.rec.Steps = nil
	default:
		isChanged, err := t.noteDelivered()
		if err != nil || !isChanged {
			return err
		}
		return t.saveRecord()
	}
	isNew := t.rec.SetInstalled(version)
	isChanged, err := t.noteDelivered()
	if err != nil {
		return err
	}
	if isNew || isChanged {
		if err := t.saveRecord(); err != nil {
			return err
		}
	}
	fault.LogIgnored(t.Log, t.trace.WriteHistory(t.rec))
	fault.LogIgnored(t.Log, t.trace.RemoveFlags(t.rec, t.config, version.Version)) // an uninstalled package keeps no flags
	t.pruneHost()
	return nil
}

// digestPackage is the digest of the package in the image: config.json, the step files and the rootfs overlay.
func digestPackage(copied *host.Dir) (string, error) {
	files := []string{pack.ConfigFile}
	for _, dir := range []string{pack.StepDir, pack.OverlayDir} {
		below, err := copied.Files(dir)
		if err != nil {
			return "", err
		}
		for _, file := range below {
			files = append(files, path.Join(dir, file))
		}
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, file := range files {
		st, err := copied.Lstat(file)
		if err != nil {
			return "", err
		}
		digest := ""
		if st.Mode().IsRegular() {
			if digest, err = copied.Digest(file); err != nil {
				return "", err
			}
		} else if digest, err = copied.Readlink(file); err != nil {
			return "", err
		}
		pack.WriteFramed(sum, file, digest)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
