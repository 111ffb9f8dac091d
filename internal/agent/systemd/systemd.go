// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package systemd restarts services and reboots the host through systemd, and waits for the results.
//
// It uses D-Bus through the sockets of the host below the root mount: first the private socket of systemd, which
// survives a restart of dbus, then the system bus. If neither answers, it runs systemctl of the host.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/record"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
)

// Unit is the present state of a service.
type Unit struct {
	Name   string
	Load   string // loaded, not-found, masked, …
	Active string // active, inactive, failed, activating, …
	Sub    string // running, exited, dead, …
	// Job is true while systemd has a queued or running job for it.
	Job bool
	// Fixed units refuse manual start or stop.
	Fixed bool
	// Transient units have no file and would not exist after a stop.
	Transient bool
	// Names are the aliases of the unit.
	Names []string
	// Life identifies this run of the service, without its boot.
	Life record.Life
}

// Verb is a request to systemd as a whole.
type Verb string

// The verbs.
const (
	Reload Verb = "daemon-reload"
	Reboot Verb = "reboot"
)

// Control controls the systemd of the host.
type Control interface {
	// Units describes services; without names, all that are loaded and running.
	Units(ctx context.Context, names ...string) ([]Unit, error)
	// Restart restarts services in the order that systemd chooses and waits for all of them. It returns one error per
	// name.
	Restart(ctx context.Context, names []string) []error
	// Ask sends a request.
	Ask(ctx context.Context, verb Verb) error
}

// ErrConnectionLost means that the connection to systemd was lost during a job. The result of the job must be read
// again.
var ErrConnectionLost = errors.New("the connection to systemd was cut")

// Connect connects to the systemd of the host. how describes the connection for the log.
func Connect(ctx context.Context, root *host.Root, out *step.Output) (c Control, how string, done func(), err error) {
	ctl := &systemctl{root: root, out: out}
	var tried []string
	for _, socket := range sockets {
		bus, err := dialSocket(ctx, root, socket)
		if err == nil {
			bus.fallback = ctl
			return bus, "D-Bus at " + socket.path, bus.close, nil
		}
		tried = append(tried, err.Error())
	}
	if ctl.findProgram("systemctl") != "" {
		return ctl, "systemctl", func() {}, nil
	}
	if ctl.findProgram("reboot") != "" {
		return ctl, "reboot", func() {}, nil
	}
	return nil, "", nil, fmt.Errorf("the host's systemd cannot be reached: %s; and there is no systemctl on the host", strings.Join(tried, "; "))
}

// ServiceName is the name of the unit for the short name of a service.
func ServiceName(name string) string {
	for _, suffix := range []string{".service", ".socket", ".timer", ".target", ".mount", ".path", ".slice", ".scope", ".automount", ".swap", ".device"} {
		if strings.HasSuffix(name, suffix) {
			return name
		}
	}
	return name + ".service"
}
