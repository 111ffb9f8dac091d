// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/internal/agent"
	"github.com/skyhook-k8s/skyhook/internal/pack"
)

var seeds = flag.Int("seeds", 100, "random runs of a package whose agent is killed on its way")

// noSleepAtExit ends an agent that was built with the race detector at once, not a second later, which is most of what it would take.
// What it has detected is reported before.
const noSleepAtExit = "GORACE=atexit_sleep_ms=0"

const lifeUID = "11111111-2222-3333-4444-555555555555"

// podRun is one pod in the lifecycle of a package: what its init container copies, and the containers after it.
type podRun struct {
	release string
	number  int
	modes   []string
	config  string
	// stale is the config that the kubelet still mounted when the init container copied to the final directory.
	stale string
}

// lifecycle is everything that can happen to a package: installed, configured, upgraded with another rootfs overlay,
// uninstalled, installed again.
var lifecycle = []podRun{
	{"1.0.0", 1, []string{"apply", "apply-check"}, "a", ""},
	{"1.0.0", 1, []string{"config", "config-check"}, "b", ""},
	{"2.0.0", 2, []string{"upgrade", "upgrade-check"}, "b", ""},
	{"2.0.0", 2, []string{"config", "config-check"}, "b", ""},
	{"2.0.0", 2, []string{"interrupt"}, "", ""},
	{"2.0.0", 2, []string{"uninstall", "uninstall-check"}, "b", ""},
	{"1.0.0", 3, []string{"apply", "apply-check"}, "c", "b"},
	{"1.0.0", 3, []string{"config", "config-check"}, "c", ""},
}

// lifecyclePackages are the releases.
var lifecyclePackages = map[string]map[string]string{
	"1.0.0": {
		"steps":                      "apply one.sh\napply two.sh a b | self\nconfig conf.sh | self\nuninstall gone.sh | self\n",
		"skyhook_dir/one.sh":         "#!/bin/sh\nmkdir -p /made\necho 1.0.0 one $(cat configmaps/key) > /made/one\n",
		"skyhook_dir/two.sh":         "#!/bin/sh\necho 1.0.0 two $* > /made/two\necho generated > generated\n",
		"skyhook_dir/conf.sh":        "#!/bin/sh\ncat configmaps/key generated > /made/conf\n",
		"skyhook_dir/gone.sh":        "#!/bin/sh\nrm -rf /made\n",
		"root_dir/etc/tuned.conf":    "1.0.0\n",
		"root_dir/etc/own/only1":     "x\n",
		"root_dir/etc/own/both":      "1.0.0\n",
		"skyhook_dir/only-in-1.0.0":  "x\n",
		"skyhook_dir/sub/helper.txt": "x\n",
	},
	"2.0.0": {
		"steps":                   "upgrade up.sh | upgrade self\nconfig conf.sh | self\nuninstall gone.sh | self\n",
		"skyhook_dir/up.sh":       "#!/bin/sh\necho $1 to $2 > /made/up\n",
		"skyhook_dir/conf.sh":     "#!/bin/sh\ncat configmaps/key > /made/conf\n",
		"skyhook_dir/gone.sh":     "#!/bin/sh\nrm -rf /made\n",
		"root_dir/etc/tuned.conf": "2.0.0\n",
		"root_dir/etc/own/both":   "2.0.0\n",
		"root_dir/etc/deep/er/x":  "x\n",
	},
	// For the benchmarks: one empty step and one empty check.
	"3.0.0": {"steps": "config conf.sh | self\n", "skyhook_dir/conf.sh": "#!/bin/sh\n"},
	"4.0.0": {"steps": "config first.sh | self\n", "skyhook_dir/first.sh": "#!/bin/sh\n: > /first-step\n"},
}

// testHost is a fake host with the lifecycle of a package.
type testHost struct {
	t    testing.TB
	host string
	env  []string
	self string
	// compact is true if the image of the package is mounted, and a stage and its check are one container.
	compact bool
}

func newTestHost(t testing.TB, shell string) *testHost {
	t.Helper()
	dir := must(os.MkdirTemp(filepath.Dir(shell), "patient"))(t)
	p := &testHost{t: t, host: filepath.Join(dir, "host"), self: must(os.Executable())(t)}
	if err := makeHost(p.host, shell); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.host, "etc/tuned.conf"), []byte("the host's own\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	p.env = []string{
		pack.EnvRootDir + "=/var/lib/skyhook/demo", pack.EnvLogDir + "=/var/log/skyhook/demo",
		pack.EnvDataDir + "=" + filepath.Join(dir, "image"), agent.EnvMessageFile + "=" + filepath.Join(dir, "message"),
		noSleepAtExit,
	}
	return p
}

