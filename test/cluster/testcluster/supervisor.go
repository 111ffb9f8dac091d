// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/test/cluster/cgroup"
	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/cluster/network"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// supervisorVariable holds the cluster's name when this program is started as a supervisor.
const supervisorVariable = "SKYHOOK_TEST_CLUSTER_SUPERVISOR"

var initialized bool

// Init runs the supervisor or watchdog if this process was started as one, and does not return then. Programs that call Up call
// it first.
func Init() {
	initialized = true
	for variable, become := range map[string]func(string) error{supervisorVariable: runSupervisor, watchdogVariable: runWatchdog} {
		name := os.Getenv(variable)
		if name == "" {
			continue
		}
		if err := os.Unsetenv(variable); err != nil {
			panic(err) // it was just read
		}
		if err := become(name); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// artifacts are the directories with what was built.
type artifacts struct {
	Kubernetes string `json:"kubernetes"`
	Containerd string `json:"containerd"`
	Root       string `json:"root"`
	Trixie     string `json:"trixie"`
	Pause      string `json:"pause"`
	Kwok       string `json:"kwok"`
}

// supervisor owns the processes, mounts and networks of a cluster.
type supervisor struct {
	ctx         context.Context
	spec        Spec
	paths       clusterPaths // inside the supervisor's mount namespace
	artifacts   artifacts
	credentials *credentials
	admin       *http.Client

	space     *network.Namespace // of the control plane
	registry  *registry.Server
	proxy     *faults.Proxy // nil unless APIServerProxy is set
	machines  []*machine
	listeners listeners
	running   runningPrograms
	stop      chan struct{}
}

// listeners are the supervisor's listeners on this machine.
type listeners struct{ control, api, registry net.Listener }

// runSupervisor starts all parts of a cluster, and returns when it is told to stop.
func runSupervisor(name string) error {
	outside, err := locatePaths(name)
	if err != nil {
		return err
	}
	k := &supervisor{ctx: context.Background(), stop: make(chan struct{})}
	if err := errors.Join(readJSON(outside.specFile(), &k.spec), readJSON(outside.artifactsFile(), &k.artifacts)); err != nil {
		return err
	}
	if err := k.prepare(outside); err != nil {
		return err
	}
	if k.credentials, err = k.spec.issueCredentials(); err != nil {
		return err
	}
	if k.admin, err = k.credentials.adminClient(); err != nil {
		return err
	}
	if k.space, err = network.NewControlPlane(k.ctx); err != nil {
		return err
	}
	for _, start := range []func() error{k.startServers, k.startPlane, k.startNodes, k.startSimulation, k.serveControl} {
		if err := start(); err != nil {
			return err
		}
	}
	<-k.stop
	return nil
}

// prepare opens the listeners on this machine, and then isolates the supervisor from it.
func (k *supervisor) prepare(outside clusterPaths) error {
	group, err := cgroup.Open(outside.supervisorGroup())
	if err != nil {
		return err
	}
	if err := errors.Join(group.Create(), group.Enter()); err != nil {
		return err
	}
	if k.listeners.control, err = net.Listen("unix", outside.socket()); err != nil {
		return fmt.Errorf("opening the supervisor's socket: %w", err)
	}
	if k.listeners.api, err = listenLocally("API server", "--api-port", k.spec.APIPort); err != nil {
		return err
	}
	if k.listeners.registry, err = listenLocally("registry", "--registry-port", k.spec.RegistryPort); err != nil {
		return err
	}
	dirs := map[string]string{
		"cluster": outside.dir, "kubernetes": k.artifacts.Kubernetes, "containerd": k.artifacts.Containerd, "root": k.artifacts.Root,
		"trixie": k.artifacts.Trixie, "kwok": k.artifacts.Kwok,
	}
	if k.artifacts.Pause != "" {
		dirs["pause"] = filepath.Dir(k.artifacts.Pause)
	}
	seen, err := isolateMounts(dirs)
	if err != nil {
		return err
	}
	if k.artifacts.Pause != "" {
		k.artifacts.Pause = filepath.Join(seen["pause"], filepath.Base(k.artifacts.Pause))
	}
	k.paths = outside.withDir(seen["cluster"])
	k.artifacts.Kubernetes, k.artifacts.Containerd, k.artifacts.Kwok = seen["kubernetes"], seen["containerd"], seen["kwok"]
	k.artifacts.Root, k.artifacts.Trixie = seen["root"], seen["trixie"]
	return nil
}

// listenLocally opens a port on the machine's loopback interface.
func listenLocally(what, flag string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("opening port %d of 127.0.0.1 for the %s: another program uses it; choose another %s, or leave it out for any that is free", port, what, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("opening port %d of 127.0.0.1 for the %s: %w", port, what, err)
	}
	return l, nil
}

// isolateMounts mounts a private /run and /tmp in this process's own mount namespace, so that files of its programs vanish with it,
// and the given directories below /run, where paths are short and contain no special characters.
func isolateMounts(dirs map[string]string) (map[string]string, error) {
	opened := map[string]*os.File{}
	for name, dir := range dirs {
		if dir == "" {
			continue
		}
		f, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("preparing the supervisor: %w", err)
		}
		defer func() { _ = f.Close() }()
		opened[name] = f
	}
	for _, dir := range []string{"/run", "/tmp"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return nil, fmt.Errorf("preparing the supervisor: mounting a fresh %s: %w", dir, err)
		}
	}
	seen := map[string]string{}
	for name, f := range opened {
		seen[name] = filepath.Join("/run", name)
		if err := os.Mkdir(seen[name], 0o755); err != nil {
			return nil, fmt.Errorf("preparing the supervisor: %w", err)
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), seen[name], "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("preparing the supervisor: showing %s: %w", f.Name(), err)
		}
	}
	return seen, showProcesses()
}

