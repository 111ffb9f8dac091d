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

// A disturbance is one interrupt of the host, under the lock of the state root's interrupts.
type disturbance struct {
	*Agent
	pack.Interrupt
	held *record.Interrupts
	rec  record.Interrupt
	out  *step.Output
}

// interrupt does what the interrupt says, once for its id. It needs no package.
func (a *Agent) interrupt(ctx context.Context) error {
	asked, err := pack.DecodeInterrupt(a.Request.Interrupt)
	if err != nil {
		return fault(pack.BadUsage, "%w", err)
	}
	if asked.Type == pack.InterruptScript {
		a.Log.Warn("script interrupts do nothing")
		return nil
	}
	id, err := a.interruptID(asked)
	if err != nil {
		return err
	}
	// Waited for before anything is held: other interrupts of this host need not wait for that file.
	if a.AfterFile != "" && !record.Knows(a.Host, a.StateDir, id) {
		if err := a.awaitFile(ctx); err != nil {
			return err
		}
	}
	d := &disturbance{Agent: a, Interrupt: asked}
	if d.held, err = a.holdInterrupts(ctx); err != nil {
		return err
	}
	defer d.held.Release()
	if err := d.recall(id); err != nil {
		return err
	}
	if d.rec.State == record.Done {
		return d.again()
	}
	return d.carryOut(ctx)
}

// recall reads the record of the interrupt, or what an earlier agent left of it.
func (d *disturbance) recall(id string) error {
	rec, known, broken, err := d.held.Load(id)
	if err != nil {
		return err
	}
	if broken != "" {
		d.Log.Warn(broken)
	}
	if rec.State == record.Lost {
		return fault(pack.InterruptFailed, "the record of interrupt %s was unreadable, so nobody knows whether the host already went through it; it is not asked for again under this id", id)
	}
	d.rec = rec
	d.rec.Type = string(d.Type)
	if !known && d.happenedBefore() {
		return d.finish("an earlier agent did it")
	}
	return nil
}

func (d *disturbance) carryOut(ctx context.Context) error {
	if d.Type == pack.InterruptNoop {
		err := d.finish("nothing to do")
		d.note(d.consume())
		return err
	}
	folder := "interrupts"
	if d.Resource.Package != "" {
		folder = path.Join(d.Resource.Package, d.Resource.Version, folder)
	}
	out, done := d.output(folder, d.Type.AgentName())
	defer done()
	d.out = out
	out.Say("interrupt " + string(d.Type) + " " + strings.Join(d.Services, " ") + " id " + d.rec.ID)
	switch d.Type {
	case pack.InterruptReboot:
		return d.reboot(ctx)
	case pack.InterruptService:
		return d.restartNamed(ctx)
	case pack.InterruptRestartAllServices:
		return d.restartAll(ctx)
	}
	return fault(pack.BadUsage, "interrupt type %q is not known to this agent", d.Type)
}

// interruptID is what makes an interrupt happen once. Under an operator without ids it is the resource and what is asked.
func (a *Agent) interruptID(i pack.Interrupt) (string, error) {
	if a.InterruptID != "" {
		return a.InterruptID, nil
	}
	if a.Resource.Package == "" {
		return "", fault(pack.BadUsage, "an interrupt needs a name under which it happens once: set %s (or %s)", pack.EnvInterruptID, pack.EnvResourceID)
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
	held, err := record.HoldInterrupts(wait, a.Host, a.StateDir, func() { a.Log.Info("waiting for another agent that interrupts this host") })
	if errors.Is(err, errLocked) {
		return nil, fault(pack.RetryLater, "another agent has been interrupting this host for more than %s: %w", lockWait, err)
	}
	return held, err
}

// flags are the names under which earlier agents flagged the commands of the interrupt.
func (d *disturbance) flags() []string {
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

// happenedBefore tells whether an earlier agent went through this very interrupt. It flagged a reboot before asking for
// it, so a reboot counts only if the host was started since.
func (d *disturbance) happenedBefore() bool {
	if d.InterruptID != "" || d.Resource.Package == "" {
		return false
	}
	state, err := d.Host.Dir(d.StateDir)
	if err != nil {
		return false
	}
	defer state.Close()
	for _, flag := range d.flags() {
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

// again says that there is nothing left to do.
func (d *disturbance) again() error {
	d.Log.Info("this interrupt is done already", "id", d.rec.ID, "at", d.rec.At)
	d.tell("it was done before")
	d.note(d.trace())
	return nil
}

// finish records that the interrupt happened.
func (d *disturbance) finish(what string) error {
	d.rec.State, d.rec.At = record.Done, time.Now().UTC()
	if err := d.held.Save(d.rec); err != nil {
		return err
	}
	d.tell(what)
	d.note(d.trace())
	s := &sweeper{root: d.Host, now: time.Now()}
	d.note(s.interrupts(d.StateDir))
	return nil
}

// trace sets the flags for people and earlier agents.
func (d *disturbance) trace() error {
	if d.Resource.Package == "" {
		return nil
	}
	state, err := d.Host.Dir(d.StateDir)
	if err != nil {
		return err
	}
	defer state.Close()
	return record.NoteInterrupt(state, d.Resource.String(), d.flags(), d.rec.At)
}

func (d *disturbance) tell(what string) {
	d.result.Reason = what
	if d.rec.From != "" && d.rec.To != "" {
		d.result.Reboot = &pack.Reboot{From: d.rec.From, To: d.rec.To}
		d.cameUp(d.result.Reboot)
	}
}

// cameUp says which Kairos came up, because one that does not boot leaves the host with the system from before. Of a boot
// that is over nobody can tell any more.
func (d *disturbance) cameUp(r *pack.Reboot) {
	if boot, err := d.Host.BootID(); err != nil || boot != r.To {
		return
	}
	if found, err := LookForKairos(d.Host); err == nil && found.Runs {
		r.Version, r.System = found.Version(), found.Boot
	}
}

// awaitFile waits for a file of the host whose name matches. The last element of the path may be a pattern.
func (a *Agent) awaitFile(ctx context.Context) error {
	dir, pattern := path.Split(a.AfterFile)
	if _, err := path.Match(pattern, ""); err != nil || !path.IsAbs(a.AfterFile) || strings.ContainsAny(dir, "*?[") || pattern == "" {
		return fault(pack.BadUsage, "--after-file %q must be an absolute path on the host whose last element is a name or a pattern such as done-*", a.AfterFile)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		found, err := a.matching(path.Clean(dir), pattern, a.Settle)
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

// matching finds a file whose name matches, and that is at least that old.
func (a *Agent) matching(folder, pattern string, age time.Duration) (string, error) {
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

// consume takes the files an interrupt waited for away, once it is recorded that it goes on.
func (a *Agent) consume() error {
	if a.AfterFile == "" {
		return nil
	}
	dir, pattern := path.Split(a.AfterFile)
	for {
		found, err := a.matching(path.Clean(dir), pattern, 0)
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
