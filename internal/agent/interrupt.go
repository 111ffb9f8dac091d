// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// interruptRun is one interrupt of the host, under the lock of the state root's interrupts.
type interruptRun struct {
	*Agent
	pack.Interrupt
	held *record.Interrupts
	rec  record.Interrupt
	out  *step.Output
}

// runInterrupt executes the interrupt, once per ID. It needs no package.
func (a *Agent) runInterrupt(ctx context.Context) error {
	asked, err := pack.DecodeInterrupt(a.Request.Interrupt)
	if err != nil {
		return newFault(pack.BadUsage, "%w", err)
	}
	if asked.Type == pack.InterruptScript {
		a.Log.Warn("script interrupts do nothing")
		return nil
	}
	id, err := a.interruptID(asked)
	if err != nil {
		return err
	}
	// Wait before taking the lock: other interrupts of this host need not wait for that file.
	if a.AfterFile != "" && !record.HasInterrupt(a.Host, a.StateDir, id) {
		if err := a.awaitFile(ctx); err != nil {
			return err
		}
	}
	d := &interruptRun{Agent: a, Interrupt: asked}
	if d.held, err = a.holdInterrupts(ctx); err != nil {
		return err
	}
	defer d.held.Release()
	if err := d.loadInterrupt(id); err != nil {
		return err
	}
	if d.rec.State == record.Done {
		return d.reportDone()
	}
	return d.carryOut(ctx)
}

// loadInterrupt reads the record of the interrupt, or the flags of an earlier agent.
func (d *interruptRun) loadInterrupt(id string) error {
	rec, known, broken, err := d.held.Load(id)
	if err != nil {
		return err
	}
	if broken != "" {
		d.Log.Warn(broken)
	}
	if rec.State == record.Lost {
		return newFault(pack.InterruptFailed, "the record of interrupt %s was unreadable, so nobody knows whether the host already went through it; it is not asked for again under this id", id)
	}
	d.rec = rec
	d.rec.Type = string(d.Type)
	if !known && d.happenedBefore() {
		return d.recordDone("an earlier agent did it")
	}
	return nil
}

func (d *interruptRun) carryOut(ctx context.Context) error {
	if d.Type == pack.InterruptNoop {
		err := d.recordDone("nothing to do")
		d.logIgnored(d.removeAwaitedFiles())
		return err
	}
	folder := "interrupts"
	if d.Resource.Package != "" {
		folder = path.Join(d.Resource.Package, d.Resource.Version, folder)
	}
	out, done := d.openOutput(folder, d.Type.AgentName())
	defer done()
	d.out = out
	out.WriteNote("interrupt " + string(d.Type) + " " + strings.Join(d.Services, " ") + " id " + d.rec.ID)
	switch d.Type {
	case pack.InterruptReboot:
		return d.rebootHost(ctx)
	case pack.InterruptService:
		return d.restartNamed(ctx)
	case pack.InterruptRestartAllServices:
		return d.restartAll(ctx)
	}
	return newFault(pack.BadUsage, "interrupt type %q is not known to this agent", d.Type)
}

// interruptID identifies an interrupt, which is executed once. For operators without IDs it is made of the resource and
// the interrupt.
func (a *Agent) interruptID(i pack.Interrupt) (string, error) {
	if a.InterruptID != "" {
		return a.InterruptID, nil
	}
	if a.Resource.Package == "" {
		return "", newFault(pack.BadUsage, "an interrupt needs a name under which it happens once: set %s (or %s)", pack.EnvInterruptID, pack.EnvResourceID)
	}
	return strings.Join(append([]string{a.Resource.String(), string(i.Type)}, i.Services...), " "), nil
}

func (a *Agent) holdInterrupts(ctx context.Context) (*record.Interrupts, error) {
	state, err := a.Host.MakeDir(a.StateDir, 0o755)
	if err != nil {
		return nil, err
	}
	_ = state.Close()
	wait, cancel := context.WithTimeoutCause(ctx, lockWait, errLocked)
	defer cancel()
	held, err := record.LockInterrupts(wait, a.Host, a.StateDir, func() { a.Log.Info("waiting for another agent that interrupts this host") })
	if errors.Is(err, errLocked) {
		return nil, newFault(pack.RetryLater, "another agent has been interrupting this host for more than %s: %w", lockWait, err)
	}
	return held, err
}

// flagNames are the names of the flags that earlier agents set for the commands of the interrupt.
func (d *interruptRun) flagNames() []string {
	name := d.Type.AgentName()
	switch d.Type {
	case pack.InterruptNoop:
		return []string{name}
	case pack.InterruptService:
		var all []string
		for i := range len(d.Services) + 1 { // the first was the daemon-reload
			all = append(all, fmt.Sprintf("%s_%d", name, i))
		}
		return all
	}
	return []string{name + "_0"}
}

