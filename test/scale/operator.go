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
	peak     int64 // bytes, highest ever
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
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./cmd/operator")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, errors.Join(fmt.Errorf("building the operator: %w", err), os.RemoveAll(dir))
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
		"--probe-port", addresses[2], "--log-level", "info", "--namespace", namespace, fmt.Sprintf("--leader-election=%v", r.soak > 0))
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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

// kubeconfigPath is the path of the operator's kubeconfig.
func (o *operator) kubeconfigPath() string { return filepath.Join(o.dir, "kubeconfig") }

func (o *operator) stop() {
	_ = o.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	<-o.ended
	_ = os.RemoveAll(o.dir)
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

// writeProfile writes a CPU profile of 30 seconds to a file.
func (o *operator) writeProfile(path string) {
	answer, err := http.Get("http://" + o.pprof + "/debug/pprof/profile?seconds=30")
	if err != nil {
		fmt.Fprintf(os.Stderr, "scale: profiling: %v\n", err)
		return
	}
	defer answer.Body.Close()
	file, err := os.Create(path)
	if err == nil {
		_, err = io.Copy(file, answer.Body)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "scale: profiling: %v\n", err)
	}
}
