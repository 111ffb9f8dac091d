// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	format "github.com/skyhook-k8s/skyhook/internal/pack"
)

// handOvers are the copies of the script that has systemd run a step.
var handOvers = map[string]string{
	"os-update": "os-update/skyhook_dir/update/on_host.sh", "tuned": "tuned/skyhook_dir/tuned/on_host.sh", "tuning": "tuning/skyhook_dir/settings/on_host.sh",
}

// toyStep is a step that says what it was given, and ends as $SKYHOOK_DIR/act tells.
const toyStep = `#!/bin/bash
set -euo pipefail
. "${0%/*}/on_host.sh"
echo "begins in $PWD with $# arguments: $*, user $EUID, ${SKYHOOK_ON_HOST:+on the host}"
cat # nothing
for name in SECRET TUNED_WAIT CURRENT_VERSION SKYHOOK_PRIVILEGES; do [ -z "${!name+x}" ] || echo "$name is ${!name}"; done
. "$SKYHOOK_DIR/act"
`

// A confined host is one with a toy step, whose pod has few rights.
type confined struct {
	host

	env []string
}

func newConfined(t *testing.T, act string) confined {
	t.Helper()
	requireRoot(t)
	h, err := newHost(t.TempDir(), "debian-12", nil)
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(handOvers["tuning"])
	err = errors.Join(err, h.writeFile("/pkg/skyhook_dir/on_host.sh", string(script), 0o755), h.writeFile("/pkg/skyhook_dir/toy.sh", toyStep, 0o755),
		h.writeFile("/pkg/act", act, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what still runs would keep the folder
		_, _ = h.runScript("for unit in /stub/transient/*; do systemctl stop ${unit##*/} || true; done")
	})
	return confined{host: h, env: []string{
		"PATH=/usr/sbin:/usr/bin", "HOME=/root", "SKYHOOK_DIR=/pkg", "SKYHOOK_RESOURCE_ID=demo-uid-1_numbers_1.0.0", "SKYHOOK_PRIVILEGES=services,/etc/x",
		"SECRET=hidden", "TUNED_WAIT=3", "CURRENT_VERSION=1 $HOME ${HOME} $$",
	}}
}

// output collects what a step says.
type output struct {
	sync.Mutex
	bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.Buffer.Write(p)
}

func (o *output) String() string {
	o.Lock()
	defer o.Unlock()
	return o.Buffer.String()
}

// start starts a step as the agent does: in a process group of its own.
func (c confined) start(t *testing.T, step string, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	out := &output{}
	cmd := exec.Command("/pkg/skyhook_dir/"+step, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.env, "/pkg", out, out
	cmd.SysProcAttr = chrootAttributes(c.root)
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return cmd, out
}

// run runs a step to its end, and returns its exit status and what it said.
func (c confined) run(t *testing.T, step string, args ...string) (int, string) {
	t.Helper()
	cmd, out := c.start(t, step, args...)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this does not happen: %s", what)
		}
	}
}

func (c confined) has(name string) bool {
	_, err := os.Stat(c.path(name))
	return err == nil
}

