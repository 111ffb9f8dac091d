// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/skyhook-k8s/skyhook/test/cluster/cgroup"
	"github.com/skyhook-k8s/skyhook/test/cluster/network"
	"github.com/skyhook-k8s/skyhook/test/cluster/node"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
)

// A machine is a node and whether it is on.
type machine struct {
	node  node.Node
	group cgroup.Group

	mu        sync.Mutex
	on        bool
	nspawnPID int   // 0 between two boots
	failure   error // why it is off, unless it was switched off
}

// root is the root file system of a node.
func (k *supervisor) root(name string) string {
	if slices.Contains(k.spec.Trixie, name) {
		return k.artifacts.Trixie
	}
	return k.artifacts.Root
}

// startNodes installs all nodes and switches them on.
func (k *supervisor) startNodes() error {
	if err := k.pushPause(); err != nil {
		return err
	}
	for i, name := range k.spec.realNodes() {
		group, err := cgroup.Open(k.paths.nodeGroup(i + 1))
		if err != nil {
			return err
		}
		m := &machine{group: group, node: node.Node{
			Name: name, Index: i + 1, Dir: k.paths.node(name), Machine: k.paths.machine(i + 1),
			Root: k.root(name), Kubernetes: k.artifacts.Kubernetes, Containerd: k.artifacts.Containerd, SmallDisks: k.spec.SmallDisks,
		}}
		if err := m.node.Mount(); err != nil {
			return err
		}
		if err := m.node.Install(k.nodeSetup(name)); err != nil {
			return err
		}
		k.machines = append(k.machines, m)
	}
	for _, m := range k.machines {
		if err := k.startNode(m); err != nil {
			return err
		}
	}
	return nil
}

// nodeSetup is the configuration of a node for this cluster.
func (k *supervisor) nodeSetup(name string) node.Setup {
	s := node.Setup{
		Authority: k.credentials.authority.Certificate,
		Kubelet:   k.credentials.kubelets[name],
		Kubelets:  k.credentials.renderKubeconfig(k.credentials.kubelets[name]),
		Proxy:     k.credentials.renderKubeconfig(k.credentials.proxy),
		Registry:  fmt.Sprintf("http://%s:%d", network.Gateway, registry.Port),
	}
	if name != k.spec.ControlPlane {
		return s
	}
	const pki = "/etc/kubernetes/pki"
	s.Taint = "node-role.kubernetes.io/control-plane=:NoSchedule"
	s.Files = map[string][]byte{}
	for file, content := range k.credentials.files {
		s.Files[filepath.Join(pki, file)] = content
	}
	for _, p := range k.spec.controlPlanePrograms(pki, "/var/lib/etcd") {
		s.Files["/etc/systemd/system/"+p.name+".service"] = p.systemdUnit()
		s.Units = append(s.Units, p.name+".service")
	}
	return s
}

// startNode switches a node on. It stays on, through reboots, until it is shut down or its power is cut.
func (k *supervisor) startNode(m *machine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on {
		return fmt.Errorf("starting node %s: it is on", m.node.Name)
	}
	m.on, m.failure = true, nil
	go func() {
		err := m.node.Run(m.group,
			func() (*network.Namespace, error) {
				return network.NewNode(k.ctx, k.space, m.node.Index, len(k.spec.realNodes()))
			},
			func(pid int) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.nspawnPID = pid
			})
		m.mu.Lock()
		defer m.mu.Unlock()
		m.on, m.nspawnPID, m.failure = false, 0, err
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return nil
}

// findMachine finds a node by its name.
func (k *supervisor) findMachine(name string) (*machine, error) {
	for _, m := range k.machines {
		if m.node.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q in cluster %s", name, k.spec.Name)
}

// pushPause pushes the image of pod sandboxes to the registry.
func (k *supervisor) pushPause() error {
	if k.artifacts.Pause == "" {
		return nil
	}
	program, err := os.ReadFile(k.artifacts.Pause)
	if err != nil {
		return fmt.Errorf("making the image of pod sandboxes: %w", err)
	}
	image, err := registry.Image(map[string]registry.File{"pause": {Content: program, Mode: 0o755}}, "/pause")
	if err != nil {
		return err
	}
	_, err = registry.Push(context.Background(), k.listeners.registry.Addr().String(), node.Sandbox, image)
	return err
}
