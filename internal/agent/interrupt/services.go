// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package interrupt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/fault"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/systemd"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// reconnects limits the reconnects to systemd in one run.
const reconnects = 10

// untouched are services that restarting all services excludes: services of the host itself, its network, and login
// sessions. A name ending in * is a prefix.
var untouched = []string{
	"systemd-*", "dbus*", "init*", "emergency*", "rescue*",
	"getty@*", "serial-getty@*", "console-getty*", "container-getty@*", "autovt@*",
	"user@*", "user-runtime-dir@*", "session-*", "display-manager*", "gdm*", "sddm*", "lightdm*",
	"NetworkManager*", "networking*", "network.service", "ifup@*", "dhcpcd*", "dhclient*", "wicked*", "connman*", "netplan-*", "wpa_supplicant*", "iwd*",
	"iscsid*", "multipathd*", "lvm2-*", "mdmonitor*", "rpc-statd*", "nfs-*", "ceph*",
}

// sysctlUnit loads the host's sysctl settings.
const sysctlUnit = "systemd-sysctl.service"

// serviceRestarter restarts services, each exactly once per interrupt, even if that kills the agent because its
// container runtime is one of them.
type serviceRestarter struct {
	*interruptRun
	control systemd.Control
	close   func()
	boot    string
	cuts    int
}

func (d *interruptRun) newRestarter(ctx context.Context) (*serviceRestarter, error) {
	boot, err := d.Host.BootID()
	if err != nil {
		return nil, err
	}
	c := &serviceRestarter{interruptRun: d, boot: boot, close: func() {}}
	return c, c.connect(ctx)
}

func (c *serviceRestarter) connect(ctx context.Context) error {
	c.close()
	control, how, done, err := systemd.Connect(ctx, c.Host, c.out)
	if err != nil {
		c.close = func() {}
		return systemdFault(ctx, fmt.Errorf("restarting services: %w", err))
	}
	c.control, c.close = control, done
	c.Log.Info("reached the host's systemd", "by", how)
	return nil
}

// restartServices restarts the services of the interrupt one after the other, in their order. Without a list it loads the sysctl
// settings, and restarts every running service that is not excluded.
func (d *interruptRun) restartServices(ctx context.Context) error {
	c, err := d.newRestarter(ctx)
	if err != nil {
		return err
	}
	defer func() { c.close() }()
	if err := c.control.Ask(ctx, systemd.Reload); err != nil {
		return systemdFault(ctx, err)
	}
	restartsAll := d.Type == pack.InterruptRestartAllServices
	if d.rec.State != record.Intended {
		names, err := c.listServices(ctx, restartsAll)
		if err != nil {
			return err
		}
		if err := c.recordIntent(ctx, names); err != nil {
			return err
		}
	}
	atOnce := 1
	if restartsAll {
		if err := c.loadSysctl(ctx); err != nil {
			return err
		}
		atOnce = max(1, len(d.rec.Units))
	}
	var units []int
	for i := range d.rec.Units {
		units = append(units, i)
	}
	for some := range slices.Chunk(units, atOnce) {
		if err := c.restartUnits(ctx, some); err != nil {
			return err
		}
	}
	return c.recordDone(c.describeRestarts())
}

// recordIntent durably records which services will be restarted and their present state.
func (c *serviceRestarter) recordIntent(ctx context.Context, names []string) error {
	c.rec.State, c.rec.At, c.rec.Units = record.Intended, time.Now().UTC(), nil
	if len(names) > 0 {
		units, err := c.control.Units(ctx, names...)
		if err != nil {
			return systemdFault(ctx, err)
		}
		for _, u := range units {
			if why := whyNotRestartable(u); why != "" {
				return fault.New(pack.InterruptFailed, "service %s %s; no service was restarted", u.Name, why)
			}
			c.rec.Units = append(c.rec.Units, record.Unit{Name: u.Name, Before: c.observeLife(u)})
		}
	}
	if err := c.held.Save(c.rec); err != nil {
		return err
	}
	fault.LogIgnored(c.Log, c.removeAwaitedFiles())
	return nil
}

// systemdFault is the fault of an interrupt that systemd did not execute, unless the agent was told to stop.
func systemdFault(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return &fault.Fault{Class: pack.InterruptFailed, Err: err}
}

// whyNotRestartable says why a service cannot be restarted; empty when it can.
func whyNotRestartable(u systemd.Unit) string {
	switch u.Load {
	case "loaded":
		return ""
	case "not-found":
		return "is unknown on this host: correct its name, or install it in an earlier stage"
	case "masked":
		return "is masked on this host: unmask it, or take it off the list"
	case "":
		return "cannot be looked at"
	}
	return "cannot be loaded on this host (" + u.Load + ")"
}

func (c *serviceRestarter) observeLife(u systemd.Unit) record.Life {
	life := u.Life
	life.Boot = c.boot
	return life
}

// restartUnits restarts those units that have not been restarted yet in this interrupt.
func (c *serviceRestarter) restartUnits(ctx context.Context, which []int) error {
	for {
		waiting, err := c.listUnrestarted(ctx, which)
		if err != nil || len(waiting) == 0 {
			return err
		}
		var names []string
		for _, i := range waiting {
			names = append(names, c.rec.Units[i].Name)
		}
		c.Log.Info("restarting", "services", names)
		errs := c.control.Restart(ctx, names)
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("restarting %s: %w", strings.Join(names, ", "), cause)
		}
		if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, systemd.ErrConnectionLost) }) {
			if err := c.reconnect(ctx); err != nil {
				return err
			}
			continue // and read their state
		}
		if err := c.recordRestarts(ctx, waiting, errs); err != nil {
			return err
		}
	}
}

