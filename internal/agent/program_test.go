// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Limits of the program that docs/agent.md documents.
const (
	maxBinary = 12_000_000
	maxMemory = 20 << 20
)

// buildProgram builds the agent like a release.
func buildProgram(t testing.TB) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "skyhook-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", at, "github.com/skyhook-k8s/skyhook/cmd/skyhook-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	return at
}

// TestProgram checks the limits of the program: one static file, small on disk and in memory.
func TestProgram(t *testing.T) {
	at := buildProgram(t)
	if st := must(os.Stat(at))(t); st.Size() > maxBinary {
		t.Errorf("the program has %d bytes, promised are %d", st.Size(), maxBinary)
	}
	f := must(elf.Open(at))(t)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static")
		}
	}
	p := newTestHost(t, staticBusybox(t, memoryDir(t)))
	p.self = at
	p.runLifecycle(func(cmd *exec.Cmd) bool {
		if used := peakMemory(t, cmd); used > maxMemory {
			t.Errorf("%v used %d bytes, promised are %d", cmd.Args, used, maxMemory)
		}
		return true
	})
}

// peakMemory runs a program and returns its peak memory. The kernel's figure at its end also counts the memory of the
// test that started it.
func peakMemory(t testing.TB, cmd *exec.Cmd) (most int64) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	status := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
			}
			return most
		default:
		}
		text, _ := os.ReadFile(status)
		if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); exe != cmd.Path {
			continue // not begun, or over
		}
		_, rest, _ := strings.Cut(string(text), "VmHWM:")
		if fields := strings.Fields(rest); len(fields) > 0 {
			kib, _ := strconv.ParseInt(fields[0], 10, 64)
			most = max(most, kib<<10)
		}
	}
}

// BenchmarkStage runs a whole stage, one step and one check, as two processes. It reports separately the time of the
// two scripts and the peak memory of a process.
func BenchmarkStage(b *testing.B) {
	for _, at := range []struct{ name, dir string }{{"disk", b.TempDir()}, {"memory", memoryDir(b)}} {
		b.Run(at.name, func(b *testing.B) {
			shell := staticBusybox(b, at.dir)
			p := newTestHost(b, shell)
			p.self = buildProgram(b)
			v := podRun{release: "3.0.0", number: 3, config: "c"}
			p.runInit(v, p.host+"/var/lib/skyhook/demo/tuning.pod", "c")
			containers := func() []*exec.Cmd {
				var cmds []*exec.Cmd
				for _, mode := range []string{"config", "config-check"} {
					cmd := p.newContainer(v, mode, "/var/lib/skyhook/demo/tuning", "pod")
					cmd.Env = append(cmd.Env, "OVERLAY_ALWAYS_RUN_STEP=true")
					cmds = append(cmds, cmd)
				}
				return cmds
			}
			for b.Loop() {
				for _, cmd := range containers() {
					p.runUnharmed(cmd)
				}
			}
			memory := int64(0)
			for _, cmd := range containers() {
				memory = max(memory, peakMemory(b, cmd))
			}
			b.ReportMetric(float64(memory)/(1<<20), "MiB")
		})
	}
}

// BenchmarkSteps runs the scripts of BenchmarkStage without an agent.
func BenchmarkSteps(b *testing.B) {
	dir := b.TempDir()
	shell := staticBusybox(b, dir)
	p := newTestHost(b, shell)
	p.runInit(podRun{release: "3.0.0"}, p.host+"/copy", "c")
	for b.Loop() {
		for _, script := range []string{"conf.sh", "passes.sh"} {
			cmd := exec.Command("/copy/skyhook_dir/" + script)
			cmd.Dir = "/copy"
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.host}
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
