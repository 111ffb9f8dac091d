// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// lockWait is how long another agent with the same package may take before this one gives up for now.
const lockWait = 2 * time.Minute

// A turn is one run of a mode that has steps, under the lock of its package.
type turn struct {
	*Agent
	held   *record.Held
	state  *host.Dir // the state root
	copied *host.Dir // the package on the host
	config pack.Config
	rec    record.Package
	plan   Plan
	trace  record.Trace
}

// stage runs a mode that has steps.
func (a *Agent) stage(ctx context.Context) error {
	if slices.Contains(strings.Split(a.CopyDir, "/"), "..") {
		return fault(pack.BadUsage, "the copy directory %q contains ..; give the path without it", a.CopyDir)
	}
	name, err := a.recordName()
	if err != nil {
		return err
	}
	t := &turn{Agent: a}
	// Made before the private folder of the record below it: a step may change user and still reach its package.
	if t.state, err = a.Host.MakeDir(a.StateDir, 0o755); err != nil {
		return err
	}
	defer t.state.Close()
	if t.held, err = a.hold(ctx, name); err != nil {
		return err
	}
	defer t.held.Release()
	if t.copied, err = a.deliver(); err != nil {
		return err
	}
	defer t.copied.Close()
	if err := t.gather(name); err != nil {
		return err
	}
	err = t.run(ctx)
	if errors.Is(err, host.ErrFull) {
		return err // a record of it would need the space that is missing
	}
	if note := t.remember(err); note != nil {
		a.Log.Warn("the failure could not be recorded", "error", note)
	}
	return err
}

