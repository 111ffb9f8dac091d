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

	"github.com/skyhook-k8s/skyhook/internal/agent/delivery"
	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/overlay"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/retain"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// stageRun is one run of a mode that has steps, under the lock of its package.
type stageRun struct {
	*Agent
	mode   pack.Mode // a check for drift and a preflight have several
	held   *record.Held
	state  *host.Dir // the state root
	copied *host.Dir // the package on the host
	config pack.Config
	rec    record.Package
	plan   Plan
	trace  record.Trace
	answer string // of a preflight: the file for the answers
}

// runStage runs a mode that has steps.
func (a *Agent) runStage(ctx context.Context) (result error) {
	if err := a.checkCopyDir(); err != nil {
		return err
	}
	name, err := a.recordName()
	if err != nil {
		return err
	}
	t := &stageRun{Agent: a, mode: a.Mode}
	// It is created before the private directory of the record below it, so that a step that changes its user still
	// reaches its package.
	if t.state, err = a.Host.MakeDir(a.StateDir, 0o755); err != nil {
		return err
	}
	defer t.state.Close()
	if t.held, err = record.LockPackage(ctx, a.Host, a.StateDir, name, func() {
		a.Log.Info("waiting for another agent that works on this package", "package", name)
	}); err != nil {
		return err
	}
	defer t.held.Release()
	defer func() { t.noteEnd(result) }()
	if t.copied, err = a.deliverPackage(); err != nil {
		return err
	}
	defer t.copied.Close()
	if err := t.gatherSituation(name); err != nil {
		return err
	}
	if err := t.noteBegin(); err != nil {
		return err
	}
	err = t.runPlan(ctx)
	if errors.Is(err, host.ErrFull) {
		return err // its record would need the missing space
	}
	if note := t.recordFailure(err); note != nil {
		a.Log.Warn("the failure could not be recorded", "error", note)
	}
	return err
}

func (a *Agent) checkCopyDir() error {
	if slices.Contains(strings.Split(a.CopyDir, "/"), "..") {
		return fault.New(pack.BadUsage, "the copy directory %q contains ..; give the path without it", a.CopyDir)
	}
	return nil
}

// deliverPackage copies the package to its directory on the host and opens it. The check that follows a stage finds it as the stage left it.
func (a *Agent) deliverPackage() (*host.Dir, error) {
	d := a.delivery()
	if !a.result.Checked {
		if err := d.Bring(); err != nil {
			return nil, err
		}
	}
	return d.Open()
}

func (a *Agent) delivery() *delivery.Delivery {
	return &delivery.Delivery{
		Host: a.Host, Log: a.Log, CopyDir: a.CopyDir, SourceDir: a.SourceDir, ImageDir: a.ImageDir, Resource: a.Resource,
		ConfigDigest: a.ConfigDigest, PodUID: a.PodUID, Uninstalls: a.Mode.Uninstalls(),
	}
}

// recordName is the package name in the Skyhook, or that in config.json without a resource ID.
func (a *Agent) recordName() (string, error) {
	if a.Resource.Package != "" {
		return a.Resource.Package, nil
	}
	content, err := a.Host.ReadFile(path.Join(a.CopyDir, pack.ConfigFile))
	if missing := err; errors.Is(missing, fs.ErrNotExist) {
		if content, err = a.delivery().ReadConfig(); err != nil {
			err = errors.Join(missing, err)
		}
	}
	if err != nil {
		return "", err
	}
	config, problems := pack.Parse(content)
	if config.Name == "" {
		return "", fault.New(pack.InvalidPackage, "%w", problems.Err())
	}
	return config.Name, nil
}

// gatherSituation reads everything that the plan depends on.
func (t *stageRun) gatherSituation(name string) error {
	if err := t.loadPackage(); err != nil {
		return err
	}
	if err := t.requireConfigFiles(); err != nil {
		return err
	}
	t.trace = record.Trace{State: t.state, Owner: name, Config: t.config.Name, Version: t.config.Version}
	fault.LogIgnored(t.Log, t.trace.WriteStart())
	if err := t.loadRecord(); err != nil {
		return err
	}
	return t.planMode(t.mode)
}

