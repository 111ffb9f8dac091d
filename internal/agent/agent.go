// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package agent runs a package's steps on this host, durably, safely and explainably.
//
// It works like the operator: it reads the package, the record of the host and the environment (Situation), decides
// with a pure function which steps to run and why (Decide returns a Plan), then runs them and records each success
// before the next step starts. A run that is killed at any point and started again has the same result as an
// uninterrupted run.
//
// An Agent is one run. Every failure is a Fault with a class, an exit code and a sentence, and is written to the
// container's termination message.
package agent

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/interrupt"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Request describes one run of the agent.
type Request struct {
	Mode pack.Mode
	// RootMount is where the host's / is mounted, or host.Local.
	RootMount string
	// CopyDir is the directory of the package on the host. An interrupt needs none.
	CopyDir string
	// Interrupt is the encoded interrupt.
	Interrupt string
	// AfterFile is a pattern for a file of the host that an interrupt waits for.
	AfterFile string
	// Settle is the minimum age of that file.
	Settle time.Duration
}

// Agent is one run of the agent on one host.
type Agent struct {
	Request
	Settings
	Host *host.Root
	// Out receives the output of steps, Log that of the agent. Secrets are redacted in both.
	Out io.Writer
	Log *slog.Logger
	// Version is the version of the agent.
	Version string

	redact *step.Redactor
	result pack.Message

	resultLock    sync.Mutex // of the result
	resultWritten bool

	refusesRollback atomic.Bool // the package that runs does
}

// New opens the host and makes an Agent ready to run.
func New(req Request, set Settings, version string, out io.Writer) (*Agent, error) {
	root, err := host.Open(req.RootMount)
	if err != nil {
		return nil, fault.New(pack.BadUsage, "%w", err)
	}
	a := &Agent{Request: req, Settings: set, Host: root, Version: version}
	a.setSecrets(Plan{})
	a.Out = out
	a.Log = slog.New(slog.NewTextHandler(redactingWriter{a}, &slog.HandlerOptions{ReplaceAttr: formatTime}))
	return a, nil
}

// setSecrets sets the values to redact: the variables that the operator names, and those that arguments of a plan take from the
// environment.
func (a *Agent) setSecrets(p Plan) {
	names := slices.Clone(a.Redact)
	for _, action := range p.Actions {
		names = append(names, listEnvArguments(action.Step)...)
	}
	var values []string
	for _, name := range names {
		values = append(values, a.Env[name])
	}
	a.redact = step.NewRedactor(values)
}

// redactingWriter redacts the agent's own lines with the secrets known at that moment.
type redactingWriter struct{ a *Agent }

func (h redactingWriter) Write(b []byte) (int, error) { return h.a.redact.Writer(h.a.Out).Write(b) }

func formatTime(_ []string, attr slog.Attr) slog.Attr {
	if attr.Key == slog.TimeKey && attr.Value.Kind() == slog.KindTime {
		attr.Value = slog.StringValue(attr.Value.Time().UTC().Format(step.Stamp))
	}
	return attr
}

// Run executes the request and returns the result. Closing stop ends it early, as SIGTERM does.
func (a *Agent) Run(stop <-chan struct{}) pack.Message {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-stop:
			a.writeInterimResult()
			cancel(fault.ErrStopped)
		case <-ctx.Done():
		}
	}()
	a.result = pack.Message{
		Agent: a.Version, Package: a.Resource.Package, Version: a.Resource.Version, Mode: a.Mode, Outcome: pack.Succeeded,
	}
	err := a.awaitPrevious(ctx)
	if err == nil {
		start = time.Now()
		a.logStart()
		err = a.limitTime(ctx, a.dispatch)
	}
	if err == nil && a.owesCheck() {
		a.beginCheck()
		err = a.limitTime(ctx, a.runStage)
	}
	if err == nil {
		err = a.noteSuccess()
	}
	m := a.result
	m.Duration, m.RefusesRollback = time.Since(start), a.refusesRollback.Load()
	if err != nil {
		f := fault.Classify(err)
		m.Mode, m.Outcome, m.Class, m.Step, m.Exit, m.Signal = a.Mode, f.Class.Outcome(), f.Class, f.Step, f.Exit, f.Signal
		m.Reason, m.Lines = a.redact.Replace(f.Error()), f.Lines
		a.Log.Error("ended", "outcome", m.Outcome, "class", m.Class, "exit", m.Class.ExitCode(), "reason", m.Reason)
	} else {
		if a.Mode.IsCheck() || a.Mode.HasCheck() {
			m.Boot, _ = a.Host.BootID() // empty if it is unknown
		}
		a.Log.Info("ended", "outcome", m.Outcome, "ran", m.Ran, "skipped", m.Skipped, "reason", m.Reason)
	}
	a.resultLock.Lock()
	defer a.resultLock.Unlock()
	a.resultWritten = true
	a.writeResult(m)
	return m
}

