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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Limits of the program that docs/internals/agent.md documents.
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

// BenchmarkFirstStep measures the time from the start of the agent to the first line of a step's script, on a host that has the directories of the
// agent already, with a package of one step: copied by an init container, mounted and not on the host yet, and mounted and on the host.
func BenchmarkFirstStep(b *testing.B) {
	at := buildProgram(b)
	for _, place := range []struct{ name, dir string }{{"disk", b.TempDir()}, {"memory", memoryDir(b)}} {
		shell := staticBusybox(b, place.dir)
		for _, how := range []string{"copied", "mounted", "delivered"} {
			b.Run(place.name+"/"+how, func(b *testing.B) {
				p := newTestHost(b, shell)
				p.self, p.compact = at, how != "copied"
				v := podRun{release: "4.0.0", number: 4, config: "c"}
				pipe := filepath.Join(p.host, "first-step")
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					b.Fatal(err)
				}
				copyDir := "/var/lib/skyhook/demo/tuning"
				var times []time.Duration
				n := 0
				for b.Loop() {
					b.StopTimer()
					if n++; how != "delivered" {
						copyDir = fmt.Sprintf("/var/lib/skyhook/demo/tuning-4.0.0-%s-%d", lifeUID, n)
					}
					if p.compact {
						p.mountImage(v)
					} else {
						p.runInit(v, p.host+copyDir+".pod", v.config)
					}
					if n == 1 { // makes the directories of the agent, and the copy for "delivered"
						p.measureFirstStep(b, p.newContainer(v, "config", copyDir, "pod"), pipe)
						if !p.compact {
							p.runInit(v, p.host+copyDir+".pod", v.config)
						}
					}
					cmd := p.newContainer(v, "config", copyDir, "pod")
					cmd.Env = append(cmd.Env, "OVERLAY_ALWAYS_RUN_STEP=true")
					b.StartTimer()
					times = append(times, p.measureFirstStep(b, cmd, pipe))
				}
				slices.Sort(times)
				for name, at := range map[string]int{"ms-median": len(times) / 2, "ms-least": 0} {
					b.ReportMetric(float64(times[at].Microseconds())/1000, name)
				}
			})
		}
	}
}

// measureFirstStep runs a container whose step opens a pipe, and returns the time until then.
func (p *testHost) measureFirstStep(b *testing.B, cmd *exec.Cmd, pipe string) time.Duration {
	b.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(pipe) // until the step opens its other end
	took := time.Since(start)
	if err == nil {
		err = f.Close()
	}
	if waited := cmd.Wait(); err != nil || waited != nil {
		b.Fatalf("%v: %v %v\n%s", cmd.Args, err, waited, out.String())
	}
	return took
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