// planMode makes the plan of a mode.
func (t *stageRun) planMode(mode pack.Mode) error {
	situation, err := t.describeSituation(mode, t.copied, t.config, t.rec)
	if err != nil {
		return err
	}
	t.mode, t.plan = mode, Decide(situation)
	t.setSecrets(t.plan)
	return nil
}

// loadPackage reads and validates the package.
func (t *stageRun) loadPackage() error {
	config, problems := pack.Load(t.copied.FS(), t.mode, pack.Want{Version: t.Resource.Version})
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
	t.refusesRollback.Store(config.RefusesRollback())
	return nil
}

// requireConfigFiles returns an error for config files that the package expects and that are not there.
func (t *stageRun) requireConfigFiles() error {
	if t.mode.Uninstalls() {
		return nil
	}
	var missing []string
	for _, file := range t.config.ExpectedConfigFiles {
		if st, err := t.copied.Stat(path.Join(pack.ConfigMapDir, file)); err != nil || st.IsDir() {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return fault.New(pack.MissingConfig, "the package expects config files that are not there: %s; add these keys to the package's configMap", strings.Join(missing, ", "))
	}
	return nil
}

// loadRecord reads the record, and once imports that of an earlier agent.
func (t *stageRun) loadRecord() error {
	rec, broken, err := t.held.Load()
	if err != nil {
		return err
	}
	t.rec = rec
	t.rec.Config = t.config.Name
	if broken != "" {
		t.Log.Warn(broken)
		t.rec.Imported = true // it existed: the files beside it contain no more than it did
		return nil
	}
	if rec.Imported {
		return nil
	}
	first, release := delivery.FindFirstSeen(t.state, t.Resource)
	notes, err := t.rec.ImportEarlier(t.state, t.config, t.releaseVersion(t.config), first, release)
	for _, note := range notes {
		t.Log.Warn(note)
	}
	if err == nil && t.rec.Installed.Version != "" {
		t.Log.Info("took over what an earlier agent recorded", "installed", t.rec.Installed.Version, "steps", len(t.rec.Steps))
	}
	return err
}

// describeSituation returns the input of Decide for a package on the host.
func (a *Agent) describeSituation(mode pack.Mode, copied *host.Dir, config pack.Config, rec record.Package) (Situation, error) {
	s := Situation{
		Mode: mode, Config: config, Scripts: map[string]string{}, Record: rec, Env: a.Env,
		RunID: a.RunID, Run: a.admissionID(), Release: a.releaseVersion(config), AlwaysRun: a.AlwaysRun,
	}
	for _, step := range config.Steps(mode) {
		file := step.File()
		digest, err := copied.Digest(path.Join(pack.StepDir, file))
		if err != nil {
			return s, err
		}
		s.Scripts[file] = digest
	}
	var err error
	s.ConfigDigest, err = delivery.ConfigDigest(copied)
	return s, err
}

// runPlan executes the plan.
func (t *stageRun) runPlan(ctx context.Context) error {
	t.forgetStale()
	if len(t.plan.Actions) == 0 {
		t.Log.Warn("the package has no steps for this mode; nothing to run", "mode", t.mode)
	}
	if t.mode.IsCheck() {
		return t.runChecks(ctx)
	}
	if err := t.held.Dir.CheckFreeSpace(); err != nil {
		return err // a step whose success cannot be recorded would run again
	}
	if !t.mode.Uninstalls() {
		if err := t.overlay().Converge(t.copied); err != nil {
			return err
		}
	}
	for _, action := range t.plan.Actions {
		if !action.Run {
			t.result.Skipped++
			t.Log.Info("skipping", "step", action.Name, "why", action.Why)
			fault.LogIgnored(t.Log, t.trace.WriteStepDone(t.mode, action.Step, action.Key, time.Now(), false))
			continue
		}
		if err := t.runAction(ctx, action); err != nil {
			return err
		}
	}
	if t.mode.Uninstalls() {
		if err := t.overlay().Converge(nil); err != nil {
			return err
		}
	}
	t.pruneHost()
	return nil
}

func (t *stageRun) overlay() *overlay.Overlay {
	return &overlay.Overlay{Host: t.Host, Log: t.Log, Record: &t.rec, Held: t.held}
}

// forgetStale removes marks that can never count again, which bounds the size of the record.
func (t *stageRun) forgetStale() {
	now := Situation{RunID: t.RunID, Release: t.releaseVersion(t.config)}
	t.rec.RetainSteps(func(m record.Step) bool { return isCurrent(now, m) })
}

// runAction runs one step and records its success before anything else happens.
func (t *stageRun) runAction(ctx context.Context, action Action) error {
	result, err := t.performStep(ctx, action)
	if err != nil {
		return err
	}
	t.rec.MarkDone(record.Step{
		Mode: string(t.mode), Name: action.Name, Key: action.Key, Run: t.Settings.admissionID(), Release: t.releaseVersion(t.config),
		Exit: result.Exit, At: time.Now().UTC(), SelfManaged: action.Step.Idempotence,
	})
	if err := t.saveRecord(); err != nil {
		return err
	}
	fault.LogIgnored(t.Log, t.trace.WriteStepDone(t.mode, action.Step, action.Key, time.Now(), true))
	return nil
}

// judgeResult turns the result of a step into a Fault; nil for success.
func judgeResult(action Action, r step.Result, lines []string) error {
	f := &fault.Fault{Class: pack.StepFailed, Step: action.Name, Lines: lines, Signal: r.Signal}
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
		f.Class = fault.Classify(r.Cause).Class
		f.Err = fmt.Errorf("step %s was stopped after %s: %w", action.Name, r.Duration.Round(time.Millisecond), r.Cause)
	case r.Signal == "SIGKILL":
		f.Err = fmt.Errorf("step %s was ended by SIGKILL, perhaps because it used more memory than the resources of its pod allow", action.Name)
	case r.Signal != "":
		f.Err = fmt.Errorf("step %s was ended by %s", action.Name, r.Signal)
	case slices.Contains(action.Step.ReturnCodes, r.Exit):
		return nil
	default:
		f.Err = fmt.Errorf("step %s exited with %d; it accepts %s", action.Name, r.Exit, formatCodes(action.Step))
	}
	return f
}

