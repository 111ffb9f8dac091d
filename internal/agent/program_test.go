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

// Bounds of the program, promised in docs/agent.md.
const (
	maxBinary = 12_000_000
	maxMemory = 20 << 20
)

// program builds the agent as it is released.
func program(t testing.TB) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "skyhook-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", at, "github.com/skyhook-k8s/skyhook/cmd/skyhook-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	return at
}

// TestProgram holds the bounds of the program: one static file, small on disk and in memory.
func TestProgram(t *testing.T) {
	at := program(t)
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
	p := newPatient(t, staticBusybox(t, memory(t)))
	p.self = at
	p.live(func(cmd *exec.Cmd) bool {
		if used := peak(t, cmd); used > maxMemory {
			t.Errorf("%v used %d bytes, promised are %d", cmd.Args, used, maxMemory)
		}
		return true
	})
}

// peak runs a program and tells the most memory it had. What the kernel says at its end is of no use: it counts the memory
// of the test that started it.
func peak(t testing.TB, cmd *exec.Cmd) (most int64) {
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

// BenchmarkStage is a whole stage, one step and one check, as the kubelet runs it: two processes. What the two scripts take
// by themselves is reported apart, and so is the most memory either process had.
func BenchmarkStage(b *testing.B) {
	for _, at := range []struct{ name, dir string }{{"disk", b.TempDir()}, {"memory", memory(b)}} {
		b.Run(at.name, func(b *testing.B) {
			shell := staticBusybox(b, at.dir)
			p := newPatient(b, shell)
			p.self = program(b)
			v := visit{release: "3.0.0", number: 3, config: "c"}
			p.bring(v, p.host+"/var/lib/skyhook/demo/tuning.pod", "c")
			containers := func() []*exec.Cmd {
				var cmds []*exec.Cmd
				for _, mode := range []string{"config", "config-check"} {
					cmd := p.container(v, mode, "/var/lib/skyhook/demo/tuning", "pod")
					cmd.Env = append(cmd.Env, "OVERLAY_ALWAYS_RUN_STEP=true")
					cmds = append(cmds, cmd)
				}
				return cmds
			}
			for b.Loop() {
				for _, cmd := range containers() {
					p.whole(cmd)
				}
			}
			memory := int64(0)
			for _, cmd := range containers() {
				memory = max(memory, peak(b, cmd))
			}
			b.ReportMetric(float64(memory)/(1<<20), "MiB")
		})
	}
}

// BenchmarkSteps is what the scripts of BenchmarkStage take without an agent.
func BenchmarkSteps(b *testing.B) {
	dir := b.TempDir()
	shell := staticBusybox(b, dir)
	p := newPatient(b, shell)
	p.bring(visit{release: "3.0.0"}, p.host+"/copy", "c")
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
