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

// systemctl controls systemd with the programs of the host.
type systemctl struct {
	root *host.Root
	out  *step.Output
}

var searched = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin"}

// hostEnv is the environment of the programs of the host.
var hostEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
	"SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "SYSTEMD_IGNORE_CHROOT=1", // it would do nothing in another root than that of process 1
}

// properties are the properties that systemctl show prints.
var properties = []string{
	"Id", "Names", "LoadState", "ActiveState", "SubState", "Job", "RefuseManualStop", "RefuseManualStart", "Transient",
	"InvocationID", "ActiveEnterTimestampMonotonic", "MainPID",
}

// Units describes services.
func (s *systemctl) Units(ctx context.Context, names ...string) ([]Unit, error) {
	if len(names) == 0 {
		text, err := s.readOutput(ctx, "list-units", "--type=service", "--state=running", "--no-legend", "--plain", "--full")
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
		text, err := s.readOutput(ctx, "show", "--property="+strings.Join(properties, ","), "--", name)
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		units = append(units, parseUnitText(name, text))
	}
	return units, nil
}

// parseUnitText parses the output of systemctl show.
func parseUnitText(name, text string) Unit {
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

// Restart restarts services in the order that systemd chooses, and waits for all of them.
func (s *systemctl) Restart(ctx context.Context, names []string) []error {
	errs := make([]error, len(names))
	err := s.runProgram(ctx, "systemctl", s.out, append([]string{"restart", "--"}, names...)...)
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
		errs[0] = err // it failed although all of them run: report it with the first
	}
	return errs
}

// Ask requests a reload or a reboot.
func (s *systemctl) Ask(ctx context.Context, verb Verb) error {
	err := s.runProgram(ctx, "systemctl", s.out, string(verb))
	if verb == Reboot && err != nil {
		if other := s.runProgram(ctx, "reboot", s.out); other != nil {
			return fmt.Errorf("%w; %w", err, other)
		}
		return nil
	}
	return err
}

// LoadSysctl loads the sysctl settings of the host as at boot, for hosts whose systemd has no unit for it.
func LoadSysctl(ctx context.Context, root *host.Root, out *step.Output) error {
	return (&systemctl{root: root, out: out}).runProgram(ctx, "sysctl", out, "--system")
}

func (s *systemctl) readOutput(ctx context.Context, args ...string) (string, error) {
	var text lockedBuffer
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := s.runProgram(ctx, "systemctl", step.NewOutput(nil, 1<<16, &text), args...)
	return text.contents(), err
}

func (s *systemctl) runProgram(ctx context.Context, name string, out *step.Output, args ...string) error {
	out = out.WithoutLines()
	program := s.findProgram(name)
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

// findProgram returns the path of a program on the host; empty when it does not exist.
func (s *systemctl) findProgram(name string) string {
	for _, dir := range searched {
		file := path.Join(dir, name)
		if st, err := s.root.Stat(file); err == nil && st.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// lockedBuffer keeps the output of a program.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) contents() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var plain strings.Builder
	for line := range strings.Lines(b.text.String()) {
		_, rest, _ := strings.Cut(line, " ")
		plain.WriteString(rest)
	}
	return plain.String()
}
