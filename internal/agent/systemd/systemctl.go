// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
)

// systemctl is systemd by the host's own programs.
type systemctl struct {
	root *host.Root
	out  *step.Output
}

var searched = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin"}

// hostEnv is all that the host's own programs get to see.
var hostEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
	"SYSTEMD_PAGER=", "SYSTEMD_COLORS=0",
}

// properties are what systemctl show is asked for; unitText reads them.
var properties = []string{
	"Id", "Names", "LoadState", "ActiveState", "SubState", "Job", "RefuseManualStop", "RefuseManualStart", "Transient",
	"InvocationID", "ActiveEnterTimestampMonotonic", "MainPID",
}

// Units describes services.
func (s *systemctl) Units(ctx context.Context, names ...string) ([]Unit, error) {
	if len(names) == 0 {
		text, err := s.read(ctx, "list-units", "--type=service", "--state=running", "--no-legend", "--plain", "--full")
		if err != nil {
			return nil, fmt.Errorf("listing the host's services: %w", err)
		}
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); len(fields) > 0 {
				names = append(names, fields[0])
			}
		}
	}
	var units []Unit
	for _, name := range names {
		text, err := s.read(ctx, "show", "--property="+strings.Join(properties, ","), "--", name)
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		units = append(units, unitText(name, text))
	}
	return units, nil
}

// unitText reads what systemctl show prints.
func unitText(name, text string) Unit {
	u := Unit{Name: name}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		switch key {
		case "LoadState":
			u.Load = value
		case "ActiveState":
			u.Active = value
		case "SubState":
			u.Sub = value
		case "Names":
			u.Names = strings.Fields(value)
		case "Job":
			u.Job = value != "" && value != "0"
		case "RefuseManualStop", "RefuseManualStart":
			u.Fixed = u.Fixed || value == "yes"
		case "Transient":
			u.Transient = value == "yes"
		case "InvocationID":
			u.Life.Invocation = value
		case "ActiveEnterTimestampMonotonic":
			u.Life.Since, _ = strconv.ParseUint(value, 10, 64)
		case "MainPID":
			pid, _ := strconv.ParseUint(value, 10, 32)
			u.Life.PID = uint32(pid)
		}
	}
	return u
}

// Restart restarts services; systemctl waits for all of them, in the order systemd finds right.
func (s *systemctl) Restart(ctx context.Context, names []string) []error {
	errs := make([]error, len(names))
	err := s.run(ctx, "systemctl", s.out, append([]string{"restart", "--"}, names...)...)
	if err == nil || context.Cause(ctx) != nil {
		for i := range errs {
			errs[i] = context.Cause(ctx)
		}
		return errs
	}
	if len(names) == 1 {
		return []error{err}
	}
	units, lookErr := s.Units(ctx, names...)
	for i := range names {
		switch {
		case lookErr != nil:
			errs[i] = errors.Join(err, lookErr)
		case units[i].Active != "active" && units[i].Active != "activating":
			errs[i] = fmt.Errorf("it is %s after the restart", units[i].Active)
		}
	}
	if !slices.ContainsFunc(errs, func(e error) bool { return e != nil }) {
		errs[0] = err // it failed, and all of them run: say so where it is seen
	}
	return errs
}

// Ask asks for a reload, or for a reboot.
func (s *systemctl) Ask(ctx context.Context, verb Verb) error {
	err := s.run(ctx, "systemctl", s.out, string(verb))
	if verb == Reboot && err != nil {
		if other := s.run(ctx, "reboot", s.out); other != nil {
			return fmt.Errorf("%w; %w", err, other)
		}
		return nil
	}
	return err
}

// Sysctl loads the host's sysctl settings as at boot, for hosts whose systemd has no unit for it.
func Sysctl(ctx context.Context, root *host.Root, out *step.Output) error {
	return (&systemctl{root: root, out: out}).run(ctx, "sysctl", out, "--system")
}

func (s *systemctl) read(ctx context.Context, args ...string) (string, error) {
	var text lockedBuffer
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := s.run(ctx, "systemctl", step.NewOutput(nil, 1<<16, &text), args...)
	return text.plain(), err
}

func (s *systemctl) run(ctx context.Context, name string, out *step.Output, args ...string) error {
	out = out.Fresh()
	program := s.program(name)
	if program == "" {
		return fmt.Errorf("there is no %s on the host", name)
	}
	r := step.Run(ctx, step.Command{
		Root: s.root, Path: program, Args: args, Env: hostEnv, Dir: "/", Grace: 5 * time.Second, Output: out,
	})
	switch {
	case r.Err != nil:
		return r.Err
	case r.Cause != nil:
		return r.Cause
	case r.Signal != "":
		return fmt.Errorf("%s was ended by %s", strings.Join(append([]string{name}, args...), " "), r.Signal)
	case r.Exit != 0:
		said := ""
		if lines := out.Lines(); len(lines) > 0 {
			said = ": " + lines[len(lines)-1]
		}
		return fmt.Errorf("%s exited with %d%s", strings.Join(append([]string{name}, args...), " "), r.Exit, said)
	}
	return nil
}

// program is where a program is on the host; empty when it is not there.
func (s *systemctl) program(name string) string {
	for _, dir := range searched {
		file := path.Join(dir, name)
		if st, err := s.root.Stat(file); err == nil && st.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// lockedBuffer keeps what a program printed, without the time stamps of an Output.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) plain() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var plain strings.Builder
	for line := range strings.Lines(b.text.String()) {
		_, rest, _ := strings.Cut(line, " ")
		plain.WriteString(rest)
	}
	return plain.String()
}
