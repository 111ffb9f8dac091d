// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
)

// callTime limits calls that do not wait for a job. Waiting for a job is limited by ctx only.
const callTime = 30 * time.Second

type socket struct {
	path  string
	hello bool // a message bus, not systemd
}

var sockets = []socket{
	{"/run/systemd/private", false},
	{"/run/dbus/system_bus_socket", true},
}

// bus controls systemd through D-Bus.
type bus struct {
	root     *host.Root
	conn     *dbus.Conn
	fallback *systemctl
}

// dialSocket connects to systemd with a timeout, because the library waits for the handshake without one.
func dialSocket(ctx context.Context, root *host.Root, s socket) (*bus, error) {
	ask, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("%s was not asked: %w", s.path, cause)
	}
	type spoken struct {
		b   *bus
		err error
	}
	answer := make(chan spoken, 1)
	go func() {
		b, err := authenticate(ask, root, s)
		answer <- spoken{b, err}
	}()
	select {
	case a := <-answer:
		return a.b, a.err
	case <-ask.Done():
		return nil, fmt.Errorf("%s does not answer: %w", s.path, context.Cause(ask))
	}
}

func authenticate(ask context.Context, root *host.Root, s socket) (*bus, error) {
	conn, err := dbus.NewConnection(func() (*godbus.Conn, error) { return dialBus(ask, root, s) })
	if err != nil {
		return nil, fmt.Errorf("%s does not answer: %w", s.path, err)
	}
	b := &bus{root: root, conn: conn}
	if _, err := conn.SystemStateContext(ask); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s does not answer: %w", s.path, err)
	}
	if s.hello { // otherwise systemd does not send the results of jobs
		if err := conn.Subscribe(); err != nil {
			conn.Close()
			return nil, fmt.Errorf("%s does not answer: %w", s.path, err)
		}
	}
	return b, nil
}

func dialBus(ctx context.Context, root *host.Root, s socket) (*godbus.Conn, error) {
	at, done, err := root.SocketPath(s.path)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := godbus.Dial("unix:path="+at, godbus.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, err
	}
	if err = conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err == nil && s.hello {
		err = conn.Hello()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (b *bus) close() { b.conn.Close() }

// Units describes services.
func (b *bus) Units(ctx context.Context, names ...string) ([]Unit, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if len(names) == 0 {
		list, err := b.conn.ListUnitsByPatternsContext(ctx, []string{"running"}, []string{"*.service"})
		if err != nil {
			return nil, fmt.Errorf("listing the host's services: %w", err)
		}
		for _, u := range list {
			names = append(names, u.Name)
		}
	}
	var units []Unit
	for _, name := range names {
		props, err := b.conn.GetAllPropertiesContext(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		units = append(units, parseUnit(name, props))
	}
	return units, nil
}

func parseUnit(name string, props map[string]any) Unit {
	u := Unit{Name: name}
	u.Load, _ = props["LoadState"].(string)
	u.Active, _ = props["ActiveState"].(string)
	u.Sub, _ = props["SubState"].(string)
	u.Transient, _ = props["Transient"].(bool)
	u.Names, _ = props["Names"].([]string)
	noStop, _ := props["RefuseManualStop"].(bool)
	noStart, _ := props["RefuseManualStart"].(bool)
	u.Fixed = noStop || noStart
	if job, ok := props["Job"].([]any); ok && len(job) > 0 {
		id, _ := job[0].(uint32)
		u.Job = id != 0
	}
	if id, ok := props["InvocationID"].([]byte); ok {
		u.Life.Invocation = hex.EncodeToString(id)
	}
	u.Life.Since, _ = props["ActiveEnterTimestampMonotonic"].(uint64)
	u.Life.PID, _ = props["MainPID"].(uint32)
	return u
}

// Restart enqueues all jobs at once, so that systemd orders them, and waits for their results.
func (b *bus) Restart(ctx context.Context, names []string) []error {
	errs := make([]error, len(names))
	results := make([]chan string, len(names))
	for i, name := range names {
		results[i] = make(chan string, 1)
		ask, cancel := context.WithTimeout(ctx, callTime)
		if _, err := b.conn.RestartUnitContext(ask, name, "replace", results[i]); err != nil {
			errs[i], results[i] = b.wrapConnectionError(err), nil
		}
		cancel()
	}
	for i := range names {
		if results[i] != nil {
			errs[i] = b.awaitJob(ctx, results[i])
		}
	}
	return errs
}

func (b *bus) awaitJob(ctx context.Context, result <-chan string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case text := <-result:
			if text == "done" {
				return nil
			}
			return fmt.Errorf("systemd's job ended with %q", text)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if !b.conn.Connected() {
				return ErrConnectionLost
			}
		}
	}
}

// wrapConnectionError marks errors of a lost connection.
func (b *bus) wrapConnectionError(err error) error {
	if !b.conn.Connected() {
		return fmt.Errorf("%w: %w", ErrConnectionLost, err)
	}
	return err
}

// Errors of logind when a shutdown is already in progress, and when an inhibitor lock forbids one, for example during a
// package installation. The latter must not be bypassed.
const (
	goingDown = "org.freedesktop.login1.OperationInProgress"
	inhibited = "org.freedesktop.login1.BlockedByInhibitorLock"
)

// Ask requests a reload or a reboot: a reboot first from logind, which lets the kubelet shut down its pods gracefully,
// then from systemd, then with the programs of the host.
func (b *bus) Ask(ctx context.Context, verb Verb) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if verb == Reload {
		if err := b.conn.ReloadContext(ctx); err != nil {
			return fmt.Errorf("reloading systemd's configuration: %w", err)
		}
		return nil
	}
	byLogind := b.askLogind(ctx)
	var said godbus.Error
	switch {
	case byLogind == nil:
		return nil
	case errors.As(byLogind, &said) && said.Name == goingDown:
		return nil
	case errors.As(byLogind, &said) && said.Name == inhibited:
		return fmt.Errorf("somebody on the host forbids it for now (systemd-inhibit --list names them): %w", byLogind)
	}
	_, byUnit := b.conn.StartUnitContext(ctx, "reboot.target", "replace-irreversibly", nil)
	if byUnit == nil {
		return nil
	}
	byProgram := b.fallback.Ask(ctx, verb)
	if byProgram == nil {
		return nil
	}
	return fmt.Errorf("rebooting: logind: %w; systemd: %w; %w", byLogind, byUnit, byProgram)
}

func (b *bus) askLogind(ctx context.Context) error {
	conn, err := dialBus(ctx, b.root, sockets[1])
	if err != nil {
		return err
	}
	defer conn.Close()
	logind := conn.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	const interactive = false
	return logind.CallWithContext(ctx, "org.freedesktop.login1.Manager.Reboot", 0, interactive).Err
}
