// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var plane *Plane

func TestMain(m *testing.M) {
	os.Exit(Main(m, &plane, Options{
		CRDs:      []string{"testdata/crds"},
		APIServer: map[string]string{"max-requests-inflight": "777"},
	}))
}

func TestNamespacesAreFresh(t *testing.T) {
	one, two := plane.Namespace(t), plane.Namespace(t)
	if one == two {
		t.Fatalf("two namespaces have the name %s", one)
	}
	if !strings.HasPrefix(one, "testnamespacesarefresh-") {
		t.Errorf("namespace %s does not say which test made it", one)
	}
	c := clientset(t, plane.Config)
	for _, name := range []string{one, two} {
		if _, err := c.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func TestCRDsAreServed(t *testing.T) {
	body, err := clientset(t, plane.Config).RESTClient().Get().AbsPath("/apis/test.skyhook.dev/v1/beacons").DoRaw(context.Background())
	if err != nil || !bytes.Contains(body, []byte(`"BeaconList"`)) {
		t.Fatalf("listing objects of the CRD gave %s, %v", body, err)
	}
}

func TestAPIServerTakesFlags(t *testing.T) {
	arguments, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range arguments {
		line, _ := os.ReadFile(file)
		if bytes.Contains(line, []byte(plane.guard.dir)) && bytes.Contains(line, []byte("--max-requests-inflight=777")) {
			return
		}
	}
	t.Error("no API server of this test runs with the flag it was given")
}

// An existing cluster is used as it is, and stays.
func TestExistingCluster(t *testing.T) {
	t.Setenv(existingCluster, plane.Kubeconfig(t))
	second, err := Start(context.Background(), Options{CRDs: []string{"testdata/crds"}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSuffix(second.Config.Host, "/") != strings.TrimSuffix(plane.Config.Host, "/") {
		t.Errorf("the cluster used is %s, not %s", second.Config.Host, plane.Config.Host)
	}
	ns := second.Namespace(t)
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := clientset(t, plane.Config).CoreV1().Namespaces().Get(context.Background(), ns, metav1.GetOptions{}); err != nil {
		t.Errorf("after Stop the existing cluster does not answer: %v", err)
	}
}

func TestStorageIsFresh(t *testing.T) {
	c := clientset(t, plane.Config)
	mine := plane.Namespace(t)
	second, err := Start(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(second.guard.dir); !os.IsNotExist(err) {
			t.Errorf("after Stop %s is still there", second.guard.dir)
		}
	}()
	if _, err := clientset(t, second.Config).CoreV1().Namespaces().Get(context.Background(), mine, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace of the first API server is known to the second: %v", err)
	}
	if _, err := c.CoreV1().Namespaces().Get(context.Background(), mine, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestBadInput(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		name, variable, value string
		options               Options
		want                  []string
	}{
		{"assets that are not there", builtAssets, nowhere, Options{}, []string{"using KUBEBUILDER_ASSETS: ", "unset it to have the programs built"}},
		{"kubeconfig that is not there", existingCluster, nowhere, Options{}, []string{"reading SKYHOOK_TEST_KUBECONFIG=" + nowhere}},
		{"CRDs that are not there", "", "", Options{CRDs: []string{nowhere}}, []string{nowhere}},
		{"a flag that is none", "", "", Options{APIServer: map[string]string{"no-such-flag": "1"}}, []string{"starting the control plane: ", "unknown flag: --no-such-flag"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			t.Setenv("TMPDIR", t.TempDir())
			p, err := Start(context.Background(), c.options)
			if err == nil {
				t.Fatal(p.Stop())
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %q, without %q", err, want)
				}
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("a failed start left %v, %v", left, err)
			}
		})
	}
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually polls, because another process has to act; what it waits for is an event, not a duration.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute, and still not: %s", what)
		}
	}
}
