// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
	"github.com/skyhook-k8s/skyhook/test/cluster/pki"
)

func installNode(t *testing.T, s Setup) (Node, func(string) string) {
	t.Helper()
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "kubelet"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	n := Node{Name: "gpu-7.rack", Index: 7, Dir: t.TempDir(), Machine: "skyhook-a-7", Kubernetes: programs, Containerd: t.TempDir()}
	if err := n.Install(s); err != nil {
		t.Fatal(err)
	}
	return n, func(path string) string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(n.root(), path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
}

func TestInstall(t *testing.T) {
	n, read := installNode(t, Setup{
		Kubelet: pki.Pair{Certificate: []byte("cert"), Key: []byte("key")}, Registry: "http://10.77.0.1:5000", Taint: "role/plane=:NoSchedule",
		Files: map[string][]byte{"/etc/systemd/system/etcd.service": []byte("[Unit]")}, Units: []string{"etcd.service"},
	})
	for path, want := range map[string]string{
		"/etc/hostname":                               "gpu-7.rack\n",
		"/etc/hosts":                                  "10.77.1.7 gpu-7.rack\n",
		"/etc/kubernetes/node.env":                    "NODE_NAME=gpu-7.rack\nNODE_IP=10.77.1.7\n",
		"/etc/kubernetes/kubelet.yaml":                `registerWithTaints: [{key: "role/plane", value: "", effect: "NoSchedule"}]`,
		"/etc/containerd/certs.d/_default/hosts.toml": `[host."http://10.77.0.1:5000"]`,
		"/etc/containerd/config.toml":                 "sandbox = '" + Sandbox + "'",
		"/etc/systemd/system/etcd.service":            "[Unit]",
	} {
		if got := read(path); !strings.Contains(got, want) {
			t.Errorf("%s holds %q, without %q", path, got, want)
		}
	}
	for unit, target := range map[string]string{
		"skyhook-node-setup": "sysinit", "containerd": "multi-user", "kubelet": "multi-user", "kube-proxy": "multi-user", "skyhook-beat": "multi-user", "etcd": "multi-user",
	} {
		link := filepath.Join(n.root(), "etc/systemd/system", target+".target.wants", unit+".service")
		to, err := os.Readlink(link)
		if err != nil {
			t.Errorf("%s does not start at boot: %v", unit, err)
			continue
		}
		if _, err := os.Stat(filepath.Join(n.root(), to)); err != nil {
			t.Errorf("%s starts at boot and is not there: %v", unit, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(n.root(), "usr/local/bin/kubelet")); err != nil || to != "/opt/kubernetes/kubelet" {
		t.Errorf("kubelet in PATH is %s, %v", to, err)
	}
	if mode, err := os.Stat(filepath.Join(n.root(), "etc/kubernetes/kubelet.key")); err != nil || mode.Mode().Perm() != 0o600 {
		t.Errorf("the kubelet's key has mode %v, %v", mode.Mode(), err)
	}
}

// TestWorker checks that a worker registers without a taint, and that the network routes its pods' addresses to it.
func TestWorker(t *testing.T) {
	_, read := installNode(t, Setup{})
	if strings.Contains(read("/etc/kubernetes/kubelet.yaml"), "registerWithTaints") {
		t.Error("a worker has a taint")
	}
	var conf struct {
		Plugins []struct {
			Type string
			IPAM struct {
				Ranges [][]struct{ Subnet string }
			}
		}
	}
	if err := json.Unmarshal([]byte(read("/etc/cni/net.d/10-pods.conflist")), &conf); err != nil {
		t.Fatal(err)
	}
	if conf.Plugins[0].Type != "bridge" || conf.Plugins[0].IPAM.Ranges[0][0].Subnet != network.NodePods(7) {
		t.Errorf("pods of node 7 get addresses from %+v", conf.Plugins)
	}
}

func TestLeader(t *testing.T) {
	if _, err := FindLeader(os.Getpid()); err == nil {
		t.Error("a process without a container below it has a leader")
	}
}
