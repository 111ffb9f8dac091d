// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

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

// keepVariable holds the cluster's name when this program is started as a keeper.
const keepVariable = "SKYHOOK_TEST_CLUSTER_KEEP"

var initialized bool

// Init turns the process into a keeper, or a guard, if it was started as one, and then does not return. Programs that
// call Up call it before anything else.
func Init() {
	initialized = true
	for variable, become := range map[string]func(string) error{keepVariable: keep, guardVariable: watch} {
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
	Pause      string `json:"pause"`
	Kwok       string `json:"kwok"`
}

// A keeper holds a cluster.
type keeper struct {
	ctx         context.Context
	spec        Spec
	place       place // as seen from inside the keeper's own mount namespace
	made        artifacts
	credentials *credentials
	admin       *http.Client

	space    *network.Space // of the control plane
	registry *registry.Server
	proxy    *faults.Proxy // nil unless it was asked for
	machines []*machine
	doors    doors
	stop     chan struct{}
}

// doors are the keeper's listeners on this machine.
type doors struct{ control, api, registry net.Listener }

// keep brings up what a cluster consists of and holds it until it is told to stop.
func keep(name string) error {
	outside, err := locate(name)
	if err != nil {
		return err
	}
	k := &keeper{ctx: context.Background(), stop: make(chan struct{})}
	if err := errors.Join(load(outside.wish(), &k.spec), load(outside.artifacts(), &k.made)); err != nil {
		return err
	}
	if err := k.open(outside); err != nil {
		return err
	}
	if k.credentials, err = k.spec.issue(); err != nil {
		return err
	}
	if k.admin, err = k.credentials.adminClient(); err != nil {
		return err
	}
	if k.space, err = network.Plane(k.ctx); err != nil {
		return err
	}
	for _, start := range []func() error{k.serve, k.startPlane, k.startNodes, k.startSimulation, k.control} {
		if err := start(); err != nil {
			return err
		}
	}
	<-k.stop
	return nil
}

// open takes the doors to the machine, then moves where nobody else looks.
func (k *keeper) open(outside place) error {
	group, err := cgroup.Open(outside.keeperGroup())
	if err != nil {
		return err
	}
	if err := errors.Join(group.Make(), group.Enter()); err != nil {
		return err
	}
	if k.doors.control, err = net.Listen("unix", outside.socket()); err != nil {
		return fmt.Errorf("opening the keeper's socket: %w", err)
	}
	if k.doors.api, err = listen("API server", "--api-port", k.spec.APIPort); err != nil {
		return err
	}
	if k.doors.registry, err = listen("registry", "--registry-port", k.spec.RegistryPort); err != nil {
		return err
	}
	seen, err := isolate(map[string]string{
		"cluster": outside.dir, "kubernetes": k.made.Kubernetes, "containerd": k.made.Containerd, "root": k.made.Root, "kwok": k.made.Kwok,
	})
	if err != nil {
		return err
	}
	k.place = outside.at(seen["cluster"])
	k.made.Kubernetes, k.made.Containerd, k.made.Root, k.made.Kwok = seen["kubernetes"], seen["containerd"], seen["root"], seen["kwok"]
	return nil
}

// listen opens a port on the machine's loopback interface.
func listen(what, flag string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("opening port %d of 127.0.0.1 for the %s: another program uses it; choose another %s, or leave it out for any that is free", port, what, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("opening port %d of 127.0.0.1 for the %s: %w", port, what, err)
	}
	return l, nil
}

// isolate gives this process, which has mount and process namespaces of its own, a fresh /run and /tmp, so that what programs put
// there goes away with it, and shows the directories below /run, where paths are short and hold no odd characters.
func isolate(dirs map[string]string) (map[string]string, error) {
	opened := map[string]*os.File{}
	for name, dir := range dirs {
		if dir == "" {
			continue
		}
		f, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("preparing the keeper: %w", err)
		}
		defer func() { _ = f.Close() }()
		opened[name] = f
	}
	for _, dir := range []string{"/run", "/tmp"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return nil, fmt.Errorf("preparing the keeper: mounting a fresh %s: %w", dir, err)
		}
	}
	seen := map[string]string{}
	for name, f := range opened {
		seen[name] = filepath.Join("/run", name)
		if err := os.Mkdir(seen[name], 0o755); err != nil {
			return nil, fmt.Errorf("preparing the keeper: %w", err)
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), seen[name], "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("preparing the keeper: showing %s: %w", f.Name(), err)
		}
	}
	return seen, showProcesses()
}

// machineProcesses shows the processes of the whole machine, numbered as the machine does.
const machineProcesses = "/run/machine-processes"

// showProcesses makes /proc show the keeper's own process namespace, in which it is the first process: when it ends,
// the kernel ends all others.
func showProcesses() error {
	if err := os.Mkdir(machineProcesses, 0o755); err != nil {
		return fmt.Errorf("preparing the keeper: %w", err)
	}
	if err := unix.Mount("/proc", machineProcesses, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("preparing the keeper: showing the machine's processes: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("preparing the keeper: showing its own processes: %w", err)
	}
	return nil
}

// startPlane starts the control plane here, unless it runs on a node of its own.
func (k *keeper) startPlane() error {
	if err := os.MkdirAll(k.place.pki(), 0o700); err != nil {
		return fmt.Errorf("writing the credentials: %w", err)
	}
	for name, content := range k.credentials.files {
		if err := os.WriteFile(filepath.Join(k.place.pki(), name), content, 0o600); err != nil {
			return fmt.Errorf("writing the credentials: %w", err)
		}
	}
	if k.spec.ControlPlane != "" {
		return nil
	}
	for _, p := range k.spec.plane(k.place.pki(), k.place.etcd()) {
		var after func() bool
		if p.name != "etcd" && p.name != "kube-apiserver" {
			after = k.apiReady // they end when their permissions are not there yet
		}
		if err := k.run(p.name, after, append([]string{filepath.Join(k.made.Kubernetes, p.name)}, p.args...)); err != nil {
			return err
		}
	}
	return nil
}

// run keeps a program running on the network of the control plane, once `after` holds. It ends with the keeper.
func (k *keeper) run(name string, after func() bool, argv []string) error {
	log, err := os.Create(k.place.log(name))
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
			err := k.space.Inside(cmd.Start)
			if err == nil {
				err = cmd.Wait()
			}
			fmt.Fprintf(log, "--- %s ended: %v; starting it again\n", name, err)
			time.Sleep(time.Second)
		}
	}()
	return nil
}