func formatCodes(s pack.Step) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s.ReturnCodes), " ", ", "), "[]")
}

// recordFailure records a failure, or clears the last failure of the mode.
func (t *stageRun) recordFailure(err error) error {
	past := t.rec.Failure
	switch {
	case err != nil:
		f := fault.Classify(err)
		t.rec.Failure = &record.Failure{Mode: string(t.mode), Step: f.Step, Outcome: string(f.Class), Detail: t.redact.Replace(f.Error()), At: time.Now().UTC()}
	case past != nil && pack.Mode(past.Mode).Action() == t.mode.Action() && (past.Mode == string(t.mode) || t.mode.IsCheck()):
		t.rec.Failure = nil
	default:
		return nil
	}
	return t.saveRecord()
}

func (t *stageRun) saveRecord() error { return t.held.Save(t.rec) }

// pruneHost applies the retention limits. Its errors are only logged.
func (t *stageRun) pruneHost() {
	p := retain.NewPruner(t.Host)
	err := p.PruneLogs(path.Join(t.LogDir, t.config.Name))
	if path.Dir(path.Clean(t.CopyDir)) == path.Clean(t.StateDir) {
		err = errors.Join(err, p.PruneCopies(t.state, t.rec, path.Base(path.Clean(t.CopyDir))))
	}
	for _, r := range p.Removed {
		t.Log.Info("removed", "path", r.Path, "why", r.Why)
	}
	fault.LogIgnored(t.Log, err)
}
