// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package interrupt restarts services of a host, or reboots it, once per interrupt.
package interrupt

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/retain"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Request is an interrupt of a host, as the operator asks for it.
type Request struct {
	Host     *host.Root
	Log      *slog.Logger
	StateDir string
	Resource pack.ResourceID
	// ID is the name under which it happens once; empty for operators that give none.
	ID string
	// Encoded is the interrupt.
	Encoded string
	// AfterFile is a pattern for a file of the host that the interrupt waits for, and Settle the minimum age of that file.
	AfterFile string
	Settle    time.Duration
	// OpenOutput opens the log of the programs that it runs.
	OpenOutput func(folder, name string) (out *step.Output, done func())
}

// Result is what is known of an interrupt that happened.
type Result struct {
	Reason string
	Reboot *pack.Reboot
}

// interruptRun is one interrupt of the host, under the lock of the state root's interrupts.
type interruptRun struct {
	*Request
	pack.Interrupt
	held   *record.Interrupts
	rec    record.Interrupt
	out    *step.Output
	result Result
}

// Run executes the interrupt, once per ID. It needs no package.
func (r *Request) Run(ctx context.Context) (Result, error) {
	d := &interruptRun{Request: r}
	err := d.run(ctx)
	return d.result, err
}

// HasBegun reports whether the interrupt is recorded.
func (r *Request) HasBegun() bool {
	asked, err := pack.DecodeInterrupt(r.Encoded)
	if err != nil {
		return false
	}
	id, err := r.identify(asked)
	return err == nil && record.HasInterrupt(r.Host, r.StateDir, id)
}

func (d *interruptRun) run(ctx context.Context) (err error) {
	if d.Interrupt, err = pack.DecodeInterrupt(d.Encoded); err != nil {
		return fault.New(pack.BadUsage, "%w", err)
	}
	if d.Type == pack.InterruptScript {
		d.Log.Warn("script interrupts do nothing")
		return nil
	}
	id, err := d.identify(d.Interrupt)
	if err != nil {
		return err
	}
	// Wait before taking the lock: other interrupts of this host need not wait for that file.
	if d.AfterFile != "" && !record.HasInterrupt(d.Host, d.StateDir, id) {
		if err := d.awaitFile(ctx); err != nil {
			return err
		}
	}
	if d.held, err = d.lock(ctx); err != nil {
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
		return fault.New(pack.InterruptFailed, "the record of interrupt %s was unreadable, so nobody knows whether the host already went through it; it is not asked for again under this id", id)
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
		fault.LogIgnored(d.Log, d.removeAwaitedFiles())
		return err
	}
	folder := "interrupts"
	if d.Resource.Package != "" {
		folder = path.Join(d.Resource.Package, d.Resource.Version, folder)
	}
	out, done := d.OpenOutput(folder, d.Type.AgentName())
	defer done()
	d.out = out
	out.WriteNote("interrupt " + string(d.Type) + " " + strings.Join(d.Services, " ") + " id " + d.rec.ID)
	switch d.Type {
	case pack.InterruptReboot:
		return d.rebootHost(ctx)
	case pack.InterruptService, pack.InterruptRestartAllServices:
		return d.restartServices(ctx)
	}
	return fault.New(pack.BadUsage, "interrupt type %q is not known to this agent", d.Type)
}

// identify names an interrupt, which is executed once. For operators without IDs it is made of the resource and
// the interrupt.
func (r *Request) identify(i pack.Interrupt) (string, error) {
	if r.ID != "" {
		return r.ID, nil
	}
	if r.Resource.Package == "" {
		return "", fault.New(pack.BadUsage, "an interrupt needs a name under which it happens once: set %s (or %s)", pack.EnvInterruptID, pack.EnvResourceID)
	}
	return strings.Join(append([]string{r.Resource.String(), string(i.Type)}, i.Services...), " "), nil
}

func (r *Request) lock(ctx context.Context) (*record.Interrupts, error) {
	state, err := r.Host.MakeDir(r.StateDir, 0o755)
	if err != nil {
		return nil, err
	}
	_ = state.Close()
	return record.LockInterrupts(ctx, r.Host, r.StateDir, func() { r.Log.Info("waiting for another agent that interrupts this host") })
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
	if d.ID != "" || d.Resource.Package == "" {
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
	fault.LogIgnored(d.Log, d.writeFlags())
	return nil
}

// recordDone records that the interrupt is done.
func (d *interruptRun) recordDone(what string) error {
	d.rec.State, d.rec.At = record.Done, time.Now().UTC()
	if err := d.held.Save(d.rec); err != nil {
		return err
	}
	d.setReason(what)
	fault.LogIgnored(d.Log, d.writeFlags())
	fault.LogIgnored(d.Log, retain.NewPruner(d.Host).PruneInterrupts(d.StateDir))
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
	if found, err := d.Host.DetectKairos(); err == nil && found.Runs {
		r.Version, r.System = found.Version(), found.Boot
	}
}

// awaitFile waits for a matching file of the host. The last element of the path may be a pattern.
func (r *Request) awaitFile(ctx context.Context) error {
	dir, pattern := path.Split(r.AfterFile)
	if _, err := path.Match(pattern, ""); err != nil || !path.IsAbs(r.AfterFile) || strings.ContainsAny(dir, "*?[") || pattern == "" {
		return fault.New(pack.BadUsage, "--after-file %q must be an absolute path on the host whose last element is a name or a pattern such as done-*", r.AfterFile)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		found := ""
		err := r.eachAwaitedFile(func(_ *host.Dir, e fs.DirEntry) error {
			if st, err := e.Info(); err == nil && (r.Settle == 0 || time.Since(st.ModTime()) >= r.Settle) {
				found = cmp.Or(found, e.Name())
			}
			return nil
		})
		if err != nil {
			return err
		}
		if found != "" {
			r.Log.Info("found", "file", path.Join(dir, found))
			return nil
		}
		if first {
			r.Log.Info("waiting for a file", "pattern", r.AfterFile)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s on the host: %w", r.AfterFile, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// eachAwaitedFile visits the files that the interrupt waits for.
func (r *Request) eachAwaitedFile(see func(*host.Dir, fs.DirEntry) error) error {
	dir, pattern := path.Split(r.AfterFile)
	return r.Host.EachEntry(path.Clean(dir), func(in *host.Dir, e fs.DirEntry) error {
		if ok, err := path.Match(pattern, e.Name()); !ok || err != nil || !e.Type().IsRegular() {
			return nil
		}
		return see(in, e)
	})
}

// removeAwaitedFiles removes the files that an interrupt waited for, after its start is recorded.
func (r *Request) removeAwaitedFiles() error {
	if r.AfterFile == "" {
		return nil
	}
	return r.eachAwaitedFile(func(in *host.Dir, e fs.DirEntry) error { return in.Delete(e.Name()) })
}