// started returns which units were started, and which stopped.
func (c confined) started(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(c.path("stub/started"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(content), "\n", "; ")
}

// clean checks that a step has left nothing of the handover.
func (c confined) clean(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(c.path("pkg/on-host*"))
	units, errUnits := filepath.Glob(c.path("stub/transient/*"))
	if err := errors.Join(err, errUnits); err != nil || len(left)+len(units) > 0 {
		t.Errorf("left are %v %v: %v", left, units, err)
	}
}

const toyUnit = "skyhook-numbers-toy.service"

func TestHandOver(t *testing.T) {
	c := newConfined(t, "echo to stderr >&2; exit 7")
	toldOnHost := "begins in /pkg with 3 arguments: a b $HOME ${x} $$ é, user 0, on the host\nTUNED_WAIT is 3\nCURRENT_VERSION is 1 $HOME ${HOME} $$\nto stderr\n"
	if code, out := c.run(t, "toy.sh", "a b", "$HOME ${x} $$", "é"); code != 7 || out != toldOnHost {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	if got := c.started(t); got != "start "+toyUnit+"; " {
		t.Errorf("started: %s", got)
	}
	c.clean(t)
	if err := c.writeFile("/pkg/act", "echo done", 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out := c.run(t, "toy.sh"); code != 0 || !strings.HasSuffix(out, "done\n") {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	c.clean(t)
}

func (c confined) touch(t *testing.T, name string) {
	t.Helper()
	if err := c.writeFile("/stub/"+name, "", 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestHandOverStreams checks that all output comes, as it is written, also while systemd does not answer because it is replaced.
func TestHandOverStreams(t *testing.T) {
	c := newConfined(t, "for ((i = 0; i < 20000; i++)); do echo line $i; done; touch /waits; until [ -e /on ]; do sleep 0.1; done; printf 'no line end'")
	cmd, out := c.start(t, "toy.sh")
	await(t, "the output comes while the step runs", func() bool { return strings.Contains(out.String(), "line 19999\n") && c.has("waits") })
	c.touch(t, "busy")
	time.Sleep(1200 * time.Millisecond) // it asks several times
	if err := c.writeFile("/on", "", 0o644); err != nil {
		t.Fatal(err)
	}
	await(t, "the step ends", func() bool { return !c.has("stub/transient/" + toyUnit) })
	if err := os.Remove(c.path("stub/busy")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := strings.Split(out.String(), "\n"); got[len(got)-1] != "no line end" || len(got) != 20004 {
		t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
	c.clean(t)
}

func TestHandOverIsEnded(t *testing.T) {
	c := newConfined(t, "trap 'echo told to end; exit 1' TERM; touch /waits; while :; do sleep 0.1; done")
	cmd, out := c.start(t, "toy.sh")
	await(t, "the step runs", func() bool { return c.has("waits") })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 143 || !strings.HasSuffix(out.String(), "told to end\n") || !strings.HasSuffix(c.started(t), "stop "+toyUnit+"; ") {
		t.Errorf("it ends with %d, %s:\n%s", got, c.started(t), out)
	}
	c.clean(t)

	// Somebody else ends it.
	if err := os.Remove(c.path("waits")); err != nil {
		t.Fatal(err)
	}
	cmd, out = c.start(t, "toy.sh")
	await(t, "the step runs", func() bool { return c.has("waits") })
	if said, err := c.runScript("systemctl stop " + toyUnit); err != nil {
		t.Fatal(said, err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 1 || !strings.HasSuffix(out.String(), "error: toy.sh was ended on the host before it was done, see journalctl -u "+toyUnit+"\n") {
		t.Errorf("it ends with %d:\n%s", got, out)
	}
	c.clean(t)
}

// TestHandOverAwaits kills the pod of a step. Its next attempt waits for the first one and runs then.
func TestHandOverAwaits(t *testing.T) {
	c := newConfined(t, "echo run >>/runs; touch /waits; until [ -e /on ]; do sleep 0.1; done; echo run ends >>/runs")
	cmd, _ := c.start(t, "toy.sh")
	await(t, "the step runs", func() bool { return c.has("waits") })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	again, out := c.start(t, "toy.sh")
	await(t, "the second attempt waits", func() bool {
		return out.String() == "an earlier attempt of toy.sh is still at work on this host: waiting for its end\n"
	})
	if err := c.writeFile("/on", "", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(c.path("runs")); err != nil || string(got) != "run\nrun ends\nrun\nrun ends\n" {
		t.Errorf("%v: %s", err, got)
	}
	c.clean(t)
}

func TestHandOverFails(t *testing.T) {
	cannotAsk := regexp.MustCompile(`^error: the host's systemd cannot be asked to run toy\.sh, and this pod may not change the host itself \(.*\); select nodes that run systemd, and give the package the privilege services\n$`)
	c := newConfined(t, "touch /ran")
	c.touch(t, "broken-start")
	if code, out := c.run(t, "toy.sh"); code != 1 || !strings.HasSuffix(out, "Transaction is destructive.\nerror: the host's systemd did not start toy.sh, see above\n") {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	c.touch(t, "no-systemd")
	if code, out := c.run(t, "toy.sh"); code != 1 || !cannotAsk.MatchString(out) || !strings.Contains(out, "not been booted with systemd") {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	if err := os.Remove(c.path("usr/sbin/systemctl")); err != nil {
		t.Fatal(err)
	}
	if code, out := c.run(t, "toy.sh"); code != 1 || !cannotAsk.MatchString(out) || !strings.Contains(out, "systemctl: command not found") {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	if c.has("ran") {
		t.Error("the step ran all the same")
	}
	c.clean(t)
}

// TestNoHandOver checks that steps of a privileged pod, and checks, run where they are.
func TestNoHandOver(t *testing.T) {
	c := newConfined(t, "exit 7")
	c.env = slices.DeleteFunc(c.env, func(e string) bool { return strings.HasPrefix(e, format.EnvPrivileges+"=") })
	if code, out := c.run(t, "toy.sh"); code != 7 || !strings.Contains(out, "user 0, \nSECRET is hidden\n") {
		t.Errorf("it ends with %d:\n%s", code, out)
	}
	c.env = append(c.env, format.EnvPrivileges+"=services")
	out := &output{}
	cmd := exec.Command("/pkg/skyhook_dir/toy.sh")
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = c.env, "/", out, out, chrootAttributes(c.root)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	if err := os.Chmod(c.root, 0o755); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(out.String(), "user 65534, \nSECRET is hidden\n") {
		t.Errorf("as nobody it ends with %d:\n%s", code, out)
	}
	if got := c.started(t); got != "" {
		t.Error(got)
	}
}

// TestHandsOverEveryChange checks that the steps which change the host hand themselves over before anything else, and the checks do not.
func TestHandsOverEveryChange(t *testing.T) {
	requireRoot(t)
	var first []byte
	for name, script := range handOvers {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		} else if !bytes.Equal(first, text) {
			t.Errorf("%s is not the same as in the other packages", script)
		}
		config, _ := format.Validate(os.DirFS(name), format.Want{})
		if !config.Privileges.AskSystemd() || config.Privileges.IsFull() {
			t.Errorf("%s has the privileges %v", name, config.Privileges)
		}
		c := newConfined(t, "")
		if err := os.CopyFS(c.path("package"), os.DirFS(name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(c.path("pkg"), c.path("toy")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(c.path("package"), c.path("pkg")); err != nil {
			t.Fatal(err)
		}
		c.touch(t, "broken-start")
		before, err := c.readTree()
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range format.Modes() {
			if mode == format.ModePreflight || mode.IsCheck() {
				continue
			}
			for _, step := range config.Steps(mode) {
				code, out := c.run(t, step.File())
				if want := fmt.Sprintf("error: the host's systemd did not start %s, see above\n", step.File()); code != 1 || !strings.HasSuffix(out, want) {
					t.Errorf("%s, %s: %s ends with %d:\n%s", name, mode, step.File(), code, out)
				}
			}
		}
		after, err := c.readTree()
		if changes := after.diff(before); err != nil || len(changes) > 0 {
			t.Errorf("%s has changed the host before the handover: %v, %v", name, changes, err)
		}
	}
}

// TestConfinedPackages runs the packages as in pods with few rights: what changes is handed over, and the host is as wanted.
func TestConfinedPackages(t *testing.T) {
	for name, want := range map[string]struct {
		steps  []string
		config map[string]string
		files  map[string]string
	}{
		"tuning": {
			[]string{"update_settings.sh", "update_settings_check.sh"}, map[string]string{"sysctl.conf": "vm.swappiness = 11\n", "grub.conf": "hugepages=3\n"},
			map[string]string{"proc/sys/vm/swappiness": "^11\n$", "boot/grub/grub.cfg": "hugepages=3"},
		},
		"tuned": {
			[]string{"install_tuned.sh", "install_tuned_check.sh", "apply_tuned_profile.sh", "apply_tuned_profile_check.sh"}, map[string]string{"tuned_profile": "throughput-performance"},
			map[string]string{"proc/sys/vm/swappiness": "^10\n$", "etc/tuned/active_profile": "throughput-performance"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConfined(t, "")
			err := errors.Join(os.RemoveAll(c.path("pkg")), os.CopyFS(c.path("pkg"), os.DirFS(name)))
			for key, value := range want.config {
				err = errors.Join(err, c.writeFile("/pkg/configmaps/"+key, value, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range want.steps {
				if code, out := c.run(t, step); code != 0 {
					t.Fatalf("%s ends with %d:\n%s", step, code, out)
				}
			}
			for file, pattern := range want.files {
				content, err := fs.ReadFile(os.DirFS(c.root), file)
				if err != nil || !regexp.MustCompile(pattern).Match(content) {
					t.Errorf("%s: %v\n%s", file, err, content)
				}
			}
			if got := c.started(t); strings.Count(got, "start skyhook-numbers-") < 1 {
				t.Errorf("nothing was handed over: %s", got)
			}
			c.clean(t)
		})
	}
}
