// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/delivery"
	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/retain"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// aliveEvery is the interval of log lines for a step that runs long.
const aliveEvery = time.Minute

// ownEnv are variables of the agent's container that steps do not get: they describe the agent's image, and how its pod is made.
var ownEnv = []string{"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "TERM", "_", pack.EnvImageDir, pack.EnvWithCheck, pack.EnvStopFile, pack.EnvPreviousFile, pack.EnvSuccessFile}

// hostEnv is the base environment of every step.
var hostEnv = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME": "/root",
	"LANG": "C.UTF-8",
}

// performStep runs one step on the host. A step that did not succeed is a Fault.
func (t *stageRun) performStep(ctx context.Context, action Action) (step.Result, error) {
	if len(action.Missing) > 0 {
		return step.Result{}, &fault.Fault{Class: pack.MissingConfig, Step: action.Name, Err: errors.New("step " + action.Name +
			" takes arguments from variables that are not set: " + strings.Join(action.Missing, ", ") + "; add them to the package's env")}
	}
	if cause := context.Cause(ctx); cause != nil {
		return step.Result{}, &fault.Fault{Class: fault.Classify(cause).Class, Step: action.Name, Err: errors.New("step " + action.Name + " was not begun: " + cause.Error())}
	}
	file := path.Join(pack.StepDir, action.Path)
	if err := delivery.MakeExecutable(t.copied, file); err != nil {
		return step.Result{}, err
	}
	if !action.Step.OnHost {
		t.Log.Warn("on_host is false; the step runs on the host all the same, as it always did", "step", action.Name)
	}
	t.Log.Info("running", "step", action.Name, "path", action.Path, "arguments", action.Arguments, "why", action.Why)
	out, done := t.openOutput(path.Join(t.config.Name, t.config.Version), action.Path)
	defer done()
	out.WriteNote(string(t.mode) + ": " + strings.Join(append([]string{action.Path}, action.Arguments...), " "))
	before := readMounts()
	t.result.Ran++
	grace, gentle := t.Grace, error(nil)
	if grace == 0 {
		grace, gentle = defaultGrace, fault.ErrStopped
	}
	r := step.Run(ctx, step.Command{
		Root: t.Host, Path: path.Join(t.CopyDir, file), Args: action.resolveArguments(t.Env), Env: t.stepEnv(action), Dir: t.CopyDir,
		Timeout: action.Step.Timeout, Grace: grace, Gentle: gentle, Output: out,
		OnlyReads: t.isConfined() && t.mode.IsReadOnly(), Confined: t.isConfined(), Unconnected: len(t.Privileges) > 0 && !t.Privileges.AskSystemd(),
		AliveEvery: aliveEvery, Alive: func(d time.Duration) {
			t.Log.Info("still running", "step", action.Name, "since", d.Round(time.Second).String())
		},
	})
	for _, m := range readMounts().lostAfter(before, t.Host.Mount) {
		t.Log.Warn("the step mounted something that only this pod sees and that ends with it; let systemd mount it, with a .mount unit", "step", action.Name, "mount", m)
	}
	t.Log.Info("step ended", "step", action.Name, "exit", r.Exit, "signal", r.Signal, "duration", r.Duration.Round(time.Millisecond).String())
	return r, judgeResult(action, r, out.Lines())
}

// isConfined reports whether the pod may do less than everything, as those of preflights do.
func (t *stageRun) isConfined() bool { return len(t.Privileges) > 0 || t.Mode == pack.ModePreflight }

// stepEnv is the environment of a step, in increasing precedence: fixed values in place of those of the agent's image,
// the container's environment with that of the package, that of the step, and the reserved names. Nothing is parsed.
func (t *stageRun) stepEnv(action Action) []string {
	env := maps.Clone(hostEnv)
	for name, value := range t.Env {
		if !slices.Contains(ownEnv, name) {
			env[name] = value
		}
	}
	maps.Copy(env, action.Step.Env)
	env[pack.EnvStepRoot] = path.Join(t.CopyDir, pack.StepDir)
	env[pack.EnvSkyhookDir] = t.CopyDir
	if t.Privileges.AskSystemd() {
		env["SYSTEMD_IGNORE_CHROOT"] = "1" // systemctl would take the root directory for that of another system, and do nothing
	}
	if t.answer != "" {
		env[pack.EnvAnswer] = t.answer
	}
	if t.mode.Upgrades() {
		env[pack.EnvPreviousVersion], env[pack.EnvCurrentVersion] = t.plan.Previous, t.plan.Current
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// openOutput opens an output that writes to the container's standard output and to a new log on the host.
func (a *Agent) openOutput(folder, name string) (out *step.Output, done func()) {
	sinks := []io.Writer{a.Out}
	done = func() {}
	if a.WriteLogs || a.Mode == pack.ModeInterrupt {
		f, closeLog, err := retain.OpenLog(a.Host, path.Join(a.LogDir, folder, name))
		if err != nil {
			a.Log.Warn("there is no log on the host", "error", err)
		} else {
			sinks, done = append(sinks, f), func() { fault.LogIgnored(a.Log, closeLog()) }
		}
	}
	out = step.NewOutput(a.redact, a.BufferLimit, sinks...)
	out.Failed = func(err error) { a.Log.Warn("output could not be written any more", "error", err) }
	return out, done
}
