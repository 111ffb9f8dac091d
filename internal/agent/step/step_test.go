// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/internal/agent/host"
)

// runScript runs a shell script on this machine as a step, without a chroot.
func runScript(ctx context.Context, t *testing.T, text string, change func(*Command)) (Result, []string) {
	t.Helper()
	root, err := host.Open(host.Local)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	c := Command{Root: root, Path: "/bin/sh", Args: []string{"-c", text}, Env: []string{"PATH=/usr/bin:/bin", "A=1\n2"}, Dir: "/", Output: NewOutput(nil, 0)}
	if change != nil {
		change(&c)
	}
	r := Run(ctx, c)
	return r, c.Output.Lines()
}

func TestRunResult(t *testing.T) {
	for _, c := range []struct {
		text   string
		exit   int
		signal string
		lines  []string
	}{
		{"echo out; echo err >&2; exit 0", 0, "", []string{"out", "err"}},
		{"exit 1", 1, "", nil},
		{"exit 255", 255, "", nil},
		{"kill -KILL $$", -1, "SIGKILL", nil},
		{`echo "$A"; cat; echo "left: $#"`, 0, "", []string{"1", "2", "left: 0"}},
	} {
		r, lines := runScript(context.Background(), t, c.text, nil)
		if r.Exit != c.exit || r.Signal != c.signal || r.Err != nil || r.Cause != nil || !slices.Equal(lines, c.lines) {
			t.Errorf("%s: %+v %q", c.text, r, lines)
		}
	}
}

