// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package testcluster runs a whole Kubernetes on this machine. A separate process, the supervisor, owns everything that a cluster
// consists of: when it exits for whatever reason, the kernel removes its processes, mounts and networks.
//
// A program that calls Up calls Init first: the supervisor is the same program, started again.
package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skyhook-k8s/skyhook/test/cluster/network"
)

// Spec describes a cluster.
type Spec struct {
	Name         string   `json:"name"`
	Nodes        []string `json:"nodes"`        // real systemd hosts, by name
	Trixie       []string `json:"trixie"`       // those of them with Debian 13; the others have Debian 12
	ControlPlane string   `json:"controlPlane"` // name of a node for the control plane; it runs outside of nodes if empty
	Labels       []Label  `json:"labels"`
	SmallDisks   []string `json:"smallDisks"` // directories of real nodes that get a file system of 64 MiB of their own, so that it can be filled

	Simulated      int           `json:"simulated"`      // number of nodes that kwok simulates
	SimulatedDelay time.Duration `json:"simulatedDelay"` // duration of each init container on simulated nodes
	SimulatedTaint bool          `json:"simulatedTaint"` // simulated nodes have a taint

	GracePeriod    time.Duration `json:"gracePeriod"`    // node monitor grace period; 0: depends on the number of nodes
	APIPort        int           `json:"apiPort"`        // on 127.0.0.1; 0: any free port
	RegistryPort   int           `json:"registryPort"`   // likewise
	APIServerProxy bool          `json:"apiServerProxy"` // a proxy that injects faults stands before the API server

	Tied bool `json:"tied"` // the cluster goes down with the process that brought it up
}

// Label is a label of one node, or of all nodes if Node is empty.
type Label struct {
	Node  string `json:"node,omitempty"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Cluster is a running cluster.
type Cluster struct {
	Name       string
	Kubeconfig string // path
	Config     *rest.Config
	Client     *kubernetes.Clientset

	paths    clusterPaths // empty on a foreign cluster
	watchdog *watchdog    // nil unless the cluster is tied to this process
}

// DefaultName is the default name of a cluster.
const DefaultName = "skyhook"

// gracePeriod is long enough for a busy machine with two cores and short enough to see a power cut within 15 seconds.
const gracePeriod = 12 * time.Second

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)
	nodeName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
)

// Check validates the spec.
func (s Spec) Check() error {
	var wrong []error
	if !clusterName.MatchString(s.Name) {
		wrong = append(wrong, fmt.Errorf("name %q: use at most 30 lower-case letters, digits and dashes", s.Name))
	}
	seen := map[string]bool{}
	for _, name := range s.realNodes() {
		if !nodeName.MatchString(name) {
			wrong = append(wrong, fmt.Errorf("node %q: use at most 63 lower-case letters, digits, dashes and dots", name))
		}
		if seen[name] {
			wrong = append(wrong, fmt.Errorf("node %q is named twice: every node needs a name of its own", name))
		}
		seen[name] = true
	}
	for _, name := range s.Trixie {
		if !seen[name] {
			wrong = append(wrong, fmt.Errorf("node %q, which is to run Debian 13: there is no such node", name))
		}
	}
	for _, path := range s.SmallDisks {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
			wrong = append(wrong, fmt.Errorf("small disk %q: name a directory by its absolute path, other than /", path))
		}
	}
	if n := len(s.realNodes()); n > network.MaxNodes {
		wrong = append(wrong, fmt.Errorf("%d nodes: at most %d real ones are possible; ask for simulated ones", n, network.MaxNodes))
	}
	if s.Simulated < 0 {
		wrong = append(wrong, fmt.Errorf("%d simulated nodes: the number must not be negative", s.Simulated))
	}
	for _, l := range s.Labels {
		if l.Node != "" && !seen[l.Node] {
			wrong = append(wrong, fmt.Errorf("label %s=%s: there is no node %q", l.Key, l.Value, l.Node))
		}
	}
	for name, port := range map[string]int{"API": s.APIPort, "registry": s.RegistryPort} {
		if port < 0 || port > 65535 {
			wrong = append(wrong, fmt.Errorf("%s port %d: use 1 to 65535, or 0 for any that is free", name, port))
		}
	}
	if s.GracePeriod < 0 || s.SimulatedDelay < 0 {
		wrong = append(wrong, errors.New("a grace period or delay must not be negative"))
	}
	return errors.Join(wrong...)
}

// realNodes lists the real nodes, that of the control plane first.
func (s Spec) realNodes() []string {
	if s.ControlPlane == "" {
		return s.Nodes
	}
	return append([]string{s.ControlPlane}, s.Nodes...)
}

// effectiveGracePeriod is the node monitor grace period. Thousands of simulated nodes renew their leases less often.
func (s Spec) effectiveGracePeriod() time.Duration {
	switch {
	case s.GracePeriod > 0:
		return s.GracePeriod
	case s.Simulated > 500:
		return 20 * time.Minute
	case s.Simulated > 0:
		return 40 * time.Second
	}
	return gracePeriod
}

// Open connects to a cluster that Up brought up.
func Open(name string) (*Cluster, error) {
	p, err := locatePaths(name)
	if err != nil {
		return nil, err
	}
	if _, err := p.fetchStatus(context.Background()); err != nil {
		return nil, err
	}
	c, err := Connect(p.kubeconfig())
	if err != nil {
		return nil, err
	}
	c.Name, c.paths = name, p
	return c, nil
}

// Connect connects to a foreign cluster, which has neither power switches nor this registry.
func Connect(kubeconfig string) (*Cluster, error) {
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", path, err)
	}
	config.QPS = -1 // no client-side throttling
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", path, err)
	}
	return &Cluster{Name: "existing", Kubeconfig: path, Config: config, Client: client}, nil
}

// IsOurs reports whether Up brought the cluster up: only then it has a registry, faults and power switches.
func (c *Cluster) IsOurs() bool { return c.paths.dir != "" }

// errNotOurs returns an error on a foreign cluster.
func (c *Cluster) errNotOurs(what string) error {
	if c.IsOurs() {
		return nil
	}
	return fmt.Errorf("%s: only possible on a cluster that test/cluster brought up", what)
}

// removeDir is os.RemoveAll with a more specific error.
func removeDir(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
