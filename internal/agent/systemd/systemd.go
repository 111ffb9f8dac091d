// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package systemd asks the host's systemd to restart services and to reboot, and waits for what comes of it.
//
// It speaks D-Bus with PID 1 through the host's own sockets, reached through the root mount: first the private one, which
// stays up when dbus itself is restarted, then the system bus. Where neither answers it runs the host's systemctl.
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

// A Unit is a service as systemd sees it now.
type Unit struct {
	Name   string
	Load   string // loaded, not-found, masked, …
	Active string // active, inactive, failed, activating, …
	Sub    string // running, exited, dead, …
	// Job tells that systemd has work queued or running for it.
	Job bool
	// Fixed units refuse to be stopped or started by hand.
	Fixed bool
	// Transient units have no file and would be gone after a stop.
	Transient bool
	// Names are the unit's other names.
	Names []string
	// Life tells this run of the service from the next; its boot is not filled in.
	Life record.Life
}

// A Verb is something systemd as a whole is asked to do.
type Verb string

// The verbs.
const (
	Reload Verb = "daemon-reload"
	Reboot Verb = "reboot"
)

// Control is a way to the host's systemd.
type Control interface {
	// Units describes services; without names, all that are loaded and running.
	Units(ctx context.Context, names ...string) ([]Unit, error)
	// Restart restarts services in the order systemd finds right and waits until all of them are. The errors belong to the
	// names.
	Restart(ctx context.Context, names []string) []error
	// Ask asks for one of the verbs.
	Ask(ctx context.Context, verb Verb) error
}

// ErrCut says that the way to systemd was lost while a job was under way; its result must be looked up.
var ErrCut = errors.New("the connection to systemd was cut")

// Connect finds a way to the host's systemd. how names it for the log.
func Connect(ctx context.Context, root *host.Root, out *step.Output) (c Control, how string, done func(), err error) {
	ctl := &systemctl{root: root, out: out}
	var tried []string
	for _, socket := range sockets {
		bus, err := dial(ctx, root, socket)
		if err == nil {
			bus.fallback = ctl
			return bus, "D-Bus at " + socket.path, bus.close, nil
		}
		tried = append(tried, err.Error())
	}
	if ctl.program("systemctl") != "" {
		return ctl, "systemctl", func() {}, nil
	}
	if ctl.program("reboot") != "" {
		return ctl, "reboot", func() {}, nil
	}
	return nil, "", nil, fmt.Errorf("the host's systemd cannot be reached: %s; and there is no systemctl on the host", strings.Join(tried, "; "))
}

// ServiceName is the unit a service's short name stands for.
func ServiceName(name string) string {
	for _, suffix := range []string{".service", ".socket", ".timer", ".target", ".mount", ".path", ".slice", ".scope", ".automount", ".swap", ".device"} {
		if strings.HasSuffix(name, suffix) {
			return name
		}
	}
	return name + ".service"
}