func (c *serviceRestarter) reconnect(ctx context.Context) error {
	var err error
	for c.cuts++; c.cuts <= reconnects; c.cuts++ {
		if err = c.connect(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	return errors.Join(fault.New(pack.InterruptFailed, "%w", systemd.ErrConnectionLost), err)
}

// listUnrestarted lists the units that have not been restarted. The others were restarted by this agent before it was
// killed, or by a boot; that is recorded first. It waits for units that have a queued job.
func (c *serviceRestarter) listUnrestarted(ctx context.Context, which []int) ([]int, error) {
	var open []int
	for _, i := range which {
		if c.rec.Units[i].After == nil {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	units, err := c.awaitIdle(ctx, open)
	if err != nil {
		return nil, err
	}
	var waiting []int
	changed := false
	for n, i := range open {
		u := &c.rec.Units[i]
		now := c.observeLife(units[n])
		if units[n].Active == "failed" || !u.Before.IsOver(now, units[n].Active == "active") {
			waiting = append(waiting, i)
			continue
		}
		u.After, changed = &now, true
		c.Log.Info("restarted already", "service", u.Name, "before", u.Before.PID, "after", now.PID)
	}
	if changed {
		return waiting, c.held.Save(c.rec)
	}
	return waiting, nil
}

// awaitIdle waits until systemd has no job for any of these units, and returns them.
func (c *serviceRestarter) awaitIdle(ctx context.Context, which []int) ([]systemd.Unit, error) {
	var names []string
	for _, i := range which {
		names = append(names, c.rec.Units[i].Name)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		units, err := c.control.Units(ctx, names...)
		if err != nil {
			return nil, systemdFault(ctx, err)
		}
		if !slices.ContainsFunc(units, func(u systemd.Unit) bool { return u.Job }) {
			return units, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for systemd to restart services: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// recordRestarts records the results of a restart. The next run restarts failed services again.
func (c *serviceRestarter) recordRestarts(ctx context.Context, which []int, errs []error) error {
	units, err := c.awaitIdle(ctx, which)
	if err != nil {
		return err
	}
	var failed []string
	for n, i := range which {
		u, now := &c.rec.Units[i], c.observeLife(units[n])
		if errs[n] != nil {
			u.Before = now
			failed = append(failed, fmt.Sprintf("%s (%v; it is %s)", u.Name, errs[n], units[n].Active))
			continue
		}
		c.Log.Info("restarted", "service", u.Name, "before", u.Before.PID, "after", now.PID)
		u.After = &now
	}
	if err := c.held.Save(c.rec); err != nil {
		return err
	}
	if len(failed) > 0 {
		return &fault.Fault{Class: pack.InterruptFailed, Lines: c.out.Lines(), Err: errors.New("services could not be restarted: " + strings.Join(failed, ", "))}
	}
	return nil
}

// listServices lists the services of the interrupt, or those that restarting all services restarts.
func (c *serviceRestarter) listServices(ctx context.Context, all bool) (names []string, err error) {
	if !all {
		for _, name := range c.Services {
			names = append(names, systemd.ServiceName(name))
		}
		return names, nil
	}
	units, err := c.control.Units(ctx)
	if err != nil {
		return nil, systemdFault(ctx, err)
	}
	for _, u := range units {
		if u.Load == "loaded" && u.Active == "active" && !u.Fixed && !u.Transient && !isUntouched(u) {
			names = append(names, u.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func isUntouched(u systemd.Unit) bool {
	for _, name := range append([]string{u.Name}, u.Names...) {
		for _, pattern := range untouched {
			prefix, open := strings.CutSuffix(pattern, "*")
			if name == pattern || open && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// loadSysctl loads the sysctl settings of the host, as at boot.
func (c *serviceRestarter) loadSysctl(ctx context.Context) error {
	if c.rec.Sysctl {
		return nil
	}
	units, err := c.control.Units(ctx, sysctlUnit)
	if err != nil {
		return systemdFault(ctx, err)
	}
	if len(units) == 1 && units[0].Load == "loaded" {
		err = errors.Join(c.control.Restart(ctx, []string{sysctlUnit})...)
	} else {
		err = systemd.LoadSysctl(ctx, c.Host, c.out)
	}
	if err != nil {
		return systemdFault(ctx, fmt.Errorf("loading the host's sysctl settings: %w", err))
	}
	c.rec.Sysctl = true
	return c.held.Save(c.rec)
}

// describeRestarts lists the restarted services.
func (c *serviceRestarter) describeRestarts() string {
	var said []string
	for _, u := range c.rec.Units {
		text := u.Name
		if u.After != nil && u.Before.PID != 0 && u.After.PID != 0 {
			text += fmt.Sprintf(" (pid %d to %d)", u.Before.PID, u.After.PID)
		}
		said = append(said, text)
	}
	switch {
	case len(said) == 0 && c.Type == pack.InterruptService:
		return "reloaded systemd's configuration"
	case len(said) == 0:
		return "loaded the sysctl settings; no service had to be restarted"
	}
	return "restarted " + strings.Join(said, ", ")
}
