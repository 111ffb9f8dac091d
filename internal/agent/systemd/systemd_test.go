// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
	"github.com/skyhook-k8s/skyhook/internal/agent/step"
)

func runningService(pid uint32) map[string]any {
	return map[string]any{
		"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": pid, "InvocationID": make([]byte, 16),
		"ActiveEnterTimestampMonotonic": uint64(7), "RefuseManualStop": false, "Transient": false, "Names": []string{"x.service"},
	}
}

func connectFake(t *testing.T, dir string) (Control, string) {
	t.Helper()
	root, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	c, how, done, err := Connect(context.Background(), root, step.NewOutput(nil, 0, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return c, how
}

func TestRestartByDBus(t *testing.T) {
	dir := t.TempDir()
	p := newFakeSystemd(t, dir, map[string]map[string]any{"cron.service": runningService(12), "getty@tty1.service": runningService(13)})
	c, how := connectFake(t, dir)
	if how != "D-Bus at /run/systemd/private" {
		t.Fatalf("connected by %s", how)
	}
	ctx := context.Background()
	if err := c.Ask(ctx, Reload); err != nil {
		t.Fatal(err)
	}
	before, err := c.Units(ctx, "cron.service", "getty@tty1.service", "none.service")
	if err != nil {
		t.Fatal(err)
	}
	if before[0].Life.PID != 12 || before[1].Life.PID != 13 || before[0].Life.Since != 7 || before[0].Active != "active" || before[2].Load != "not-found" {
		t.Errorf("units %+v", before)
	}
	if errs := c.Restart(ctx, []string{"cron.service", "none.service"}); errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "not found") {
		t.Errorf("errors %v", errs)
	}
	after, err := c.Units(ctx)
	if err != nil || len(after) != 2 {
		t.Fatalf("%v %v", after, err)
	}
	after, _ = c.Units(ctx, "cron.service")
	if !before[0].Life.IsOver(after[0].Life, true) || after[0].Life.PID != 1012 {
		t.Errorf("before %+v, after %+v", before[0].Life, after[0].Life)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := []string{"reload", "restart cron.service", "restart none.service"}; !slices.Equal(p.asked, want) {
		t.Errorf("asked %q, want %q", p.asked, want)
	}
}

func TestRestartThatFails(t *testing.T) {
	dir := t.TempDir()
	p := newFakeSystemd(t, dir, map[string]map[string]any{"cron.service": runningService(12)})
	p.result = "timeout"
	c, _ := connectFake(t, dir)
	if errs := c.Restart(context.Background(), []string{"cron.service"}); errs[0] == nil || !strings.Contains(errs[0].Error(), `systemd's job ended with "timeout"`) {
		t.Errorf("errors %v", errs)
	}
}

// TestConnectionLost closes the connection during a restart, as a restart of dbus does: the error is ErrConnectionLost,
// and a new connection works.
func TestConnectionLost(t *testing.T) {
	dir := t.TempDir()
	p := newFakeSystemd(t, dir, map[string]map[string]any{"cron.service": runningService(12)})
	c, _ := connectFake(t, dir)
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	if errs := c.Restart(context.Background(), []string{"cron.service"}); !errors.Is(errs[0], ErrConnectionLost) {
		t.Errorf("errors %v", errs)
	}
	c, _ = connectFake(t, dir)
	if units, err := c.Units(context.Background(), "cron.service"); err != nil || units[0].Life.PID != 1012 {
		t.Errorf("%+v %v", units, err)
	}
}

// TestRebootWithoutLogind requests the reboot from systemd when there is no system bus.
func TestRebootWithoutLogind(t *testing.T) {
	dir := t.TempDir()
	p := newFakeSystemd(t, dir, nil)
	c, _ := connectFake(t, dir)
	if err := c.Ask(context.Background(), Reboot); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := []string{"start reboot.target replace-irreversibly"}; !slices.Equal(p.asked, want) {
		t.Errorf("asked %q, want %q", p.asked, want)
	}
}

// TestRebootByLogind requests the reboot from logind first. A shutdown in progress is success, and an inhibitor lock is
// not bypassed; after any other error systemd is asked.
func TestRebootByLogind(t *testing.T) {
	for _, c := range []struct {
		answer string
		fails  string
		asked  []string
	}{
		{"", "", []string{"logind reboot false"}},
		{goingDown, "", []string{"logind reboot false"}},
		{inhibited, "systemd-inhibit --list names them", []string{"logind reboot false"}},
		{"org.freedesktop.DBus.Error.AccessDenied", "", []string{"logind reboot false", "start reboot.target replace-irreversibly"}},
	} {
		dir := t.TempDir()
		p := newFakeSystemd(t, dir, nil)
		p.listen(filepath.Join(dir, "run/dbus/system_bus_socket"))
		p.logind = c.answer
		control, _ := connectFake(t, dir)
		err := control.Ask(context.Background(), Reboot)
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: %v", c.answer, err)
		}
		p.mu.Lock()
		if !slices.Equal(p.asked, c.asked) {
			t.Errorf("%q: asked %q, want %q", c.answer, p.asked, c.asked)
		}
		p.mu.Unlock()
	}
}

// TestSystemBus checks that the system bus is used without the private socket.
func TestSystemBus(t *testing.T) {
	dir := t.TempDir()
	p := newFakeSystemd(t, dir, map[string]map[string]any{"cron.service": runningService(12)})
	p.listen(filepath.Join(dir, "run/dbus/system_bus_socket"))
	if err := os.Remove(filepath.Join(dir, "run/systemd/private")); err != nil {
		t.Fatal(err)
	}
	c, how := connectFake(t, dir)
	if errs := c.Restart(context.Background(), []string{"cron.service"}); errs[0] != nil || how != "D-Bus at /run/dbus/system_bus_socket" {
		t.Errorf("%s: %v", how, errs)
	}
}

// TestSilentSocket checks that a socket which accepts connections and never answers does not block the agent.
func TestSilentSocket(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run/systemd"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	l, err := net.Listen("unix", "run/systemd/private")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	root, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The root stays open, because the abandoned handshake still uses it.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, _, _, err = Connect(ctx, root, step.NewOutput(nil, 0, io.Discard))
	if err == nil || !strings.Contains(err.Error(), "/run/systemd/private does not answer: context deadline exceeded") ||
		!strings.Contains(err.Error(), "no systemctl on the host") {
		t.Error(err)
	}
}

func TestServiceName(t *testing.T) {
	for name, want := range map[string]string{
		"cron": "cron.service", "cron.service": "cron.service", "systemd-sysctl": "systemd-sysctl.service", "a.b": "a.b.service", "x.timer": "x.timer", "t@1": "t@1.service",
	} {
		if got := ServiceName(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
