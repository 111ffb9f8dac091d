// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// traceAgent runs the agent under strace until it ends or enough returns true, and returns its system calls, one per
// line.
func (p *testHost) traceAgent(args []string, env []string, enough func() bool) []string {
	p.t.Helper()
	at, err := exec.LookPath("strace")
	if err != nil {
		p.t.Skip("what reaches the disk is seen by strace: apt-get install strace")
	}
	self := filepath.Join(p.t.TempDir(), "skyhook-agent") // by that name the test binary is the agent
	if err := os.Symlink(p.self, self); err != nil {
		p.t.Fatal(err)
	}
	to := filepath.Join(p.t.TempDir(), "trace")
	cmd := exec.Command(at, append([]string{"-f", "-y", "-s", "300", "-e", "trace=fsync,renameat,renameat2,execve", "-o", to, self}, args...)...)
	cmd.Env = append(p.env, env...)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		select {
		case err = <-ended:
			text := must(os.ReadFile(to))(p.t)
			if strings.Contains(out.String(), "ptrace") && !strings.Contains(string(text), "fsync") {
				p.t.Skipf("nothing can be traced here: %s", out)
			}
			if err != nil && enough == nil {
				p.t.Fatalf("%v: %v\n%s", args, err, out)
			}
			return joinCalls(strings.Split(string(text), "\n"))
		default:
		}
		if time.Now().After(limit) {
			_ = cmd.Process.Kill()
			p.t.Fatalf("%v does not end", args)
		}
		if enough != nil && enough() {
			enough = func() bool { return false }
			pid, _, _ := strings.Cut(string(must(os.ReadFile(to))(p.t)), " ") // of what was started first
			if err := syscall.Kill(must(strconv.Atoi(pid))(p.t), syscall.SIGTERM); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// joinCalls joins the two lines that strace writes for a call that another thread interrupted. A sync counts at its
// end, other calls at their start.
func joinCalls(lines []string) []string {
	var out []string
	begun := map[string]string{} // by thread
	for _, l := range lines {
		thread, call, _ := strings.Cut(l, " ")
		half, unfinished := strings.CutSuffix(l, " <unfinished ...>")
		_, end, resumed := strings.Cut(call, " resumed>")
		switch {
		case unfinished && !strings.HasPrefix(strings.TrimSpace(call), "execve("):
			begun[thread] = half
		case resumed && begun[thread] != "":
			out = append(out, begun[thread]+end)
			delete(begun, thread)
		default:
			out = append(out, l)
		}
	}
	return out
}

func TestJoinCalls(t *testing.T) {
	got := joinCalls([]string{
		`12 fsync(7</a/b> <unfinished ...>`, `13 execve("/two.sh", ["/two.sh"] <unfinished ...>`, `12 <... fsync resumed>)              = 0`,
		`14 --- SIGURG {si_signo=SIGURG} ---`, `13 <... execve resumed>)             = 0`, `12 fsync(8</a>) = 0`,
	})
	want := []string{
		`13 execve("/two.sh", ["/two.sh"] <unfinished ...>`, `12 fsync(7</a/b>)              = 0`,
		`14 --- SIGURG {si_signo=SIGURG} ---`, `13 <... execve resumed>)             = 0`, `12 fsync(8</a>) = 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// requireInOrder requires lines that match these patterns in this order.
func requireInOrder(t *testing.T, lines []string, patterns ...string) {
	t.Helper()
	rest := lines
	for i, pattern := range patterns {
		re := regexp.MustCompile(pattern)
		at := 0
		for at < len(rest) && !re.MatchString(rest[at]) {
			at++
		}
		if at == len(rest) {
			t.Fatalf("after %q there is no %q in:\n%s", patterns[:i], pattern, strings.Join(lines, "\n"))
		}
		rest = rest[at+1:]
	}
}

// durableWrite are the calls of a durable write of a file: its content, its name, its directory.
func durableWrite(folder, file string) []string {
	return []string{
		`fsync\(\d+<[^>]*/` + folder + `/\.skyhook-[0-9a-f]+\.tmp>\) += 0`,
		`renameat2?\(.*"\.skyhook-[0-9a-f]+\.tmp", .*"` + file + `"`,
		`fsync\(\d+<[^>]*/` + folder + `>\) += 0`,
	}
}

// TestRecordsReachTheDisk traces a stage: the record is on the disk before the next step starts.
func TestRecordsReachTheDisk(t *testing.T) {
	p := newTestHost(t, staticBusybox(t, t.TempDir()))
	v := lifecycle[0]
	p.runInit(v, p.host+"/var/lib/skyhook/demo/tuning.pod", v.config)
	cmd := p.newContainer(v, "apply", "/var/lib/skyhook/demo/tuning", "pod")
	lines := p.traceAgent(cmd.Args[1:], cmd.Env[len(p.env):], nil)
	record := durableWrite("records/tuning", "record.json")
	overlay := durableWrite("etc/own", "only1")
	requireInOrder(t, lines, append(append([]string{}, append(overlay, `execve\(".*/one.sh"`)...), append(record, `execve\(".*/two.sh"`)...)...)
	requireInOrder(t, lines, append([]string{`execve\(".*/two.sh"`}, record...)...)
}

// TestRebootIntentReachesTheDisk traces a reboot: the intent is on the disk before the reboot is requested.
func TestRebootIntentReachesTheDisk(t *testing.T) {
	p := newTestHost(t, staticBusybox(t, t.TempDir()))
	p.installSystemctl()
	lines := p.traceAgent([]string{"interrupt", p.host, "/none", pack.Interrupt{Type: pack.InterruptReboot}.Encode()},
		[]string{pack.EnvInterruptID + "=demo-1"}, p.wasAskedToReboot)
	requireInOrder(t, lines, append(durableWrite("interrupts/records", `demo-1-[0-9a-f]+\.json`), `execve\(".*systemctl", .*"reboot"`)...)
}

// TestRebootKilledAtEveryChange kills the agent before each change it makes during a reboot, once before the host goes
// down and once after it has booted, and starts it again. The host reboots once, which both boot IDs prove.
func TestRebootKilledAtEveryChange(t *testing.T) {
	shell := staticBusybox(t, t.TempDir())
	kills := 0
	for at := 1; ; at++ {
		p := newTestHost(t, shell)
		p.installSystemctl()
		killed, boot := 0, 0
		for how := "down"; how == "down"; {
			boot++
			p.write(filepath.Join(p.host, "proc/sys/kernel/random/boot_id"), fmt.Sprintf("boot-%d\n", boot), 0o644)
			if how = p.runReboot(at); how == "killed" {
				killed++
				how = p.runReboot(0)
			}
		}
		if again := p.runReboot(0); again != "done" || boot != 2 {
			t.Fatalf("killed before change %d: the host is in boot %d, and the same id again ends %s", at, boot, again)
		}
		if text := string(must(os.ReadFile(filepath.Join(filepath.Dir(p.host), "message")))(t)); !strings.Contains(text, `"bootIDs":{"from":"boot-1","to":"boot-2"}`) {
			t.Fatalf("killed before change %d: %s", at, text)
		}
		if kills += killed; killed == 0 {
			t.Logf("%d kills", kills)
			return
		}
	}
}

// installSystemctl installs a fake systemctl on the host that records its arguments.
func (p *testHost) installSystemctl() {
	p.t.Helper()
	p.write(filepath.Join(p.host, "usr/bin/systemctl"), string(must(os.ReadFile("testdata/systemctl"))(p.t)), 0o755)
	p.write(filepath.Join(p.host, "sd/units/none"), "", 0o644)
}

// wasAskedToReboot reports whether a reboot of the host was requested.
func (p *testHost) wasAskedToReboot() bool {
	text, _ := os.ReadFile(filepath.Join(p.host, "sd/asked"))
	return strings.Contains(string(text), "reboot")
}

// runReboot runs the agent until it is done, is killed before its n-th change, or has requested the reboot, which ends
// it too.
func (p *testHost) runReboot(n int) (how string) {
	p.t.Helper()
	cmd := exec.Command(p.self, "interrupt", p.host, "/none", pack.Interrupt{Type: pack.InterruptReboot}.Encode())
	cmd.Args[0] = "skyhook-agent"
	cmd.Env = append(slices.Clone(p.env), pack.EnvInterruptID+"=demo-1", fmt.Sprintf("TEST_KILL_AT=%d", n))
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			switch {
			case err == nil:
				return "done"
			case wasKilled(err):
				return "killed"
			}
			p.t.Fatalf("%v\n%s", err, out)
		case <-time.After(5 * time.Millisecond):
			if p.wasAskedToReboot() {
				_ = cmd.Process.Kill()
				if err := <-ended; !wasKilled(err) {
					p.t.Fatalf("it asked, and did not wait: %v\n%s", err, out)
				}
				if err := os.Remove(filepath.Join(p.host, "sd/asked")); err != nil {
					p.t.Fatal(err)
				}
				return "down"
			}
		}
	}
}