// TestRunKeepsOrder writes alternately to both streams, a thousand times.
func TestRunKeepsOrder(t *testing.T) {
	var all bytes.Buffer
	r, _ := runScript(context.Background(), t, "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); echo $i >&2; i=$((i+1)); done", func(c *Command) {
		c.Output = NewOutput(nil, 0, &all)
	})
	got := stripStamps(t, all.String())
	if r.Exit != 0 || len(got) != 2000 {
		t.Fatalf("%+v, %d lines", r, len(got))
	}
	for i, line := range got {
		if line != strings.TrimSpace(line) || line != itoa(i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

func TestRunThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "\n", "crlf": "#!/bin/sh\r\n", "gone": "#!/no/such/shell -e\n", "closed": "#!/bin/sh\n"} {
		mode := os.FileMode(0o755)
		if name == "closed" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"empty":  "its first line must name the interpreter, such as #!/bin/sh",
		"crlf":   `its interpreter "/bin/sh\r" is not there on the host`,
		"gone":   `its interpreter "/no/such/shell" is not there on the host`,
		"closed": "it must be a file with its executable bit set",
		"none":   "/none is not there on the host",
	} {
		r, _ := runScript(context.Background(), t, "", func(c *Command) { c.Path, c.Args = filepath.Join(dir, name), nil })
		if r.Err == nil || !strings.Contains(r.Err.Error(), want) || r.Exit != notFound && r.Exit != cannotExecute {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r, _ := runScript(context.Background(), t, "true", func(c *Command) { c.Dir = filepath.Join(dir, "nowhere") })
	if r.Err == nil || !strings.Contains(r.Err.Error(), "its working directory") {
		t.Errorf("%+v", r)
	}
}

// TestRunWaitsForWriter runs a program that another process has open for writing, for a moment or for good.
func TestRunWaitsForWriter(t *testing.T) {
	busy := filepath.Join(t.TempDir(), "busy")
	if err := os.WriteFile(busy, []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, release := range []bool{true, false} {
		f, err := os.OpenFile(busy, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if release {
			time.AfterFunc(50*time.Millisecond, func() { _ = f.Close() })
		}
		r, lines := runScript(context.Background(), t, "", func(c *Command) { c.Path, c.Args = busy, nil })
		switch {
		case release && (r.Err != nil || r.Exit != 0 || !slices.Equal(lines, []string{"ran"})):
			t.Errorf("%+v %q", r, lines)
		case !release && (r.Err == nil || !strings.Contains(r.Err.Error(), "open for writing") || r.Exit != cannotExecute):
			t.Errorf("%+v %q", r, lines)
		}
	}
}

func TestRunIsEnded(t *testing.T) {
	told := errors.New("told to")
	over, end := context.WithCancelCause(context.Background())
	end(told)
	if r, _ := runScript(over, t, "exit 0", nil); !errors.Is(r.Cause, told) || r.Exit != -1 {
		t.Errorf("before it began: %+v", r)
	}
	if r, _ := runScript(context.Background(), t, "while :; do sleep 1; done", func(c *Command) { c.Timeout = time.Millisecond }); !errors.Is(r.Cause, ErrTimeout) || r.Signal == "" {
		t.Errorf("its time is up: %+v", r)
	}
	// A program that ignores SIGTERM is killed after the grace period.
	ctx, stop := context.WithCancelCause(context.Background())
	r, _ := runScript(ctx, t, "trap '' TERM; echo ready; while :; do sleep 1; done", func(c *Command) {
		c.Output = NewOutput(nil, 0, callOnWrite(func() { stop(told) }))
		c.Grace = 50 * time.Millisecond
	})
	if !errors.Is(r.Cause, told) || r.Signal != "SIGKILL" {
		t.Errorf("it does not listen: %+v", r)
	}
	// A gentle end waits, however short the grace period is.
	ctx, stop = context.WithCancelCause(context.Background())
	r, said := runScript(ctx, t, "trap 'sleep 0.2; echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done", func(c *Command) {
		c.Output = NewOutput(nil, 0, callOnWrite(func() { stop(told) }))
		c.Grace, c.Gentle = time.Millisecond, told
	})
	if !errors.Is(r.Cause, told) || r.Exit != 3 || said[len(said)-1] != "bye" {
		t.Errorf("told to stop: %+v %q", r, said)
	}
}

// callOnWrite is called at the first output of a program.
type callOnWrite func()

func (f callOnWrite) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestRunReportsAlive runs until Alive was called.
func TestRunReportsAlive(t *testing.T) {
	ctx, stop := context.WithCancelCause(context.Background())
	heard := errors.New("heard")
	r, _ := runScript(ctx, t, "while :; do sleep 0.01; done", func(c *Command) {
		c.AliveEvery, c.Alive = time.Second, func(since time.Duration) {
			if since >= time.Second {
				stop(heard)
			}
		}
	})
	if !errors.Is(r.Cause, heard) {
		t.Errorf("%+v", r)
	}
}

// TestRunOnlyReads: such a program reads what only root may read, and neither writes what root may write, nor reaches the processes of root
// or the sockets of its services. It is ended like any other.
func TestRunOnlyReads(t *testing.T) {
	dir := t.TempDir()
	for _, parent := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("read\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	text := `cat secret; echo written >> secret; echo written > /proc/$PPID/root` + secret + `; kill -0 $PPID
perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); print connect(S, sockaddr_un("socket")) ? "connected\n" : ""'; exit 0`
	r, lines := runScript(context.Background(), t, text, func(c *Command) { c.OnlyReads, c.Dir = true, dir })
	all := strings.Join(lines, "\n")
	if r.Exit != 0 || !strings.HasPrefix(all, "read\n") || strings.Contains(all, "connected") || strings.Count(all, "ermi") != 3 {
		t.Errorf("%+v, it said\n%s", r, all)
	}
	if content, err := os.ReadFile(secret); err != nil || string(content) != "read\n" {
		t.Errorf("the file has %q, %v", content, err)
	}
	r, _ = runScript(context.Background(), t, "sleep 30", func(c *Command) { c.OnlyReads, c.Timeout = true, 100*time.Millisecond })
	if !errors.Is(r.Cause, ErrTimeout) || r.Duration > 10*time.Second {
		t.Errorf("it was not ended: %+v", r)
	}
}

// TestRunConfined: the kernel refuses such a program what leads past the mounts of its pod, and if it is to be unconnected, the sockets of
// this host. The program of the next step is not confined by that.
func TestRunConfined(t *testing.T) {
	text := fmt.Sprintf(`perl -MSocket -e 'for ([AF_UNIX, "unix"], [AF_INET, "inet"], [40, "vsock"]) { print "$_->[1] ", socket(S, $_->[0], SOCK_STREAM, 0) ? "yes" : "no", "\n" }
syscall(%d, -1, 0, 0); print "$!\n"; syscall(%d, 1, 0); print "$!\n"'`, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_IO_URING_SETUP)
	for _, c := range []struct {
		confined, unconnected bool
		want                  string
	}{
		{true, true, "unix no, inet yes, vsock no, Operation not permitted, Function not implemented"},
		{true, false, "unix yes, inet yes, vsock no, Operation not permitted, Function not implemented"},
		{false, false, "unix yes, inet yes, vsock "},
	} {
		r, lines := runScript(context.Background(), t, text, func(run *Command) { run.Confined, run.Unconnected = c.confined, c.unconnected })
		if got := strings.Join(lines, ", "); r.Exit != 0 || !strings.HasPrefix(got, c.want) || !c.confined && strings.Contains(got, "not permitted, Func") {
			t.Errorf("%+v: %+v, it said %s", c, r, got)
		}
	}
}