// machineProcesses is the /proc of the machine's process namespace.
const machineProcesses = "/run/machine-processes"

// showProcesses mounts the /proc of the supervisor's own process namespace. The supervisor is its first process: when it ends, the
// kernel kills all others.
func showProcesses() error {
	if err := os.Mkdir(machineProcesses, 0o755); err != nil {
		return fmt.Errorf("preparing the supervisor: %w", err)
	}
	if err := unix.Mount("/proc", machineProcesses, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("preparing the supervisor: showing the machine's processes: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("preparing the supervisor: showing its own processes: %w", err)
	}
	return nil
}

// startPlane starts the control plane, unless it runs on a node of its own.
func (k *supervisor) startPlane() error {
	if err := os.MkdirAll(k.paths.pki(), 0o700); err != nil {
		return fmt.Errorf("writing the credentials: %w", err)
	}
	for name, content := range k.credentials.files {
		if err := os.WriteFile(filepath.Join(k.paths.pki(), name), content, 0o600); err != nil {
			return fmt.Errorf("writing the credentials: %w", err)
		}
	}
	if k.spec.ControlPlane != "" {
		return nil
	}
	for _, p := range k.spec.controlPlanePrograms(k.paths.pki(), k.paths.etcd()) {
		var after func() bool
		if p.name != "etcd" && p.name != "kube-apiserver" {
			after = k.apiReady // they exit while their permissions do not exist yet
		}
		if err := k.runProgram(p.name, after, append([]string{filepath.Join(k.artifacts.Kubernetes, p.name)}, p.args...)); err != nil {
			return err
		}
	}
	return nil
}

// runProgram starts a program on the network of the control plane once `after` holds, and restarts it when it exits.
func (k *supervisor) runProgram(name string, after func() bool, argv []string) error {
	log, err := os.Create(k.paths.log(name))
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		for after != nil && !after() {
			time.Sleep(50 * time.Millisecond)
		}
		for {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Stdout, cmd.Stderr = log, log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			err := k.space.Run(cmd.Start)
			if err == nil {
				k.running.set(name, cmd.Process)
				err = cmd.Wait()
				k.running.set(name, nil)
			}
			fmt.Fprintf(log, "--- %s ended: %v; restarting it\n", name, err)
			time.Sleep(time.Second)
		}
	}()
	return nil
}
