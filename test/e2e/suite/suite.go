// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package suite is the environment of all end-to-end tests: one cluster, the images of this tree, and the operator.
//
// By default it brings up a cluster of test/cluster, which needs root, and takes it down at the end. Environment variables:
//
//	SKYHOOK_E2E_CLUSTER   use this cluster of test/cluster, which is up, and leave it up
//	SKYHOOK_E2E_IMAGES    push the images of this directory, which `make image` filled, instead of building them
//	KUBECONFIG            use a cluster of somebody else
//	SKYHOOK_E2E_REGISTRY  its nodes pull images from repositories below this prefix, such as registry.example.com/skyhook-e2e
//	SKYHOOK_E2E_PUSH      the same prefix as this machine reaches it, where that differs
//	SKYHOOK_E2E_NODES     nodes, separated by commas, that tests may cordon, drain, restart and reboot there
//
// On a cluster of somebody else, tests that interrupt nodes are skipped unless SKYHOOK_E2E_NODES names nodes, and tests that
// need nodes of test/cluster are skipped always. The suite refuses a cluster that has Skyhook already. It creates the namespaces
// Namespace and OperatorNamespace, the chart's release, and labels on the nodes that it uses, and removes all of them at the end.
package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite/nodepool"
)

const (
	// Namespace is where tests create their objects, unless they name another one.
	Namespace = "skyhook-e2e"
	// OperatorNamespace is the namespace of the operator and of the pods of packages.
	OperatorNamespace = "skyhook"
	// Timeout bounds everything that is waited for. It is meant for slow machines.
	Timeout = 8 * time.Minute
)

// Operator says whether a package of tests needs the operator.
type Operator int

// What a package of tests needs.
const (
	AnyOperator  Operator = iota // it does not matter whether the operator runs
	WithOperator                 // the chart is installed, with one replica
	NoOperator                   // neither the operator nor its CRDs are there
)

// Cluster is the cluster that the tests run on.
type Cluster struct {
	cluster       *testcluster.Cluster
	nodes         []string
	interruptible bool   // nodes may be drained and rebooted
	dir           string // of temporary files
	kubeconfig    string // its default namespace is Namespace
	kubectl, helm string
	images        *imageSet
	shells        map[string]string // pods that give a shell on a node, on a cluster of somebody else
	pool          nodepool.Pool     // of the tests that run side by side
	openPool      func() error
	release       func(*Cluster) error
}

// Main sets up the cluster, runs the tests of a package, and exits.
func Main(m *testing.M, cluster **Cluster, operator Operator) {
	testcluster.Init()
	if os.Geteuid() != 0 && !usesForeignCluster() {
		fmt.Println("skipped: nodes of test/cluster need root; run the tests as root, or set KUBECONFIG to a cluster of yours")
		os.Exit(0)
	}
	os.Exit(run(m, cluster, operator))
}

func run(m *testing.M, cluster **Cluster, operator Operator) int {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute) // the first run builds Kubernetes
	defer cancel()
	c, err := setUp(ctx, operator)
	defer func() {
		if err := c.tearDown(); err != nil {
			fmt.Fprintf(os.Stderr, "tearing down: %v\n", err)
		}
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "setting up the cluster: %v\n", err)
		return 1
	}
	*cluster = c
	if err := runAllParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		c.dump(os.Stderr)
	}
	return code
}

// setUp returns the cluster also when it fails, for tearDown.
func setUp(ctx context.Context, operator Operator) (*Cluster, error) {
	c := &Cluster{shells: map[string]string{}, release: func(*Cluster) error { return nil }}
	c.openPool = sync.OnceValue(func() error { return c.fillPool(operator) })
	for _, step := range []func(context.Context) error{c.connect, c.findPrograms, c.chooseNodes, c.claim, c.pushImages, c.startShells} {
		if err := step(ctx); err != nil {
			return c, err
		}
	}
	switch operator {
	case WithOperator:
		return c, c.installOperator()
	case NoOperator:
		return c, c.removeOperator()
	default:
		return c, nil
	}
}

func (c *Cluster) tearDown() error {
	defer func() { _ = os.RemoveAll(c.dir) }()
	return c.release(c)
}

// IsOurs reports whether the cluster is one of test/cluster.
func (c *Cluster) IsOurs() bool { return c.cluster.IsOurs() }

// LocalCluster gives access to the power switches and faults of a cluster of test/cluster.
func (c *Cluster) LocalCluster(t *testing.T, what string) *testcluster.Cluster {
	t.Helper()
	if !c.IsOurs() {
		t.Skipf("%s: only nodes of test/cluster can", what)
	}
	return c.cluster
}

// ChartTag is the tag that the chart gives images.
var ChartTag = func() string {
	chart, _ := os.ReadFile(filepath.Join(Root(), "chart", "Chart.yaml")) // without it nothing can be installed
	return string(regexp.MustCompile(`(?m)^appVersion: (.*)$`).FindSubmatch(chart)[1])
}()

// Root is the directory of this repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