func (a *Agent) logStart() {
	a.Log.Info("starting", "agent", a.Version, "mode", a.Mode, "rootMount", a.RootMount, "copyDir", a.CopyDir,
		"resource", a.Resource.String(), "run", a.RunID, "state", a.StateDir, "logs", a.LogDir)
	for _, text := range a.Warnings {
		a.Log.Warn(text)
	}
}

// limitTime runs a stage or its check until its deadline. With a timeout each of both has the whole of it.
func (a *Agent) limitTime(ctx context.Context, run func(context.Context) error) error {
	if a.StageTimeout > 0 {
		a.Deadline = time.Now().Add(a.StageTimeout)
		a.Env[pack.EnvDeadline] = pack.FormatDeadline(a.Deadline)
	}
	if a.Deadline.IsZero() {
		return run(ctx)
	}
	limited, free := context.WithDeadlineCause(ctx, a.Deadline, fault.ErrDeadline)
	defer free()
	return run(limited)
}

// owesCheck reports whether the check of the stage is still to run in this container.
func (a *Agent) owesCheck() bool {
	return a.WithCheck && a.Mode.HasCheck()
}

// beginCheck goes on from a stage that succeeded to its check.
func (a *Agent) beginCheck() {
	a.resultLock.Lock()
	defer a.resultLock.Unlock()
	a.Mode, a.result.Checked = a.Mode.Check(), true
	a.Log.Info("checking", "mode", a.Mode)
}

func (a *Agent) dispatch(ctx context.Context) error {
	if a.ResourceErr != nil {
		return fault.New(pack.BadUsage, "%w", a.ResourceErr)
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("nothing was begun: %w", cause)
	}
	if err := a.requireStart(); err != nil {
		return err
	}
	if a.CopyResolv && !a.Mode.IsReadOnly() {
		if err := a.copyResolv(); err != nil {
			return err
		}
	}
	switch a.Mode {
	case pack.ModeInterrupt:
		return a.runInterrupt(ctx)
	case pack.ModeDrift:
		return a.runDrift(ctx)
	case pack.ModePreflight:
		return a.runPreflight(ctx)
	}
	return a.runStage(ctx)
}

// runInterrupt executes the interrupt, once per ID.
func (a *Agent) runInterrupt(ctx context.Context) error {
	done, err := a.interrupt().Run(ctx)
	a.result.Reason, a.result.Reboot = done.Reason, done.Reboot
	return err
}

func (a *Agent) interrupt() *interrupt.Request {
	return &interrupt.Request{
		Host: a.Host, Log: a.Log, StateDir: a.StateDir, Resource: a.Resource, ID: a.InterruptID, Encoded: a.Interrupt,
		AfterFile: a.AfterFile, Settle: a.Settle, OpenOutput: a.openOutput,
	}
}

// copyResolv copies resolv.conf of the container to the host, which only COPY_RESOLV requests.
func (a *Agent) copyResolv() error {
	text, err := readLocal("/etc/resolv.conf")
	if err != nil {
		return fmt.Errorf("COPY_RESOLV is true: %w", err)
	}
	dir, err := a.Host.MakeDir("/etc", 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	name, err := rejectLink(dir, "resolv.conf")
	if err != nil {
		return err
	}
	return dir.WriteUnsynced(name, text, 0o644)
}

// rejectLink returns an error for a link: on most hosts a service manages resolv.conf.
func rejectLink(dir *host.Dir, name string) (string, error) {
	st, err := dir.Lstat(name)
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return "", fault.New(pack.HostProblem, "COPY_RESOLV is true, but %s/%s on the host is a link that a service of the host keeps; unset COPY_RESOLV", dir.Path, name)
	}
	return name, nil
}
