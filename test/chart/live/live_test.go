// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package live installs the chart on a real API server with the programs that people use, Helm 3 and Helm 4. There are
// no nodes and no controllers but those that the tests simulate; the operator is the real program, with the rights, the
// environment and the arguments that the chart gives it.
package live

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skyhook-k8s/skyhook/test/chart/render"
	"github.com/skyhook-k8s/skyhook/test/controlplane"
)

var (
	plane    *controlplane.Plane
	root     string // of the repository
	programs string // where the programs are
	auditLog string
	helms    = map[string]string{"v3": "", "v4": ""} // the program of each Helm
)

// releaseName is what the release is called, and most of what it brings.
const releaseName = "skyhook-operator"

// everything has the API server write down who asked for what.
const everything = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if root, err = render.Root(); err != nil {
		return 1, err
	}
	if programs, err = os.MkdirTemp("", "skyhook-chart-"); err != nil {
		return 1, fmt.Errorf("making a directory for programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(programs) }()
	if err := build(); err != nil {
		return 1, err
	}
	policy := filepath.Join(programs, "audit.yaml")
	auditLog = filepath.Join(programs, "audit.log")
	if err := os.WriteFile(policy, []byte(everything), 0o600); err != nil {
		return 1, fmt.Errorf("writing the audit policy: %w", err)
	}
	return controlplane.Main(m, &plane, controlplane.Options{APIServer: map[string]string{
		"audit-policy-file": policy, "audit-log-path": auditLog,
		// as some distributions have it: who sets owner references needs a right for that
		"enable-admission-plugins": "OwnerReferencesPermissionEnforcement,NodeRestriction",
		"authorization-mode":       "Node,RBAC",
	}}), nil
}

// build makes the programs. Those that are tools of this module are kept by Go from one run to the next.
func build() error {
	for version := range helms {
		out, err := output(filepath.Join(root, "test", "chart"), "tool", "-n", "helm.sh/helm/"+version+"/cmd/helm")
		if err != nil {
			return err
		}
		helms[version] = strings.TrimSpace(out)
	}
	_, err := output(root, "build", "-o", filepath.Join(programs, "operator"), "./cmd/operator")
	return err
}

func output(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// helm runs one of the two Helms as the administrator.
func helm(t *testing.T, version, namespace string, args ...string) (string, error) {
	t.Helper()
	home := t.TempDir()
	args = append(args, "--namespace", namespace, "--kubeconfig", plane.Kubeconfig(t))
	cmd := exec.Command(helms[version], args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s %s: %w: %s", version, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// writeAccountKubeconfig writes a kubeconfig of a ServiceAccount.
func writeAccountKubeconfig(t *testing.T, namespace, account string) string {
	t.Helper()
	c := newClientset(t)
	token, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(context.Background(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a token for %s/%s: %v", namespace, account, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: plane.Config.Host, CertificateAuthorityData: plane.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func newClientset(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
