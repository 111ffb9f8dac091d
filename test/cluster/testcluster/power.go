// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/cluster/node"
)

// CommandLine returns the command line that runs argv on a node, for callers that connect their own terminal.
func (c *Cluster) CommandLine(ctx context.Context, name string, argv ...string) ([]string, error) {
	leader, err := c.waitLeader(ctx, name)
	if err != nil {
		return nil, err
	}
	return node.EnterCommand(leader, argv...), nil
}

// Exec runs a program on a node, as root of the host, and returns what it printed.
func (c *Cluster) Exec(ctx context.Context, name string, argv ...string) (string, error) {
	return c.execInput(ctx, name, nil, argv...)
}

func (c *Cluster) execInput(ctx context.Context, name string, input io.Reader, argv ...string) (string, error) {
	line, err := c.CommandLine(ctx, name, argv...)
	if err != nil {
		return "", err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("running %s on node %s: %w: %s", strings.Join(argv, " "), name, err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// Reboot asks a node to reboot, as its administrator would, and returns at once. See WaitBoot.
func (c *Cluster) Reboot(ctx context.Context, name string) error {
	_, err := c.Exec(ctx, name, "systemctl", "--no-block", "reboot")
	return err
}

// Poweroff asks a node to shut down and returns when it is off.
func (c *Cluster) Poweroff(ctx context.Context, name string) error {
	if _, err := c.Exec(ctx, name, "systemctl", "--no-block", "poweroff"); err != nil {
		return err
	}
	return c.waitOff(ctx, name)
}

// Crash cuts a node's power: every process of it ends at once. It returns when the node is off.
func (c *Cluster) Crash(ctx context.Context, name string) error {
	leader, err := c.waitLeader(ctx, name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		return fmt.Errorf("cutting the power of node %s: %w", name, err)
	}
	return c.waitOff(ctx, name)
}

// Start switches a node on that is off.
func (c *Cluster) Start(ctx context.Context, name string) error {
	if err := c.errNotOurs("starting a node"); err != nil {
		return err
	}
	return c.paths.callSupervisor(ctx, "POST", "/nodes/"+name+"/start", nil, nil)
}

// BootID returns the boot id that the node's kubelet reported last.
func (c *Cluster) BootID(ctx context.Context, name string) (string, error) {
	n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the boot id of node %s: %w", name, err)
	}
	return n.Status.NodeInfo.BootID, nil
}

// WaitBoot waits until the node is ready with another boot id than the one given.
func (c *Cluster) WaitBoot(ctx context.Context, name, before string) error {
	return pollUntil(ctx, fmt.Sprintf("node %s is ready after a boot", name), stepTimeout, func(ctx context.Context) (bool, string) {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return AcceptsPods(n) && n.Status.NodeInfo.BootID != before, fmt.Sprintf("ready %v, taints %v, boot id %s", IsReady(n), n.Spec.Taints, n.Status.NodeInfo.BootID)
	})
}

// WaitReady waits until the API server calls the node ready and pods may go there, or until it calls it not ready.
func (c *Cluster) WaitReady(ctx context.Context, name string, ready bool) error {
	return pollUntil(ctx, fmt.Sprintf("node %s is ready: %v", name, ready), stepTimeout, func(ctx context.Context) (bool, string) {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return IsReady(n) == ready && (!ready || AcceptsPods(n)), fmt.Sprintf("ready %v, taints %v", IsReady(n), n.Spec.Taints)
	})
}

func (c *Cluster) waitOff(ctx context.Context, name string) error {
	return pollUntil(ctx, fmt.Sprintf("node %s is off", name), time.Minute, func(ctx context.Context) (bool, string) {
		n, err := c.fetchNodeStatus(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		return !n.On, "it is on"
	})
}

// fetchNodeStatus asks the supervisor for the status of a node.
func (c *Cluster) fetchNodeStatus(ctx context.Context, name string) (NodeStatus, error) {
	if err := c.errNotOurs("reaching into node " + name); err != nil {
		return NodeStatus{}, err
	}
	s, err := c.paths.fetchStatus(ctx)
	if err != nil {
		return NodeStatus{}, err
	}
	for _, n := range s.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return NodeStatus{}, fmt.Errorf("there is no node %q in cluster %s", name, c.Name)
}

// waitLeader returns the first process of a node, and waits a few seconds if the node is booting.
func (c *Cluster) waitLeader(ctx context.Context, name string) (int, error) {
	var leader int
	var off error
	err := pollUntil(ctx, fmt.Sprintf("node %s runs", name), 10*time.Second, func(ctx context.Context) (bool, string) {
		n, err := c.fetchNodeStatus(ctx, name)
		if err == nil && !n.On {
			err = fmt.Errorf("node %s is off: switch it on with `node start %s`", name, name)
			if n.Failure != "" {
				err = fmt.Errorf("%w; it went off because of %s", err, n.Failure)
			}
		}
		if err != nil {
			off = err
			return true, ""
		}
		leader = n.Leader
		return leader != 0, "it is about to boot or to end"
	})
	return leader, errors.Join(off, err)
}
