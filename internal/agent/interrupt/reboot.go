// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package interrupt

import (
	"context"
	"fmt"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/systemd"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// Limits of reboot requests.
const (
	rebootAsks = 5
	askAgain   = 5 * time.Minute
)

// rebootHost reboots the host once.
//
// The boot ID is durably recorded before the reboot is requested; then the agent waits to be killed. Only another boot
// ID proves the reboot, and no reboot is requested once there is one. If the agent is killed, at most a second request
// is sent to a host that has not gone down yet.
func (d *interruptRun) rebootHost(ctx context.Context) error {
	boot, err := d.Host.BootID()
	if err != nil {
		return err
	}
	if d.rec.State == record.Intended && d.rec.From != boot {
		d.rec.To = boot
		return d.recordDone("the host rebooted")
	}
	if d.held.Dir.IsInMemory() {
		return fault.New(pack.HostProblem, "the state root %s is kept in memory, so the host would forget that it rebooted and do it again and again; put the state root on a disk", d.StateDir)
	}
	if d.rec.Asks >= rebootAsks {
		return fault.New(pack.InterruptFailed, "the host was asked %d times to reboot and is still in boot %s; find out what holds it up, then ask under a new interrupt id", d.rec.Asks, boot)
	}
	control, how, done, err := systemd.Connect(ctx, d.Host, d.out)
	if err != nil {
		return systemdFault(ctx, fmt.Errorf("rebooting the host: %w", err))
	}
	defer done()
	for d.rec.Asks < rebootAsks {
		d.rec.State, d.rec.From, d.rec.Asks, d.rec.At = record.Intended, boot, d.rec.Asks+1, time.Now().UTC()
		if err := d.held.Save(d.rec); err != nil {
			return err
		}
		fault.LogIgnored(d.Log, d.removeAwaitedFiles())
		d.Log.Info("asking the host to reboot", "by", how, "boot", boot, "asked", d.rec.Asks)
		if err := control.Ask(ctx, systemd.Reboot); err != nil && context.Cause(ctx) == nil {
			return fault.New(pack.InterruptFailed, "the host refused to reboot: %w", err)
		}
		if err := d.awaitReboot(ctx); err != nil {
			return err
		}
	}
	return fault.New(pack.InterruptFailed, "the host was asked %d times to reboot and did not go down", d.rec.Asks)
}

// awaitReboot waits until the reboot kills the agent.
func (d *interruptRun) awaitReboot(ctx context.Context) error {
	again := time.NewTimer(askAgain)
	defer again.Stop()
	select {
	case <-again.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the host was asked to reboot; whether it did is seen at the next start: %w", context.Cause(ctx))
	}
}
