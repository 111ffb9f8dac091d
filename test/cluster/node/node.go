// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package node is one node of a test cluster: a real systemd host, booted by systemd-nspawn, with containerd, kubelet
// and kube-proxy. It can be rebooted from inside, shut down, started, and have its power cut.
package node

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
	"github.com/skyhook-k8s/skyhook/test/cluster/pki"
)

// Node describes a node.
type Node struct {
	Name    string // its name in Kubernetes, and its host name
	Index   int    // from 1; decides its addresses
	Dir     string // of all files that the node writes
	Machine string // unique on this machine

	Root       string // read-only root file system that all nodes share
	Kubernetes string // directory with kubelet and kube-proxy
	Containerd string // directory with containerd

	SmallDisks []string // directories with a file system of their own, of smallDiskSize, which outlives reboots and power cuts
}

const smallDiskSize = "64m"

// Setup is the configuration of a node for its cluster.
type Setup struct {
	Authority []byte // certificate that the node trusts
	Kubelet   pki.Pair
	Kubelets  []byte // kubeconfig of the kubelet
	Proxy     []byte // kubeconfig of kube-proxy
	Registry  string // URL of the registry that takes the place of all registries
	Taint     string // taint to register with, as KEY=VALUE:EFFECT, or nothing

	Files map[string][]byte // further files, by absolute path
	Units []string          // further units to start at boot, among Files
}

// Sandbox is the image of pod sandboxes.
const Sandbox = "registry.k8s.io/pause:3.10.1"

//go:embed files
var files embed.FS

// IP is the node's address.
func (n Node) IP() string { return network.NodeIP(n.Index) }

// Console is the file with the output of the node's console.
func (n Node) Console() string { return filepath.Join(n.Dir, "console.log") }

func (n Node) root() string { return filepath.Join(n.Dir, "root") }

// Mount mounts the node's root file system, an overlay on the shared one, and its small disks. The caller has a mount namespace of its own, so that the
// mount ends with the caller.
func (n Node) Mount() error {
	for _, name := range []string{"upper", "work", "root", "containerd", "kubelet"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, name), 0o755); err != nil {
			return fmt.Errorf("creating the directories of node %s: %w", n.Name, err)
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", n.Root, filepath.Join(n.Dir, "upper"), filepath.Join(n.Dir, "work"))
	if err := unix.Mount("overlay", n.root(), "overlay", 0, layers); err != nil {
		return fmt.Errorf("mounting the root file system of node %s: %w; %s must be on a file system that can carry an overlay, such as ext4 or xfs: set XDG_STATE_HOME to one",
			n.Name, err, n.Dir)
	}
	for _, path := range n.SmallDisks {
		if err := mountSmallDisk(n.smallDisk(path)); err != nil {
			return fmt.Errorf("mounting the small disk %s of node %s: %w", path, n.Name, err)
		}
	}
	return nil
}

