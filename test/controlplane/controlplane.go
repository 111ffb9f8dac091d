// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts a real API server with fresh storage for a test binary: etcd and kube-apiserver, no nodes, no
// controllers, no root. Nothing remains, however the test binary ends.
//
//	var plane *controlplane.Plane
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.Main(m, &plane, controlplane.Options{CRDs: []string{"../../chart/files/crds"}}))
//	}
//
//	func TestSomething(t *testing.T) {
//		client, err := client.New(plane.Config, client.Options{})
//		namespace := plane.Namespace(t)
//		...
//	}
//
// An existing cluster is used instead when SKYHOOK_TEST_KUBECONFIG names its kubeconfig. The programs come from
// KUBEBUILDER_ASSETS if that is set, else from test/cluster, which builds them from Go modules the first time.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// existingCluster names the variable with the kubeconfig of a cluster to use instead of our own.
const existingCluster = "SKYHOOK_TEST_KUBECONFIG"

// Options configures the API server of a test binary.
type Options struct {
	CRDs      []string          // files or directories with CustomResourceDefinitions, relative to the test's package
	APIServer map[string]string // further flags of kube-apiserver, without the dashes
}

// Plane is a running API server. The user of Config is an administrator.
type Plane struct {
	Config *rest.Config

	environment *envtest.Environment
	guard       *guard // nil on an existing cluster
}

// Main starts an API server, runs the tests and stops the server. It returns what TestMain passes to os.Exit.
func Main(m *testing.M, plane **Plane, options Options) int {
	started, err := Start(context.Background(), options)
	if err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		return 1
	}
	*plane = started
	code := m.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		return max(code, 1)
	}
	return code
}

// Start returns when the API server answers and the CRDs are served. On an existing cluster it only installs the CRDs.
func Start(ctx context.Context, options Options) (*Plane, error) {
	p := &Plane{environment: &envtest.Environment{
		CRDDirectoryPaths:     options.CRDs,
		ErrorIfCRDPathMissing: true,
		CRDInstallOptions:     envtest.CRDInstallOptions{MaxTime: 3 * time.Minute},
	}}
	var err error
	if kubeconfig := os.Getenv(existingCluster); kubeconfig != "" {
		err = p.attach(kubeconfig)
	} else {
		err = p.launch(ctx, options)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// attach uses an existing cluster. What is installed there stays: removing a CRD removes its objects.
func (p *Plane) attach(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s=%s: %w", existingCluster, kubeconfig, err)
	}
	config.QPS, config.Burst = -1, 0 // a test is never throttled by its own client
	existing := true
	p.environment.UseExistingCluster, p.environment.Config = &existing, config
	if p.Config, err = p.environment.Start(); err != nil {
		return fmt.Errorf("using the cluster of %s: %w", kubeconfig, err)
	}
	return nil
}

// launch starts a control plane of our own, in a directory of its own.
func (p *Plane) launch(ctx context.Context, options Options) error {
	programs, err := assets(ctx)
	if err != nil {
		return err
	}
	if p.guard, err = newGuard(); err != nil {
		return err
	}
	e := p.environment
	e.BinaryAssetsDirectory = programs
	e.ControlPlaneStartTimeout = 3 * time.Minute // a busy machine is slow, which is no failure
	e.ControlPlane.Etcd = &envtest.Etcd{DataDir: filepath.Join(p.guard.dir, "etcd"), Out: p.guard.log, Err: p.guard.log}
	server := e.ControlPlane.GetAPIServer()
	server.CertDir, server.Out, server.Err = filepath.Join(p.guard.dir, "certs"), p.guard.log, p.guard.log
	for flag, value := range options.APIServer {
		server.Configure().Set(flag, value)
	}
	for _, dir := range []string{e.ControlPlane.Etcd.DataDir, server.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("starting the control plane: %w", err)
		}
	}
	restore := p.guard.setEnvironment()
	p.Config, err = e.Start()
	restore()
	if err != nil {
		return fmt.Errorf("starting the control plane: %w\n%s", err, p.guard.lastWords())
	}
	return nil
}

// Stop ends the API server and removes what it stored. On an existing cluster it does nothing.
func (p *Plane) Stop() error {
	if p.guard == nil {
		return nil
	}
	if err := errors.Join(p.environment.Stop(), p.guard.close()); err != nil {
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	return nil
}

// Kubeconfig writes a kubeconfig of the cluster's administrator to a file of this test and returns its path.
func (p *Plane) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// WriteKubeconfig writes a kubeconfig of the cluster's administrator, for programs that are no tests.
func (p *Plane) WriteKubeconfig(path string) error {
	if err := os.WriteFile(path, p.environment.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// Kubectl returns the path of the kubectl of this API server.
func (p *Plane) Kubectl() string {
	if p.guard == nil {
		return "kubectl"
	}
	return filepath.Join(p.environment.BinaryAssetsDirectory, "kubectl")
}

// Namespace creates a namespace for this test. It is deleted afterwards, which on a bare API server only marks it:
// no controller empties it.
func (p *Plane) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	prefix := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	made, err := client.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: strings.Trim(prefix[:min(len(prefix), 40)], "-") + "-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Logf("deleting namespace %s: %v", made.Name, err)
		}
	})
	return made.Name
}
