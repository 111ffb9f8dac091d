// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

	mu      sync.Mutex
	on      bool
	carrier int   // the process that carries the boot, 0 between two boots
	failure error // why it is off, if it was not switched off
}

// startNodes installs all nodes and switches them on.
func (k *keeper) startNodes() error {
	if err := k.pushPause(); err != nil {
		return err
	}
	for i, name := range k.spec.hosts() {
		group, err := cgroup.Open(k.place.nodeGroup(i + 1))
		if err != nil {
			return err
		}
		m := &machine{group: group, node: node.Node{
			Name: name, Index: i + 1, Dir: k.place.node(name), Machine: k.place.machine(i + 1),
			Root: k.made.Root, Kubernetes: k.made.Kubernetes, Containerd: k.made.Containerd,
		}}
		if err := m.node.Mount(); err != nil {
			return err
		}
		if err := m.node.Install(k.setup(name)); err != nil {
			return err
		}
		k.machines = append(k.machines, m)
	}
	for _, m := range k.machines {
		if err := k.start(m); err != nil {
			return err
		}
	}
	return nil
}

// setup is what a node is told about this cluster.
func (k *keeper) setup(name string) node.Setup {
	s := node.Setup{
		Authority: k.credentials.authority.Certificate,
		Kubelet:   k.credentials.kubelets[name],
		Kubelets:  k.credentials.kubeconfig(k.credentials.kubelets[name]),
		Proxy:     k.credentials.kubeconfig(k.credentials.proxy),
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
	for _, p := range k.spec.plane(pki, "/var/lib/etcd") {
		s.Files["/etc/systemd/system/"+p.name+".service"] = p.unit()
		s.Units = append(s.Units, p.name+".service")
	}
	return s
}

// start switches a node on. It stays on, through reboots, until it is shut down or its power is cut.
func (k *keeper) start(m *machine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on {
		return fmt.Errorf("starting node %s: it is on", m.node.Name)
	}
	m.on, m.failure = true, nil
	go func() {
		err := m.node.Run(m.group,
			func() (*network.Space, error) { return network.Plug(k.ctx, k.space, m.node.Index, len(k.spec.hosts())) },
			func(pid int) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.carrier = pid
			})
		m.mu.Lock()
		defer m.mu.Unlock()
		m.on, m.carrier, m.failure = false, 0, err
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return nil
}

// machine finds a node by its name.
func (k *keeper) machine(name string) (*machine, error) {
	for _, m := range k.machines {
		if m.node.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q in cluster %s", name, k.spec.Name)
}

// pushPause puts the image into the registry that every pod's sandbox runs.
func (k *keeper) pushPause() error {
	if k.made.Pause == "" {
		return nil
	}
	program, err := os.ReadFile(k.made.Pause)
	if err != nil {
		return fmt.Errorf("making the image of pod sandboxes: %w", err)
	}
	image, err := registry.Image(map[string]registry.File{"pause": {Content: program, Mode: 0o755}}, "/pause")
	if err != nil {
		return err
	}
	_, err = registry.Push(context.Background(), k.doors.registry.Addr().String(), node.Sandbox, image)
	return err
}