// mountSmallDisk mounts an overlay over nothing on a file system in memory: it has the size of that, and looks like a disk to programs,
// such as the agent, that refuse to keep in memory what a boot must not lose.
func mountSmallDisk(at string) error {
	memory := at + ".memory"
	if err := errors.Join(os.MkdirAll(at, 0o755), os.MkdirAll(memory, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "mode=755,size="+smallDiskSize); err != nil {
		return err
	}
	var made []error
	for _, name := range []string{"lower", "upper", "work"} {
		made = append(made, os.Mkdir(filepath.Join(memory, name), 0o755))
	}
	if err := errors.Join(made...); err != nil {
		return err
	}
	return unix.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", memory))
}

// smallDisk is where the file system of a directory is mounted outside of the node.
func (n Node) smallDisk(path string) string {
	return filepath.Join(n.Dir, "disks", strings.ReplaceAll(strings.Trim(path, "/"), "/", "-"))
}

// Install writes the files with which the node joins its cluster. The root file system must be mounted.
func (n Node) Install(s Setup) error {
	content := map[string][]byte{
		"/etc/hostname":    []byte(n.Name + "\n"),
		"/etc/hosts":       fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", n.IP(), n.Name),
		"/etc/machine-id":  fmt.Appendf(nil, "%032x\n", 0x10000000+n.Index),
		"/etc/resolv.conf": nil,
		"/etc/systemd/system.conf.d/skyhook.conf": []byte("[Manager]\nDefaultTimeoutStopSec=5s\n"), // a pod that ignores TERM would hold up a reboot for 90 s
		"/etc/kubernetes/ca.crt":                  s.Authority,
		"/etc/kubernetes/kubelet.crt":             s.Kubelet.Certificate,
		"/etc/kubernetes/kubelet.key":             s.Kubelet.Key,
		"/etc/kubernetes/kubelet.kubeconfig":      s.Kubelets,
		"/etc/kubernetes/proxy.kubeconfig":        s.Proxy,
		"/etc/kubernetes/node.env":                fmt.Appendf(nil, "NODE_NAME=%s\nNODE_IP=%s\nPOD_CIDR=%s\n", n.Name, n.IP(), network.PodCIDR),
		"/etc/kubernetes/kubelet.yaml":            append(readEmbedded("kubelet.yaml"), registerTaint(s.Taint)...),
		"/etc/containerd/config.toml":             bytes.ReplaceAll(readEmbedded("containerd.toml"), []byte("SANDBOX"), []byte(Sandbox)),
		"/etc/containerd/certs.d/_default/hosts.toml": fmt.Appendf(nil,
			"server = %[1]q\n[host.%[1]q]\n  capabilities = ['pull', 'resolve']\n", s.Registry),
		"/etc/cni/net.d/10-pods.conflist": podNetwork(n.Index),
	}
	units := append([]string{"skyhook-node-setup.service", "skyhook-beat.service", "containerd.service", "kubelet.service", "kube-proxy.service"}, s.Units...)
	for _, unit := range units[:5] {
		content["/etc/systemd/system/"+unit] = readEmbedded(unit)
	}
	maps.Copy(content, s.Files)
	for path, text := range content {
		mode := os.FileMode(0o644)
		if filepath.Ext(path) == ".key" {
			mode = 0o600
		}
		if err := n.writeFile(path, text, mode); err != nil {
			return err
		}
	}
	if err := n.writeFile("/usr/local/sbin/skyhook-node-setup", readEmbedded("skyhook-node-setup"), 0o755); err != nil {
		return err
	}
	return n.enableUnits(units)
}

// enableUnits enables systemd units and links programs into PATH.
func (n Node) enableUnits(units []string) error {
	links := map[string]string{}
	for _, unit := range units {
		target := "multi-user.target"
		if unit == "skyhook-node-setup.service" {
			target = "sysinit.target"
		}
		links["/etc/systemd/system/"+target+".wants/"+unit] = "/etc/systemd/system/" + unit
	}
	for dir, source := range n.programDirs() {
		entries, err := os.ReadDir(source)
		if err != nil {
			return fmt.Errorf("installing the programs of node %s: %w", n.Name, err)
		}
		for _, entry := range entries {
			links["/usr/local/bin/"+entry.Name()] = dir + "/" + entry.Name()
		}
	}
	for path, target := range links {
		at := filepath.Join(n.root(), path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("installing %s on node %s: %w", path, n.Name, err)
		}
		if err := os.Symlink(target, at); err != nil {
			return fmt.Errorf("installing %s on node %s: %w", path, n.Name, err)
		}
	}
	return nil
}

// programDirs maps directories in the node to the directories of this machine that are mounted there, read-only.
func (n Node) programDirs() map[string]string {
	return map[string]string{"/opt/kubernetes": n.Kubernetes, "/opt/containerd": n.Containerd}
}

func (n Node) writeFile(path string, content []byte, mode os.FileMode) error {
	at := filepath.Join(n.root(), path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("writing %s of node %s: %w", path, n.Name, err)
	}
	_ = os.Remove(at) // Debian has links in some of these places
	if err := os.WriteFile(at, content, mode); err != nil {
		return fmt.Errorf("writing %s of node %s: %w", path, n.Name, err)
	}
	return nil
}

func readEmbedded(name string) []byte {
	content, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // the file is part of this program
	}
	return content
}
