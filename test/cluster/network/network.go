// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package network is the network of one test cluster: a network namespace for the control plane with a bridge, and one
// for each node, plugged into it. The namespaces have no names; they live as long as somebody holds them open, and so
// do their interfaces. Nothing touches the machine's own interfaces, so every cluster may use the same addresses.
package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The addresses of every cluster.
const (
	Gateway     = "10.77.0.1" // the control plane: API server and registry
	PodCIDR     = "10.244.0.0/16"
	ServiceCIDR = "10.96.0.0/16"
	APIService  = "10.96.0.1" // the Service `kubernetes`
	MaxNodes    = 200
)

// NodeIP is the address of node i, counted from 1.
func NodeIP(i int) string { return fmt.Sprintf("10.77.1.%d", i) }

// NodePods is the address range of node i's pods.
func NodePods(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }

// Namespace is a network namespace, which exists as long as it is open.
type Namespace struct{ file *os.File }

// NewNamespace creates an empty network namespace.
func NewNamespace() (*Namespace, error) {
	var s *Namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			return fmt.Errorf("opening a network namespace: %w", err)
		}
		s = &Namespace{file: file}
		return nil
	})
	return s, err
}

// Path is the path of the namespace for other programs, as long as this process has it open.
func (s *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

// Close closes the namespace; the kernel removes it with its last process.
func (s *Namespace) Close() error { return s.file.Close() }

// Join moves the calling thread into the namespace. The caller must have locked the thread and must not unlock it.
func (s *Namespace) Join() error {
	if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	return nil
}

// Run runs f on a thread inside the namespace, as are sockets that f opens and programs that f starts.
func (s *Namespace) Run(f func() error) error {
	return onThread(func() error {
		if err := s.Join(); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a thread of its own, which exits afterwards.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		done <- f()
	}()
	return <-done
}

// NewControlPlane creates the namespace of the control plane, with the bridge that connects the nodes.
func NewControlPlane(ctx context.Context) (*Namespace, error) {
	s, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	err = s.runIP(ctx,
		"link set lo up",
		// An address of its own: a bridge without one takes that of a port, and changes it when a node's port goes away.
		"link add nodes address 02:00:0a:4d:00:01 type bridge",
		"addr add "+Gateway+"/16 dev nodes",
		"link set nodes up")
	if err == nil {
		err = s.enableForwarding()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the network of the control plane: %w", err), s.Close())
	}
	return s, nil
}

// NewNode creates the namespace of node i of n, connected to the control plane and, by routes, to the pods of all other nodes. A
// node gets a new one with every boot, because a reboot discards addresses, firewall rules and net sysctls.
func NewNode(ctx context.Context, plane *Namespace, i, n int) (*Namespace, error) {
	s, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	port := fmt.Sprintf("node%d", i)
	_ = plane.runIP(ctx, "link del "+port) // that of the boot before, if the kernel has not yet removed it
	err = errors.Join(
		plane.runIP(ctx,
			fmt.Sprintf("link add %s type veth peer name eth0 address 02:00:0a:4d:01:%02x netns %s", port, i, s.Path()),
			"link set "+port+" master nodes up",
			"route replace "+NodePods(i)+" via "+NodeIP(i)),
		s.runIP(ctx, nodeCommands(i, n)...),
		s.enableForwarding())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the network of node %d: %w", i, err), s.Close())
	}
	return s, nil
}

// Connect cuts the network of node i, or connects it again, as at its port of the switch. A boot connects it too.
func Connect(ctx context.Context, plane *Namespace, i int, isConnected bool) error {
	state := "down"
	if isConnected {
		state = "up"
	}
	if err := plane.runIP(ctx, fmt.Sprintf("link set node%d %s", i, state)); err != nil {
		return fmt.Errorf("setting the port of node %d %s: %w", i, state, err)
	}
	return nil
}

func nodeCommands(i, n int) []string {
	commands := []string{
		"link set lo up",
		"addr add " + NodeIP(i) + "/16 dev eth0",
		"link set eth0 up",
		"route add default via " + Gateway,
	}
	for other := 1; other <= n; other++ {
		if other != i {
			commands = append(commands, "route add "+NodePods(other)+" via "+NodeIP(other))
		}
	}
	return commands
}

// runIP runs commands of ip inside the namespace.
func (s *Namespace) runIP(ctx context.Context, commands ...string) error {
	return s.Run(func() error {
		ip := exec.CommandContext(ctx, "ip", "-batch", "-")
		ip.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
		if out, err := ip.CombinedOutput(); err != nil {
			return fmt.Errorf("ip: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// enableForwarding enables IP forwarding, and the firewall for packets between pods on one bridge: without it a pod cannot reach
// a Service whose pod is on its own node.
func (s *Namespace) enableForwarding() error {
	return s.Run(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
			return fmt.Errorf("turning on forwarding: %w", err)
		}
		if err := os.WriteFile(BridgeFirewall, []byte("1"), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("turning on the firewall of bridges: %w", err)
		}
		return nil
	})
}

// BridgeFirewall is there when the kernel can send packets between pods on one bridge through the firewall.
const BridgeFirewall = "/proc/sys/net/bridge/bridge-nf-call-iptables"