// runLifecycle runs the whole lifecycle. attempt runs one container and reports whether it reached its end.
func (p *testHost) runLifecycle(attempt func(cmd *exec.Cmd) bool) {
	p.t.Helper()
	for i, v := range lifecycle {
		copyDir := fmt.Sprintf("/var/lib/skyhook/demo/tuning-%s-%s-%d", v.release, lifeUID, v.number)
		pod := fmt.Sprintf("pod-%d", i)
		switch {
		case p.compact:
			p.mountImage(v)
		case v.stale != "":
			p.write(filepath.Join(filepath.Dir(p.host), "image/configmaps/key"), v.config, 0o644)
			p.runInit(v, p.host+copyDir, v.stale)
			p.write(p.host+copyDir+"/configmaps/gone", v.stale, 0o644)
		case v.config != "":
			p.runInit(v, p.host+copyDir+"."+pod, v.config)
		}
		for _, mode := range v.modes {
			if p.compact && pack.Mode(mode).IsCheck() {
				continue // it is in the container of its stage
			}
			for tries := 0; ; tries++ {
				if tries > 100 {
					p.t.Fatalf("%s of %s does not end", mode, v.release)
				}
				if attempt(p.newContainer(v, mode, copyDir, pod)) {
					break
				}
			}
		}
	}
}

func (p *testHost) newContainer(v podRun, mode, copyDir, pod string) *exec.Cmd {
	args := []string{mode, p.host, copyDir}
	if mode == "interrupt" {
		args = append(args, pack.Interrupt{Type: pack.InterruptNoop}.Encode())
	}
	cmd := exec.Command(p.self, args...)
	cmd.Args[0] = "skyhook-agent"
	cmd.Env = append(slices.Clone(p.env), fmt.Sprintf("%s=demo-%s-%d_tuning_%s", pack.EnvResourceID, lifeUID, v.number, v.release),
		fmt.Sprintf("%s=run-%d", pack.EnvRunID, v.number), fmt.Sprintf("%s=int-%d", pack.EnvInterruptID, v.number), pack.EnvPodUID+"="+pod)
	if p.compact {
		cmd.Env = append(cmd.Env, pack.EnvImageDir+"="+p.imageDir(v), pack.EnvWithCheck+"=true", pack.EnvStopFile+"=/dev/null")
	}
	if v.config != "" {
		cmd.Env = append(cmd.Env, pack.EnvConfigDigest+"="+pack.ConfigDigest(map[string]string{"key": v.config}))
	}
	return cmd
}

func (p *testHost) imageDir(v podRun) string {
	return filepath.Join(filepath.Dir(p.host), "image-"+v.release)
}

// mountImage simulates the mounts of a pod without an init container: the image of the package and the ConfigMap.
func (p *testHost) mountImage(v podRun) {
	p.t.Helper()
	p.writePackage(v, filepath.Join(p.imageDir(v), "skyhook-package"))
	mounts := filepath.Join(filepath.Dir(p.host), "image")
	if err := os.RemoveAll(mounts); err != nil {
		p.t.Fatal(err)
	}
	if v.config != "" {
		p.writeConfig(mounts, v.config)
	}
}

// runInit simulates the init container: it copies the package and the mounted ConfigMap, including links.
func (p *testHost) runInit(v podRun, to, config string) {
	p.t.Helper()
	p.writePackage(v, to)
	p.writeConfig(to, config)
}

func (p *testHost) writePackage(v podRun, to string) {
	p.t.Helper()
	files := lifecyclePackages[v.release]
	modes := must(parseSteps(files["steps"]))(p.t)
	for name, text := range files {
		if name != "steps" {
			p.write(filepath.Join(to, name), text, 0o755)
		}
	}
	p.write(filepath.Join(to, "skyhook_dir/passes.sh"), "#!/bin/sh\n", 0o755)
	p.write(filepath.Join(to, "config.json"), must(configJSON("tuning", v.release, nil, modes))(p.t), 0o644)
}

// writeConfig writes a ConfigMap as the kubelet mounts it.
func (p *testHost) writeConfig(to, config string) {
	p.t.Helper()
	p.write(filepath.Join(to, "configmaps/..2026/key"), config, 0o644)
	for link, target := range map[string]string{"..data": "..2026", "key": "..data/key"} {
		if err := os.Symlink(target, filepath.Join(to, "configmaps", link)); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *testHost) write(name, text string, mode fs.FileMode) {
	p.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode)); err != nil {
		p.t.Fatal(err)
	}
}

// runUnharmed runs a container that must succeed.
func (p *testHost) runUnharmed(cmd *exec.Cmd) bool {
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return true
}

// times are all that may differ between two runs.
var times = regexp.MustCompile(`20\d\d-\d\d-\d\dT[0-9:.]+(Z|\+00:00)|"at": "[^"]*"|\d{10}\.\d{6}`)

