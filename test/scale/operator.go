// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

// operator is the process of the operator under test.
type operator struct {
	cmd            *exec.Cmd
	dir            string
	metrics, pprof string // addresses
	ended          chan struct{}
}

// sample is what the operator has consumed and done so far.
type sample struct {
	at       time.Time
	cpu      time.Duration
	rss      int64 // bytes, now
	peak     int64 // bytes, highest since resetPeak
	file     int64 // bytes of rss that map the program file
	families map[string]*dto.MetricFamily
}

func startOperator(ctx context.Context, plane *controlplane.Plane, r *run) (*operator, error) {
	dir, err := os.MkdirTemp("", "skyhook-scale-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	o := &operator{dir: dir, ended: make(chan struct{})}
	program := r.operator
	if program == "" {
		program = filepath.Join(dir, "operator")
		if err := r.build(ctx, program, "./cmd/operator"); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err := plane.WriteKubeconfig(o.kubeconfigPath()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	addresses, err := findFreeAddresses(3)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	o.metrics, o.pprof = addresses[0], addresses[1]
	o.cmd = exec.Command(program, "--kubeconfig", o.kubeconfigPath(), "--metrics-port", o.metrics, "--pprof-port", o.pprof,
		"--probe-port", addresses[2], "--log-level", "info", "--namespace", namespace, "--pod-layout", r.layout, "--profile", r.defaults, fmt.Sprintf("--leader-election=%v", r.soak > 0))
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	o.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", coresFor(r.nodes)))
	log := io.Discard
	if r.verbose {
		log = os.Stderr
	}
	o.cmd.Stdout, o.cmd.Stderr = log, log
	if err := o.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the operator: %w", err), os.RemoveAll(dir))
	}
	go func() {
		_ = o.cmd.Wait() // it is stopped by a signal
		close(o.ended)
	}()
	return o, o.waitReady(ctx)
}

// build builds a program as releases are built; to try it, as this one was, of which most packages are compiled already.
func (r *run) build(ctx context.Context, path, from string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, from)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if r.try {
		build = exec.CommandContext(ctx, "go", "build", "-o", path, from)
	}
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building %s: %w", from, err)
	}
	return nil
}

// coresFor is the CPU limit that the chart computes for a number of nodes, in whole cores: 0.4 millicores each. The operator runs as many
// threads at the same time.
func coresFor(nodes int) int { return max(1, (4*nodes+9999)/10000) }

// findFreeAddresses returns free addresses of this machine.
func findFreeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// waitReady waits for the first pass of the operator.
func (o *operator) waitReady(ctx context.Context) error {
	for {
		if s, err := o.takeSample(); err == nil && len(s.families["skyhook_loop_seconds"].GetMetric()) > 0 {
			return nil
		}
		select {
		case <-o.ended:
			return errors.New("the operator exited; run again with -v")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// waitIdle waits until the operator has written nothing for five seconds.
func (o *operator) waitIdle(ctx context.Context) error {
	for last := -1.0; ; {
		s, err := o.takeSample()
		if err != nil {
			return err
		}
		writes := sum(growthBySeries(&sample{}, s, "skyhook_api_writes_total"))
		if writes == last {
			return nil
		}
		last = writes
		if err := sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// kubeconfigPath is the path of the operator's kubeconfig.
func (o *operator) kubeconfigPath() string { return filepath.Join(o.dir, "kubeconfig") }

func (o *operator) stop() {
	_ = o.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	<-o.ended
	_ = os.RemoveAll(o.dir)
}

// resetPeak makes the present memory of the operator its highest.
func (o *operator) resetPeak() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", o.cmd.Process.Pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("resetting the operator's peak memory: %w", err)
	}
	return nil
}

// takeSample reads /proc and the operator's metrics.
func (o *operator) takeSample() (*sample, error) {
	s := &sample{at: time.Now()}
	proc := fmt.Sprintf("/proc/%d/", o.cmd.Process.Pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return nil, fmt.Errorf("reading the operator's CPU time: %w", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, ticks := range fields[11:13] { // user and system time, of which a tick is 10 ms
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the operator's CPU time: %w", err)
		}
		s.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return nil, fmt.Errorf("reading the operator's memory: %w", err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			s.rss = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			s.peak = kib << 10
		}
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kib); err == nil {
			s.file = kib << 10
		}
	}
	answer, err := http.Get("http://" + o.metrics + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if s.families, err = parser.TextToMetricFamilies(answer.Body); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return s, nil
}

// writeProfiles writes a CPU profile and a heap profile for every ten seconds, until the context ends: NAME-1.pprof, NAME-1.heap.pprof,
// NAME-2.pprof and so on.
func (o *operator) writeProfiles(ctx context.Context, name string) {
	for i := 1; ctx.Err() == nil; i++ {
		err := o.writeProfile(ctx, "profile?seconds=10", fmt.Sprintf("%s-%d.pprof", name, i))
		if err == nil {
			err = o.writeProfile(ctx, "heap", fmt.Sprintf("%s-%d.heap.pprof", name, i))
		}
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "scale: profiling: %v\n", err)
			}
			return
		}
	}
}

// writeProfile writes a profile of the operator to a file.
func (o *operator) writeProfile(ctx context.Context, kind, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.pprof+"/debug/pprof/"+kind, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	profile, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, profile, 0o644)
}