// recordName is the package as the Skyhook names it; without a resource id, as its config.json does.
func (a *Agent) recordName() (string, error) {
	if a.Resource.Package != "" {
		return a.Resource.Package, nil
	}
	content, err := a.Host.ReadFile(path.Join(a.CopyDir, pack.ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		text, sourceErr := readLocal(path.Join(a.SourceDir, pack.ConfigFile))
		content, err = []byte(text), errors.Join(err, sourceErr)
		if sourceErr == nil {
			err = nil
		}
	}
	if err != nil {
		return "", err
	}
	config, problems := pack.Parse(content)
	if config.Name == "" {
		return "", fault(pack.InvalidPackage, "%w", problems.Err())
	}
	return config.Name, nil
}

// hold waits for other agents that work on the same package.
func (a *Agent) hold(ctx context.Context, name string) (*record.Held, error) {
	wait, cancel := context.WithTimeoutCause(ctx, lockWait, errLocked)
	defer cancel()
	held, err := record.Hold(wait, a.Host, a.StateDir, name, func() {
		a.Log.Info("waiting for another agent that works on this package", "package", name)
	})
	if errors.Is(err, errLocked) {
		return nil, fault(pack.RetryLater, "another agent has been working on %s for more than %s: %w", name, lockWait, err)
	}
	return held, err
}

var errLocked = errors.New("it is still held")

// gather reads everything the plan depends on.
func (t *turn) gather(name string) error {
	if err := t.load(); err != nil {
		return err
	}
	t.trace = record.Trace{State: t.state, Owner: name, Config: t.config.Name, Version: t.config.Version}
	t.note(t.trace.Start())
	if err := t.recall(); err != nil {
		return err
	}
	situation, err := t.situation(t.copied, t.config, t.rec)
	if err != nil {
		return err
	}
	t.plan = Decide(situation)
	var names []string
	for _, action := range t.plan.Actions {
		names = append(names, fromEnv(action.Step)...)
	}
	t.hide(names)
	return nil
}

// load reads and checks the package.
func (t *turn) load() error {
	config, problems := pack.Load(t.copied.FS(), t.Mode, pack.Want{Version: t.Resource.Version})
	for _, p := range problems {
		if p.Severity == pack.Warning {
			t.Log.Warn(p.Message, "file", p.File, "path", p.Path, "fix", p.Fix)
		} else {
			t.Log.Error(p.Message, "file", p.File, "path", p.Path, "fix", p.Fix)
		}
	}
	if err := problems.Err(); err != nil {
		return err
	}
	t.config = config
	if t.Mode.Uninstalls() {
		return nil
	}
	var missing []string
	for _, file := range config.ExpectedConfigFiles {
		if st, err := t.copied.Stat(path.Join(pack.ConfigMapDir, file)); err != nil || st.IsDir() {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return fault(pack.MissingConfig, "the package expects config files that are not there: %s; add these keys to the package's configMap", strings.Join(missing, ", "))
	}
	return nil
}

// recall reads the record, once also what an earlier agent left.
func (t *turn) recall() error {
	rec, broken, err := t.held.Load()
	if err != nil {
		return err
	}
	t.rec = rec
	t.rec.Config = t.config.Name
	if broken != "" {
		t.Log.Warn(broken)
		t.rec.Imported = true // it was there once: what lies beside it says no more than it did
		return nil
	}
	if rec.Imported {
		return nil
	}
	first, release := t.firstSeen()
	notes, err := t.rec.Adopt(t.state, t.config, t.release(t.config), first, release)
	for _, note := range notes {
		t.Log.Warn(note)
	}
	if err == nil && t.rec.Installed.Version != "" {
		t.Log.Info("took over what an earlier agent recorded", "installed", t.rec.Installed.Version, "steps", len(t.rec.Steps))
	}
	return err
}

// situation is what Decide looks at, for a package on the host.
func (a *Agent) situation(copied *host.Dir, config pack.Config, rec record.Package) (Situation, error) {
	s := Situation{
		Mode: a.Mode, Config: config, Scripts: map[string]string{}, Record: rec, Env: a.Env,
		RunID: a.RunID, Run: a.run(), Release: a.release(config), AlwaysRun: a.AlwaysRun,
	}
	for _, step := range config.Steps(a.Mode) {
		file := step.File()
		digest, err := copied.Digest(path.Join(pack.StepDir, file))
		if err != nil {
			return s, err
		}
		s.Scripts[file] = digest
	}
	var err error
	s.ConfigDigest, err = configDigest(copied)
	return s, err
}

// run carries out the plan.
func (t *turn) run(ctx context.Context) error {
	t.forgetStale()
	if len(t.plan.Actions) == 0 {
		t.Log.Warn("the package has no steps for this mode; nothing to run", "mode", t.Mode)
	}
	if t.Mode.IsCheck() {
		return t.check(ctx)
	}
	if err := t.held.Dir.Room(); err != nil {
		return err // a step whose success cannot be recorded would run again
	}
	if !t.Mode.Uninstalls() {
		if err := t.layOver(); err != nil {
			return err
		}
	}
	for _, action := range t.plan.Actions {
		if !action.Run {
			t.result.Skipped++
			t.Log.Info("skipping", "step", action.Name, "why", action.Why)
			t.note(t.trace.StepDone(t.Mode, action.Step, action.Key, time.Now(), false))
			continue
		}
		if err := t.act(ctx, action); err != nil {
			return err
		}
	}
	if t.Mode.Uninstalls() {
		if err := t.takeAway(); err != nil {
			return err
		}
	}
	t.tidy()
	return nil
}

// forgetStale drops marks that can never count again, so that the record stays as small as the package.
func (t *turn) forgetStale() {
	now := Situation{RunID: t.RunID, Release: t.release(t.config)}
	t.rec.Retain(func(m record.Step) bool { return current(now, m) })
}

// act runs one step of an action mode and records its success before anything else happens.
func (t *turn) act(ctx context.Context, action Action) error {
	result, lines, err := t.perform(ctx, action)
	if err != nil {
		return err
	}
	if f := verdict(action, result, lines); f != nil {
		return f
	}
	t.rec.Finish(record.Step{
		Mode: string(t.Mode), Name: action.Name, Key: action.Key, Run: t.Settings.run(), Release: t.release(t.config),
		Exit: result.Exit, At: time.Now().UTC(), SelfManaged: action.Step.Idempotence,
	})
	if err := t.save(); err != nil {
		return err
	}
	t.note(t.trace.StepDone(t.Mode, action.Step, action.Key, time.Now(), true))
	return nil
}

// verdict says what a step's end means; nil is success.
func verdict(action Action, r step.Result, lines []string) *Fault {
	f := &Fault{Class: pack.StepFailed, Step: action.Name, Lines: lines, Signal: r.Signal}
	if r.Exit >= 0 {
		f.Exit = &r.Exit
	}
	switch {
	case r.Err != nil:
		f.Err = fmt.Errorf("step %s could not be started: %w", action.Name, r.Err)
	case errors.Is(r.Cause, step.ErrTimeout):
		f.Class = pack.TimedOut
		f.Err = fmt.Errorf("step %s did not end within its timeout of %s and was stopped", action.Name, action.Step.Timeout)
	case r.Cause != nil:
		f.Class = classify(r.Cause).Class
		f.Err = fmt.Errorf("step %s was stopped after %s: %w", action.Name, r.Duration.Round(time.Millisecond), r.Cause)
	case r.Signal == "SIGKILL":
		f.Err = fmt.Errorf("step %s was ended by SIGKILL, perhaps because it used more memory than the resources of its pod allow", action.Name)
	case r.Signal != "":
		f.Err = fmt.Errorf("step %s was ended by %s", action.Name, r.Signal)
	case accepts(action.Step, r.Exit):
		return nil
	default:
		f.Err = fmt.Errorf("step %s exited with %d; it accepts %s", action.Name, r.Exit, codes(action.Step))
	}
	return f
}

func accepts(s pack.Step, exit int) bool {
	for _, code := range s.ReturnCodes {
		if code == exit {
			return true
		}
	}
	return false
}

func codes(s pack.Step) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s.ReturnCodes), " ", ", "), "[]")
}

// remember records a failure, or that the mode's last failure is past.
func (t *turn) remember(err error) error {
	past := t.rec.Failure
	switch {
	case err != nil:
		f := classify(err)
		t.rec.Failure = &record.Failure{Mode: string(t.Mode), Step: f.Step, Outcome: string(f.Class), Detail: t.redact.Replace(f.Error()), At: time.Now().UTC()}
	case past != nil && pack.Mode(past.Mode).Action() == t.Mode.Action() && (past.Mode == string(t.Mode) || t.Mode.IsCheck()):
		t.rec.Failure = nil
	default:
		return nil
	}
	return t.save()
}

func (t *turn) save() error { return t.held.Save(t.rec) }

// note tells of a file for people that could not be written; nothing depends on it.
func (a *Agent) note(err error) {
	if err != nil {
		a.Log.Warn("a file for people could not be written", "error", err)
	}
}