// snapshotTree describes the files of the host, without logs and times.
func (p *testHost) snapshotTree() string {
	p.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(p.host, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := must(filepath.Rel(p.host, name))(p.t)
		st := must(e.Info())(p.t)
		switch {
		case strings.HasPrefix(rel, "var/log/"), rel == "bin":
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.Type()&fs.ModeSymlink != 0:
			fmt.Fprintf(&b, "%s -> %s\n", rel, must(os.Readlink(name))(p.t))
		case e.IsDir():
			fmt.Fprintf(&b, "%s %s\n", rel, st.Mode())
		default:
			content := times.ReplaceAll(must(os.ReadFile(name))(p.t), []byte("TIME"))
			fmt.Fprintf(&b, "%s %s %x %s\n", rel, st.Mode(), sha256.Sum256(content), firstLines(content))
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return b.String()
}

func firstLines(content []byte) string {
	if bytes.HasPrefix(content, []byte("{")) {
		return strings.Join(strings.Fields(string(content)), " ")
	}
	return ""
}

// bothDeliveries runs a test with init containers that copy the package, and with mounted images.
func bothDeliveries(t *testing.T, test func(t *testing.T, newHost func() *testHost, want string)) {
	shell := staticBusybox(t, memoryDir(t))
	for _, compact := range []bool{false, true} {
		newHost := func() *testHost {
			p := newTestHost(t, shell)
			p.compact = compact
			return p
		}
		undisturbed := newHost()
		undisturbed.runLifecycle(undisturbed.runUnharmed)
		want := undisturbed.snapshotTree()
		t.Run(map[bool]string{false: "copied", true: "mounted"}[compact], func(t *testing.T) { test(t, newHost, want) })
	}
}

// TestBothDeliveriesLeaveTheSame: a package whose image is mounted leaves the host as one that an init container copied, but for the
// list of what was delivered.
func TestBothDeliveriesLeaveTheSame(t *testing.T) {
	var trees []string
	bothDeliveries(t, func(_ *testing.T, _ func() *testHost, tree string) {
		lines := slices.DeleteFunc(strings.Split(tree, "\n"), func(line string) bool { return strings.Contains(line, "/"+pack.DeliveryFile+" ") })
		trees = append(trees, strings.Join(lines, "\n"))
	})
	if trees[0] != trees[1] || !strings.Contains(trees[0], "/record.json ") {
		t.Errorf("copied (-) and mounted (+):\n%s", diffLines(trees[0], trees[1]))
	}
}

// TestKilledAtEveryChange kills the agent before each change it makes to the host, in every container of the lifecycle,
// and starts it again.
func TestKilledAtEveryChange(t *testing.T) { bothDeliveries(t, killAtEveryChange) }

func killAtEveryChange(t *testing.T, newHost func() *testHost, want string) {
	points := 0
	for at := 1; ; at++ {
		p := newHost()
		killed := 0
		container, tries := "", 0
		p.runLifecycle(func(cmd *exec.Cmd) bool {
			if now := strings.Join(append(cmd.Args, cmd.Env...), " "); now != container {
				container, tries = now, 0
			}
			if tries++; tries > 1 { // once per container
				return p.runUnharmed(cmd)
			}
			cmd.Env = append(cmd.Env, fmt.Sprintf("TEST_KILL_AT=%d", at))
			out, err := cmd.CombinedOutput()
			if err == nil {
				return true
			}
			if !wasKilled(err) {
				t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
			}
			killed++
			return false
		})
		if got := p.snapshotTree(); got != want {
			t.Fatalf("killed before change %d of every container, the host ends differently:\n%s", at, diffLines(want, got))
		}
		points += killed
		if killed == 0 {
			t.Logf("%d kills", points)
			return
		}
	}
}

// TestKilledAtRandom kills the agent at random changes and times, several times in a row.
func TestKilledAtRandom(t *testing.T) { bothDeliveries(t, killAtRandom) }

func killAtRandom(t *testing.T, newHost func() *testHost, want string) {
	n := *seeds / 2
	if testing.Short() {
		n = min(n, 20)
	}
	for worker := range 2 {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for seed := worker; seed < n; seed += 2 {
				p := newHost()
				luck := rand.New(rand.NewPCG(uint64(seed), 1))
				p.runLifecycle(func(cmd *exec.Cmd) bool { return p.runKilled(luck, cmd) })
				if got := p.snapshotTree(); got != want {
					t.Fatalf("seed %d: the host ends differently:\n%s", seed, diffLines(want, got))
				}
				if err := os.RemoveAll(filepath.Dir(p.host)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// runKilled runs a container that may be killed.
func (p *testHost) runKilled(luck *rand.Rand, cmd *exec.Cmd) bool {
	switch luck.IntN(4) {
	case 0:
		cmd.Env = append(cmd.Env, fmt.Sprintf("TEST_KILL_AT=%d", 1+luck.IntN(60)))
	case 1:
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
		after := time.AfterFunc(time.Duration(luck.IntN(40))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		after.Stop()
		if err != nil && !wasKilled(err) {
			p.t.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
		}
		return err == nil
	}
	out, err := cmd.CombinedOutput()
	if err != nil && !wasKilled(err) {
		p.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return err == nil
}

func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// diffLines shows the lines that two texts do not share.
func diffLines(want, got string) string {
	var b strings.Builder
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range wants {
		if !slices.Contains(gots, line) {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	for _, line := range gots {
		if !slices.Contains(wants, line) {
			fmt.Fprintf(&b, "+ %s\n", line)
		}
	}
	return b.String()
}
