// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"path"
	"strings"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
	"github.com/skyhook-k8s/skyhook/test/cluster/pki"
)

// The address of the API server for all clients in the cluster.
const (
	apiPort  = 6443
	serverIP = network.Gateway
)

// serverURL is the URL of the API server, or of the proxy before it.
func serverURL() string { return fmt.Sprintf("https://%s:%d", serverIP, apiPort) }

// apiServerIP is the address on which the API server itself listens; a proxy or relay has serverIP then.
func (s Spec) apiServerIP() string {
	switch {
	case s.ControlPlane != "":
		return network.NodeIP(1)
	case s.APIServerProxy:
		return "127.0.0.1"
	}
	return serverIP
}

// program is one program of the control plane.
type program struct {
	name string
	args []string
}

// controlPlanePrograms lists the programs of the control plane, with their certificates in certs and etcd's data in etcd.
func (s Spec) controlPlanePrograms(certs, etcd string) []program {
	kubeconfig := func(name string) []string {
		file := path.Join(certs, name+".kubeconfig")
		return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file, "--bind-address=127.0.0.1", "--leader-elect=false"}
	}
	grace := s.effectiveGracePeriod()
	controllers := append(kubeconfig("kube-controller-manager"),
		"--use-service-account-credentials", "--service-account-private-key-file="+path.Join(certs, "service-accounts.key"), "--root-ca-file="+path.Join(certs, "ca.crt"),
		"--cluster-signing-cert-file="+path.Join(certs, "ca.crt"), "--cluster-signing-key-file="+path.Join(certs, "ca.key"),
		"--node-monitor-grace-period="+grace.String(), "--node-monitor-period=1s")
	scheduler := kubeconfig("kube-scheduler")
	if s.Simulated > 0 {
		controllers = append(controllers, "--kube-api-qps=1000", "--kube-api-burst=2000")
		scheduler = append(scheduler, "--kube-api-qps=2000", "--kube-api-burst=4000")
	}
	return []program{
		{"etcd", []string{
			"--name=test", "--data-dir=" + etcd, "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=test=http://127.0.0.1:2380",
			"--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=warn",
		}},
		{"kube-apiserver", s.apiServerArgs(certs)},
		{"kube-controller-manager", controllers},
		{"kube-scheduler", scheduler},
	}
}

func (s Spec) apiServerArgs(certs string) []string {
	file := func(name string) string { return path.Join(certs, name) }
	args := []string{
		"--etcd-servers=http://127.0.0.1:2379", "--bind-address=" + s.apiServerIP(), "--advertise-address=" + serverIP, fmt.Sprintf("--secure-port=%d", apiPort),
		"--tls-cert-file=" + file("kube-apiserver.crt"), "--tls-private-key-file=" + file("kube-apiserver.key"), "--client-ca-file=" + file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + file("service-accounts.crt"),
		"--service-account-signing-key-file=" + file("service-accounts.key"), "--service-cluster-ip-range=" + network.ServiceCIDR,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-client-certificate=" + file("kubelet-client.crt"), "--kubelet-client-key=" + file("kubelet-client.key"),
		"--kubelet-certificate-authority=" + file("ca.crt"), "--kubelet-preferred-address-types=InternalIP", "--endpoint-reconciler-type=lease",
	}
	if s.APIServerProxy {
		args = append(args, "--requestheader-client-ca-file="+file("front-ca.crt"), "--requestheader-allowed-names=front",
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-")
	}
	if s.Simulated > 0 {
		args = append(args, "--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000", "--enable-priority-and-fairness=false", "--profiling=false")
	}
	return args
}

// systemdUnit is the unit that runs the program on a control plane node.
func (p program) systemdUnit() []byte {
	return fmt.Appendf(nil, `[Unit]
Description=%[1]s
After=network.target

[Service]
ExecStart=/usr/local/bin/%[1]s \
	%[2]s
Restart=always
RestartSec=1
LimitNOFILE=20000

[Install]
WantedBy=multi-user.target
`, p.name, strings.Join(p.args, " \\\n\t"))
}

// credentials are all keys and certificates of a cluster.
type credentials struct {
	authority, proxyAuthority *pki.Authority
	files                     map[string][]byte   // of the control plane, by file name
	admin                     pki.Pair            // cluster administrator
	kubelets                  map[string]pki.Pair // by node
	proxy                     pki.Pair            // kube-proxy
	serving                   pki.Pair            // the API server
	proxyClient               pki.Pair            // the proxy in front of the API server
}

// issueCredentials creates the credentials of a cluster.
func (s Spec) issueCredentials() (*credentials, error) {
	c := &credentials{files: map[string][]byte{}, kubelets: map[string]pki.Pair{}}
	var err error
	if c.authority, err = pki.NewAuthority("skyhook-test-" + s.Name); err != nil {
		return nil, err
	}
	if c.proxyAuthority, err = pki.NewAuthority("skyhook-test-" + s.Name + "-front"); err != nil {
		return nil, err
	}
	if c.proxyClient, err = c.proxyAuthority.Issue(pki.Subject{Name: "front"}); err != nil {
		return nil, err
	}
	names := []string{serverIP, "127.0.0.1", network.APIService, network.NodeIP(1), "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	subjects := []pki.Subject{
		{Name: "kube-apiserver", Hosts: names},
		{Name: "kubelet-client", Groups: []string{"system:masters"}},
		{Name: "admin", Groups: []string{"system:masters"}},
		{Name: "system:kube-proxy"}, {Name: "system:kube-controller-manager"}, {Name: "system:kube-scheduler"},
	}
	for i, node := range s.realNodes() {
		subjects = append(subjects, pki.Subject{Name: "system:node:" + node, Groups: []string{"system:nodes"}, Hosts: []string{node, network.NodeIP(i + 1)}})
	}
	for _, subject := range subjects {
		pair, err := c.authority.Issue(subject)
		if err != nil {
			return nil, err
		}
		c.addPair(subject.Name, pair)
	}
	return c, c.writeFiles()
}

// addPair stores a pair in the field or file of its user.
func (c *credentials) addPair(name string, pair pki.Pair) {
	short := strings.TrimPrefix(name, "system:")
	if node, is := strings.CutPrefix(short, "node:"); is {
		c.kubelets[node] = pair
		return
	}
	switch name {
	case "admin":
		c.admin = pair
	case "system:kube-proxy":
		c.proxy = pair
	case "system:kube-controller-manager", "system:kube-scheduler":
		c.files[short+".kubeconfig"] = c.renderKubeconfig(pair)
	default:
		if name == "kube-apiserver" {
			c.serving = pair
		}
		c.files[name+".crt"], c.files[name+".key"] = pair.Certificate, pair.Key
	}
}

// renderKubeconfig renders a kubeconfig for use inside the cluster.
func (c *credentials) renderKubeconfig(p pki.Pair) []byte {
	return c.authority.Kubeconfig("cluster", serverURL(), p)
}

func (c *credentials) writeFiles() error {
	tokens, err := pki.SigningKey()
	if err != nil {
		return err
	}
	key, err := c.authority.Key()
	if err != nil {
		return err
	}
	c.files["service-accounts.crt"], c.files["service-accounts.key"] = tokens.Certificate, tokens.Key
	c.files["ca.crt"], c.files["ca.key"], c.files["front-ca.crt"] = c.authority.Certificate, key, c.proxyAuthority.Certificate
	c.files["admin.kubeconfig"] = c.renderKubeconfig(c.admin)
	return nil
}
