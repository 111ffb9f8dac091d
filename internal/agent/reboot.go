// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/systemd"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Bounds of asking for a reboot.
const (
	rebootAsks = 5
	askAgain   = 5 * time.Minute
)

// reboot reboots the host once.
//
// The boot's id is recorded, durably, before the host is asked; then the agent waits to be killed. It never decides that
// the reboot happened by anything but another boot id, and never asks when it sees one. So killing it anywhere costs at
// most a second request to a host that has not gone down yet.
func (d *disturbance) reboot(ctx context.Context) error {
	boot, err := d.Host.BootID()
	if err != nil {
		return err
	}
	if d.rec.State == record.Intended && d.rec.From != boot {
		d.rec.To = boot
		return d.finish("the host rebooted")
	}
	if d.held.Dir.Forgets() {
		return fault(pack.HostProblem, "the state root %s is kept in memory, so the host would forget that it rebooted and do it again and again; put the state root on a disk", d.StateDir)
	}
	if d.rec.Asks >= rebootAsks {
		return fault(pack.InterruptFailed, "the host was asked %d times to reboot and is still in boot %s; find out what holds it up, then ask under a new interrupt id", d.rec.Asks, boot)
	}
	control, how, done, err := systemd.Connect(ctx, d.Host, d.out)
	if err != nil {
		return failed(ctx, fmt.Errorf("rebooting the host: %w", err))
	}
	defer done()
	for d.rec.Asks < rebootAsks {
		d.rec.State, d.rec.From, d.rec.Asks, d.rec.At = record.Intended, boot, d.rec.Asks+1, time.Now().UTC()
		if err := d.held.Save(d.rec); err != nil {
			return err
		}
		d.note(d.consume())
		d.Log.Info("asking the host to reboot", "by", how, "boot", boot, "asked", d.rec.Asks)
		if err := control.Ask(ctx, systemd.Reboot); err != nil && context.Cause(ctx) == nil {
			return fault(pack.InterruptFailed, "the host refused to reboot: %w", err)
		}
		if err := d.awaitEnd(ctx); err != nil {
			return err
		}
	}
	return fault(pack.InterruptFailed, "the host was asked %d times to reboot and did not go down", d.rec.Asks)
}

// awaitEnd waits to be killed by the reboot.
func (d *disturbance) awaitEnd(ctx context.Context) error {
	again := time.NewTimer(askAgain)
	defer again.Stop()
	select {
	case <-again.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the host was asked to reboot; whether it did is seen at the next start: %w", context.Cause(ctx))
	}
}
