// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package lab brings a whole Kubernetes up on this machine and takes it down again without a trace. A program of its
// own, the keeper, holds everything that a cluster consists of: when the keeper ends, however it ends, the kernel takes
// processes, mounts and networks with it.
//
// A program that calls Up calls Init first: the keeper is the same program, started once more.
package lab

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

// A Spec says what cluster is wanted.
type Spec struct {
	Name         string   `json:"name"`
	Nodes        []string `json:"nodes"`        // real systemd hosts, by name
	ControlPlane string   `json:"controlPlane"` // the control plane is a node of its own, with this name; else it is outside
	Labels       []Label  `json:"labels"`

	Simulated      int           `json:"simulated"`      // how many nodes only kwok plays
	SimulatedDelay time.Duration `json:"simulatedDelay"` // how long one init container of a pod on a simulated node takes
	SimulatedTaint bool          `json:"simulatedTaint"` // pods need a toleration to be placed on simulated nodes

	GracePeriod    time.Duration `json:"gracePeriod"`    // silence after which a node is not ready; 0: a default that fits the size
	APIPort        int           `json:"apiPort"`        // on 127.0.0.1; 0: any that is free
	RegistryPort   int           `json:"registryPort"`   // likewise
	APIServerProxy bool          `json:"apiServerProxy"` // faults can be put in front of the API server

	Tied bool `json:"tied"` // the cluster goes down with the process that brought it up, however that ends
}

// A Label is put on one node, or on all where Node is empty.
type Label struct {
	Node  string `json:"node,omitempty"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

// A Cluster is one that is up.
type Cluster struct {
	Name       string
	Kubeconfig string // path
	Config     *rest.Config
	Client     *kubernetes.Clientset

	place place  // empty on a cluster that is not ours
	guard *guard // nil unless the cluster is tied to this process
}

// DefaultName is the name of a cluster that is given none.
const DefaultName = "skyhook"

// gracePeriod is long enough for a busy machine with two cores and short enough to see a power cut within 15 seconds.
const gracePeriod = 12 * time.Second

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)
	nodeName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
)

// Check finds what is wrong with a wish before anything is done about it.
func (s Spec) Check() error {
	var wrong []error
	if !clusterName.MatchString(s.Name) {
		wrong = append(wrong, fmt.Errorf("name %q: use at most 30 lower-case letters, digits and dashes", s.Name))
	}
	seen := map[string]bool{}
	for _, name := range s.hosts() {
		if !nodeName.MatchString(name) {
			wrong = append(wrong, fmt.Errorf("node %q: use at most 63 lower-case letters, digits, dashes and dots", name))
		}
		if seen[name] {
			wrong = append(wrong, fmt.Errorf("node %q is named twice: every node needs a name of its own", name))
		}
		seen[name] = true
	}
	if n := len(s.hosts()); n > network.MaxNodes {
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

// hosts are the real systemd hosts; the control plane comes first where it is one.
func (s Spec) hosts() []string {
	if s.ControlPlane == "" {
		return s.Nodes
	}
	return append([]string{s.ControlPlane}, s.Nodes...)
}

// grace is how long a node may be silent. Thousands of simulated nodes renew their leases less often.
func (s Spec) grace() time.Duration {
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

// Open finds a cluster of ours that is up.
func Open(name string) (*Cluster, error) {
	p, err := locate(name)
	if err != nil {
		return nil, err
	}
	if _, err := p.status(context.Background()); err != nil {
		return nil, err
	}
	c, err := Existing(p.kubeconfig())
	if err != nil {
		return nil, err
	}
	c.Name, c.place = name, p
	return c, nil
}

// Existing uses a cluster that somebody else runs. Its nodes have no switches, and it has no registry of ours.
func Existing(kubeconfig string) (*Cluster, error) {
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", path, err)
	}
	config.QPS = -1 // a test is never throttled by its own client
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", path, err)
	}
	return &Cluster{Name: "existing", Kubeconfig: path, Config: config, Client: client}, nil
}

// Ours tells whether the cluster was brought up here: only then are there a registry, faults and switches on nodes.
func (c *Cluster) Ours() bool { return c.place.dir != "" }

// errNotOurs says why something is not possible on a cluster of somebody else.
func (c *Cluster) errNotOurs(what string) error {
	if c.Ours() {
		return nil
	}
	return fmt.Errorf("%s: only possible on a cluster that test/cluster brought up", what)
}

// removeAll is os.RemoveAll that says what it was about.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
