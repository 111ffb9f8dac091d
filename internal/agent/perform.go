// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// aliveEvery is how often a long step is said to be still running.
const aliveEvery = time.Minute

// ownEnv are variables of the agent's container that are not the step's: they describe the agent's image.
var ownEnv = []string{"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "TERM", "_"}

// hostEnv is what every step starts from.
var hostEnv = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME": "/root",
	"LANG": "C.UTF-8",
}

// perform runs one step on the host.
func (t *turn) perform(ctx context.Context, action Action) (step.Result, []string, error) {
	if len(action.Missing) > 0 {
		return step.Result{}, nil, &Fault{Class: pack.MissingConfig, Step: action.Name, Err: errors.New("step " + action.Name +
			" takes arguments from variables that are not set: " + strings.Join(action.Missing, ", ") + "; add them to the package's env")}
	}
	if cause := context.Cause(ctx); cause != nil {
		return step.Result{}, nil, &Fault{Class: classify(cause).Class, Step: action.Name, Err: errors.New("step " + action.Name + " was not begun: " + cause.Error())}
	}
	file := path.Join(pack.StepDir, action.Path)
	if err := t.executable(file); err != nil {
		return step.Result{}, nil, err
	}
	if !action.Step.OnHost {
		t.Log.Warn("on_host is false; the step runs on the host all the same, as it always did", "step", action.Name)
	}
	t.Log.Info("running", "step", action.Name, "path", action.Path, "arguments", action.Arguments, "why", action.Why)
	out, done := t.output(path.Join(t.config.Name, t.config.Version), action.Path)
	defer done()
	out.Say(string(t.Mode) + ": " + strings.Join(append([]string{action.Path}, action.Arguments...), " "))
	before := mounts()
	t.result.Ran++
	grace, gentle := t.Grace, error(nil)
	if grace == 0 {
		grace, gentle = defaultGrace, errStopped
	}
	r := step.Run(ctx, step.Command{
		Root: t.Host, Path: path.Join(t.CopyDir, file), Args: action.resolve(t.Env), Env: t.stepEnv(action), Dir: t.CopyDir,
		Timeout: action.Step.Timeout, Grace: grace, Gentle: gentle, Output: out,
		AliveEvery: aliveEvery, Alive: func(d time.Duration) {
			t.Log.Info("still running", "step", action.Name, "since", d.Round(time.Second).String())
		},
	})
	for _, m := range mounts().lostAfter(before, t.Host.Mount) {
		t.Log.Warn("the step mounted something that only this pod sees and that ends with it; let systemd mount it, with a .mount unit", "step", action.Name, "mount", m)
	}
	t.Log.Info("step ended", "step", action.Name, "exit", r.Exit, "signal", r.Signal, "duration", r.Duration.Round(time.Millisecond).String())
	return r, out.Lines(), nil
}

// executable sets the executable bits of a step's file: images often lose them.
func (t *turn) executable(file string) error {
	st, err := t.copied.Stat(file)
	if err != nil {
		return fault(pack.InvalidPackage, "step file %s: %w", path.Join(t.CopyDir, file), err)
	}
	if st.Mode().Perm()&0o111 == 0o111 {
		return nil
	}
	return t.copied.Chmod(file, st.Mode().Perm()|0o111)
}

// stepEnv is exactly what a step sees: fixed values for what the agent's image would say, then the container's
// environment with the package's own, then the step's, then the names the contract reserves. Nothing is parsed.
func (t *turn) stepEnv(action Action) []string {
	env := maps.Clone(hostEnv)
	for name, value := range t.Env {
		if !slices.Contains(ownEnv, name) {
			env[name] = value
		}
	}
	maps.Copy(env, action.Step.Env)
	env[pack.EnvStepRoot] = path.Join(t.CopyDir, pack.StepDir)
	env[pack.EnvSkyhookDir] = t.CopyDir
	if t.Mode.Upgrades() {
		env[pack.EnvPreviousVersion], env[pack.EnvCurrentVersion] = t.plan.Previous, t.plan.Current
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// output takes what a program says to the container's standard output and to a log of its own on the host.
func (a *Agent) output(folder, name string) (out *step.Output, done func()) {
	sinks := []io.Writer{a.Out}
	done = func() {}
	if a.WriteLogs || a.Mode == pack.ModeInterrupt {
		f, closeLog, err := a.openLog(folder, name)
		if err != nil {
			a.Log.Warn("there is no log on the host", "error", err)
		} else {
			sinks, done = append(sinks, f), closeLog
		}
	}
	out = step.NewOutput(a.redact, a.BufferLimit, sinks...)
	out.Failed = func(err error) { a.Log.Warn("output could not be written any more", "error", err) }
	return out, done
}

// openLog makes a log file that nobody else has and removes the oldest of its kind.
func (a *Agent) openLog(folder, name string) (*os.File, func(), error) {
	dir, err := a.Host.MakeDir(path.Join(a.LogDir, folder, path.Dir(name)), 0o700)
	if err != nil {
		return nil, nil, err
	}
	prefix := path.Base(name)
	f, err := newLog(dir, prefix)
	if err != nil {
		_ = dir.Close()
		return nil, nil, err
	}
	return f, func() {
		_ = f.Close()
		a.note(keepNewest(dir, prefix, logsPerStep))
		_ = dir.Close()
	}, nil
}

// newLog opens a log named by the time. Two in the same nanosecond, or after the clock was set back, differ still.
func newLog(dir *host.Dir, prefix string) (*os.File, error) {
	for at := time.Now().UTC(); ; at = at.Add(time.Nanosecond) {
		f, err := dir.OpenFile(logName(prefix, at), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}
