// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package install tests installations on real systemd nodes, as people do it: with Helm, with kubectl alone, and with make demo on
// a cluster that is there.
package install_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

var cluster *suite.Cluster

func TestMain(m *testing.M) { suite.Main(m, &cluster, suite.NoOperator) }

const (
	release = "skyhook-operator"
	crds    = "app.kubernetes.io/part-of=skyhook-operator"
)

// recordingSkyhook has a package that records its stages; config takes long enough to inspect its pod.
const recordingSkyhook = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: diary}
spec:
  nodeSelectors: {matchLabels: {e2e: install}}
  packages:
    diary:
      version: 1.1.0
      image: ghcr.io/skyhook-k8s/skyhook/packages/shellscript
      uninstall: {enabled: true}
      configMap:
        apply.sh: echo apply >> /var/log/stages
        config.sh: echo config >> /var/log/stages; sleep 5
        uninstall.sh: echo uninstall >> /var/log/stages
        uninstall_check.sh: grep uninstall /var/log/stages
`

// TestChart takes a release of the chart through its life: installed, inspected on the hosts, upgraded, held by a Skyhook that
// cannot finish, and uninstalled.
func TestChart(t *testing.T) {
	nodes := cluster.Nodes(t, 2)
	cluster.Label(t, "e2e=install", nodes...)
	for _, n := range nodes {
		cluster.Exec(t, n, "rm -f /var/log/stages")
	}
	notes := cluster.Helm(t, append([]string{"install", release, "chart", "--namespace", suite.OperatorNamespace, "--create-namespace", "--wait", "--timeout", "10m",
		"--set", "cleanup.enabled=true,cleanup.jobTimeoutSeconds=60", "--set", "nodeSelector.e2e=install"}, cluster.ImageFlags()...)...)
	for _, want := range []string{"is installed in namespace skyhook", "kubectl rollout status", "node-init-secret", "waits up to 60 seconds"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q:\n%s", want, notes)
		}
	}
	requireOperators(t, nodes)

	cluster.Apply(t, recordingSkyhook)
	pods := waitPackagePods(t)
	waitReady := func(skyhook string) {
		t.Helper()
		cluster.Kubectl(t, "wait", "--for=condition=Ready", "skyhook/"+skyhook, "--timeout="+suite.Timeout.String())
	}
	waitReady("diary")
	for _, p := range pods {
		requireNoToken(t, p)
	}
	requireStages := func(want string) {
		t.Helper()
		for _, n := range nodes {
			if got := strings.ReplaceAll(cluster.Exec(t, n, "cat /var/log/stages"), "\n", ", "); got != want {
				t.Errorf("%s recorded the stages %q, want %q", n, got, want)
			}
		}
	}
	requireStages("apply, config")

	cluster.Helm(t, "upgrade", release, "chart", "--namespace", suite.OperatorNamespace, "--wait", "--timeout", "10m", "--reuse-values", "--set", "logLevel=debug")
	requireOperators(t, nodes)
	cluster.Kubectl(t, "patch", "skyhook", "diary", "--type=merge", "-p", `{"spec":{"priority":7}}`) // so that the new operator has to act
	waitReady("diary")
	requireStages("apply, config")

	cluster.Kubectl(t, "annotate", "skyhook", "diary", "skyhook.nvidia.com/pause=true")
	out, err := cluster.TryHelm("uninstall", release, "--namespace", suite.OperatorNamespace, "--timeout", "10m")
	if err == nil {
		t.Fatalf("a release with a paused Skyhook that has a package to uninstall was uninstalled:\n%s", out)
	}
	if all := out + err.Error(); !strings.Contains(all, "diary (the Skyhook is paused") {
		t.Errorf("helm uninstall does not say what holds the release:\n%s", all)
	}
	requireOperators(t, nodes)
	cluster.Kubectl(t, "annotate", "skyhook", "diary", "skyhook.nvidia.com/pause-")
	cluster.Helm(t, "uninstall", release, "--namespace", suite.OperatorNamespace, "--timeout", "10m")
	requireStages("apply, config, uninstall")
	if left := cluster.Kubectl(t, "get", "deployments,jobs,clusterroles,clusterrolebindings,serviceaccounts,leases,poddisruptionbudgets", "-A", "-l", crds, "-o", "name"); left != "" {
		t.Errorf("the uninstalled release left: %s", left)
	}
	cluster.Kubectl(t, "get", "crd", "skyhooks.skyhook.nvidia.com") // CRDs stay
	cluster.Kubectl(t, "delete", "crd", "-l", crds, "--timeout=2m")
	cluster.Kubectl(t, "delete", "namespace", suite.OperatorNamespace, "--timeout="+suite.Timeout.String())
}

// requireOperators checks that two operators run on two nodes, that one may be drained, and that their processes are confined.
func requireOperators(t *testing.T, nodes []string) {
	t.Helper()
	suite.Eventually(t, "two operators are on two nodes, and one of them may be evicted", func() error {
		on := strings.Fields(cluster.Kubectl(t, "-n", suite.OperatorNamespace, "get", "pods", "-l", suite.OperatorSelector, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].spec.nodeName}"))
		slices.Sort(on)
		allowed := cluster.Kubectl(t, "-n", suite.OperatorNamespace, "get", "pdb", suite.OperatorDeployment+"-pdb", "-o", "jsonpath={.status.disruptionsAllowed}")
		if !slices.Equal(on, nodes) || allowed != "1" {
			return fmt.Errorf("operators are on %v, and %s may be disrupted", on, allowed)
		}
		return nil
	})
	for _, n := range nodes {
		const inspect = `pid=$(pgrep -xo manager) && cd /proc/$pid && awk '/^(Uid|CapEff|NoNewPrivs|Seccomp):/ {print $2}' status | tr '\n' ' '; touch root/x 2>&1 | grep -o 'Read-only file system'`
		if got, want := cluster.Exec(t, n, inspect), "10001 0000000000000000 1 2 Read-only file system"; got != want {
			t.Errorf("on %s the operator has user, capabilities, privileges, seccomp and root\n%s\nwant\n%s", n, got, want)
		}
	}
}

// pod is what tests read of a pod.
type pod struct {
	Metadata struct{ Name string }
	Spec     struct {
		ServiceAccountName           string
		AutomountServiceAccountToken *bool
		Volumes                      []struct {
			Name      string
			Projected *struct{} `json:"projected"`
		}
	}
}

// waitPackagePods waits for pods of packages and returns them.
func waitPackagePods(t *testing.T) []pod {
	t.Helper()
	var list struct{ Items []pod }
	suite.Eventually(t, "pods of the package run", func() error {
		err := cluster.Get(&list, "-n", suite.OperatorNamespace, "pods", "-l", "skyhook.nvidia.com/name=diary")
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	return list.Items
}

// requireNoToken checks that a pod cannot access the API server.
func requireNoToken(t *testing.T, p pod) {
	t.Helper()
	if p.Spec.ServiceAccountName != release+"-packages" || p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
		t.Errorf("pod %s has the service account %s, and its token is mounted: %v", p.Metadata.Name, p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken)
	}
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil {
			t.Errorf("pod %s has the volume %s, which may hold a token", p.Metadata.Name, v.Name)
		}
	}
}

// kustomize runs `kubectl VERB -k DIR`. The images of a foreign cluster have other names, so its manifests are adapted first.
func kustomize(verb, dir string, flags ...string) error {
	if cluster.IsOurs() {
		_, err := cluster.TryKubectl("", append([]string{verb, "-k", dir}, flags...)...)
		return err
	}
	manifests, err := cluster.TryKubectl("", "kustomize", dir)
	if err == nil {
		_, err = cluster.TryKubectl(manifests, append([]string{verb, "-f", "-"}, flags...)...)
	}
	return err
}

// TestKubectl installs and removes with nothing but kubectl. Removing never hangs: it is refused while it could not finish.
func TestKubectl(t *testing.T) {
	nodes := cluster.Nodes(t, 1)
	cluster.Label(t, "skyhook.nvidia.com/test-node=demo", nodes...)
	require := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	require(kustomize("apply", "config/default"))
	cluster.Kubectl(t, "-n", suite.OperatorNamespace, "rollout", "status", "deployment/"+suite.OperatorDeployment, "--timeout="+suite.Timeout.String())
	require(kustomize("apply", "config/samples"))
	cluster.Kubectl(t, "wait", "--for=condition=Ready", "skyhook/demo", "--timeout="+suite.Timeout.String())

	removeOperator := func(limit time.Duration) error {
		// A repeated removal finds some objects gone, if the refusal was about to end.
		return kustomize("delete", "config/default", "--ignore-not-found", "--timeout="+limit.String())
	}
	suite.Eventually(t, "removing the operator while there are Skyhooks is refused", func() error {
		if _, err := cluster.TryKubectl("", "delete", "crd", "skyhooks.skyhook.nvidia.com", "--dry-run=server"); err == nil {
			return errors.New("it is not")
		}
		return nil
	})
	for range 2 { // it is refused again after a refusal
		if err := removeOperator(time.Minute); err == nil || !strings.Contains(err.Error(), "Delete these first") || strings.Contains(err.Error(), "timed out") {
			t.Fatalf("removing the operator while there are Skyhooks: %v", err)
		}
	}
	cluster.Kubectl(t, "-n", suite.OperatorNamespace, "rollout", "status", "deployment/"+suite.OperatorDeployment, "--timeout=1m")
	require(kustomize("delete", "config/samples", "--timeout="+suite.Timeout.String()))
	suite.Eventually(t, "the operator is removed when nothing needs it", func() error { return removeOperator(suite.Timeout) })
	cluster.EventuallyPrints(t, "the admission policies are removed as well", func(left string) bool { return !strings.Contains(left, "skyhook") },
		"get", "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,crds", "-o", "name")
}

// TestDemo runs make demo on a cluster that is there, twice, and removes the demo.
func TestDemo(t *testing.T) {
	if !cluster.IsOurs() {
		t.Skip("make demo chooses nodes itself and pulls the published packages: try it with DEMO_KUBECONFIG and DEMO_REGISTRY")
	}
	demo := func(verb string) string {
		cmd := cluster.Command("test/demo/demo.sh", verb)
		cmd.Env = append(cmd.Env, "DEMO_KUBECONFIG="+cluster.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for range 2 {
		if out := demo("up"); !strings.Contains(out, "hello world\n   a config is run") || !strings.Contains(out, "How to go on") {
			t.Errorf("the demo does not show the file from a host:\n%s", out)
		}
	}
	demo("down")
	left := cluster.Kubectl(t, "get", "nodes", "-l", "skyhook.nvidia.com/test-node", "-o", "name") + cluster.Kubectl(t, "get", "crds", "-l", crds, "-o", "name")
	if left != "" {
		t.Errorf("the demo left %s", left)
	}
}