// happenedBefore reports whether an earlier agent executed this interrupt. It set the flag of a reboot before
// requesting it, so a reboot counts only if the host has booted since.
func (d *interruptRun) happenedBefore() bool {
	if d.InterruptID != "" || d.Resource.Package == "" {
		return false
	}
	state, err := d.Host.Dir(d.StateDir)
	if err != nil {
		return false
	}
	defer state.Close()
	for _, flag := range d.flagNames() {
		at, ok := record.FormerInterrupt(state, d.Resource.String(), flag)
		if !ok {
			return false
		}
		if d.Type == pack.InterruptReboot {
			booted, err := d.Host.BootTime()
			if err != nil || !at.Before(booted) {
				return false
			}
		}
	}
	return true
}

// reportDone reports that there is nothing left to do.
func (d *interruptRun) reportDone() error {
	d.Log.Info("this interrupt is done already", "id", d.rec.ID, "at", d.rec.At)
	if boot, err := d.Host.BootID(); err == nil && d.rec.To != "" && boot != d.rec.From {
		d.rec.To = boot // the host may have booted again since: the node reports the boot that runs
	}
	d.setReason("it was done before")
	d.logIgnored(d.writeFlags())
	return nil
}

// recordDone records that the interrupt is done.
func (d *interruptRun) recordDone(what string) error {
	d.rec.State, d.rec.At = record.Done, time.Now().UTC()
	if err := d.held.Save(d.rec); err != nil {
		return err
	}
	d.setReason(what)
	d.logIgnored(d.writeFlags())
	s := &pruner{root: d.Host, now: time.Now()}
	d.logIgnored(s.pruneInterrupts(d.StateDir))
	return nil
}

// writeFlags writes the flags for people and earlier agents.
func (d *interruptRun) writeFlags() error {
	if d.Resource.Package == "" {
		return nil
	}
	state, err := d.Host.Dir(d.StateDir)
	if err != nil {
		return err
	}
	defer state.Close()
	return record.WriteInterruptFlags(state, d.Resource.String(), d.flagNames(), d.rec.At)
}

func (d *interruptRun) setReason(what string) {
	d.result.Reason = what
	if d.rec.From != "" && d.rec.To != "" {
		d.result.Reboot = &pack.Reboot{From: d.rec.From, To: d.rec.To}
		d.reportSystem(d.result.Reboot)
	}
}

// reportSystem reports which Kairos system booted, because the host falls back to the previous one if the new one does
// not boot. It is unknown for earlier boots.
func (d *interruptRun) reportSystem(r *pack.Reboot) {
	if boot, err := d.Host.BootID(); err != nil || boot != r.To {
		return
	}
	if found, err := DetectKairos(d.Host); err == nil && found.Runs {
		r.Version, r.System = found.Version(), found.Boot
	}
}

// awaitFile waits for a matching file of the host. The last element of the path may be a pattern.
func (a *Agent) awaitFile(ctx context.Context) error {
	dir, pattern := path.Split(a.AfterFile)
	if _, err := path.Match(pattern, ""); err != nil || !path.IsAbs(a.AfterFile) || strings.ContainsAny(dir, "*?[") || pattern == "" {
		return newFault(pack.BadUsage, "--after-file %q must be an absolute path on the host whose last element is a name or a pattern such as done-*", a.AfterFile)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		found, err := a.findMatchingFile(path.Clean(dir), pattern, a.Settle)
		if err != nil {
			return err
		}
		if found != "" {
			a.Log.Info("found", "file", path.Join(dir, found))
			return nil
		}
		if first {
			a.Log.Info("waiting for a file", "pattern", a.AfterFile)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s on the host: %w", a.AfterFile, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// findMatchingFile finds a file whose name matches and that has at least that age.
func (a *Agent) findMatchingFile(folder, pattern string, age time.Duration) (string, error) {
	dir, err := a.Host.Dir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer dir.Close()
	list, err := dir.Names(".")
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if ok, _ := path.Match(pattern, e.Name()); !ok || !e.Type().IsRegular() {
			continue
		}
		if age > 0 {
			st, err := e.Info()
			if err != nil || time.Since(st.ModTime()) < age {
				continue
			}
		}
		return e.Name(), nil
	}
	return "", nil
}

// removeAwaitedFiles removes the files that an interrupt waited for, after its start is recorded.
func (a *Agent) removeAwaitedFiles() error {
	if a.AfterFile == "" {
		return nil
	}
	dir, pattern := path.Split(a.AfterFile)
	for {
		found, err := a.findMatchingFile(path.Clean(dir), pattern, 0)
		if err != nil || found == "" {
			return err
		}
		var in *host.Dir
		if in, err = a.Host.Dir(path.Clean(dir)); err != nil {
			return err
		}
		err = in.Delete(found)
		_ = in.Close()
		if err != nil {
			return err
		}
	}
}
