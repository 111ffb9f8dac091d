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

	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// check runs all steps of a check mode, whatever becomes of each, and sums up. It changes nothing on the host but the
// record, and what the steps themselves change.
func (t *turn) check(ctx context.Context) error {
	var checks []record.Check
	var first *Fault
	for _, action := range t.plan.Actions {
		result, lines, err := t.perform(ctx, action)
		f := &Fault{}
		if err != nil && !errors.As(err, &f) {
			return err
		}
		if err == nil {
			f = verdict(action, result, lines)
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
		if f != nil && errors.Is(f.Err, errDeadline) {
			break
		}
	}
	if len(checks) > 0 {
		t.note(t.trace.Checked(t.Mode, checks))
	}
	if first != nil {
		t.doubt()
		return sumUp(checks, first, len(t.plan.Actions))
	}
	return t.passed()
}

// sumUp is the Fault of a check mode: the first failure decides, all are named.
func sumUp(checks []record.Check, first *Fault, total int) *Fault {
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

// doubt takes back that the steps whose check failed are done, where the package takes care of their idempotence: the
// next attempt runs them again. Steps the agent keeps from running twice stay done.
func (t *turn) doubt() {
	action := string(t.Mode.Action())
	t.rec.Retain(func(m record.Step) bool { return m.Mode != action || !m.SelfManaged })
}

// passed records what a successful check proves.
func (t *turn) passed() error {
	version := record.Version{
		Version: t.config.Version, Release: t.release(t.config), Run: t.Settings.run(), At: time.Now().UTC(),
	}
	switch t.Mode {
	case pack.ModeApplyCheck, pack.ModeUpgradeCheck:
		digest, err := t.packageDigest()
		if err != nil {
			return err
		}
		version.Digest = digest
	case pack.ModeUninstallCheck:
		version.Version = pack.Uninstalled
		t.rec.Steps = nil
	default:
		return nil
	}
	if t.rec.Install(version) {
		if err := t.save(); err != nil {
			return err
		}
	}
	t.note(t.trace.Installed(t.rec))
	t.note(t.trace.Forget(t.rec, t.config, version.Version)) // nothing is kept for what is uninstalled
	t.tidy()
	return nil
}

// packageDigest is the digest of what the image brought: config.json, the step files and the overlay.
func (t *turn) packageDigest() (string, error) {
	files := []string{pack.ConfigFile}
	for _, dir := range []string{pack.StepDir, pack.OverlayDir} {
		below, err := t.copied.Files(dir)
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
		st, err := t.copied.Lstat(file)
		if err != nil {
			return "", err
		}
		digest := ""
		if st.Mode().IsRegular() {
			if digest, err = t.copied.Digest(file); err != nil {
				return "", err
			}
		} else if digest, err = t.copied.Readlink(file); err != nil {
			return "", err
		}
		frame(sum, file, digest)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
