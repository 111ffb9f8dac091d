// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// diary is a Skyhook whose package writes a line for each stage; config takes long enough to look at its pod.
const diary = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: diary}
spec:
  nodeSelectors: {matchLabels: {story: diary}}
  packages:
    diary:
      version: 1.1.0
      image: ghcr.io/nvidia/skyhook-packages/shellscript
      uninstall: {enabled: true}
      configMap:
        apply.sh: echo apply >> /var/log/install-diary
        config.sh: echo config >> /var/log/install-diary; sleep 5
        uninstall.sh: echo uninstall >> /var/log/install-diary
        uninstall_check.sh: grep uninstall /var/log/install-diary
`

const release = "skyhook-operator"

// TestChart takes a release of the chart through its life: installed, looked at from the hosts, upgraded, held by a Skyhook
// that cannot finish, and uninstalled.
func TestChart(t *testing.T) {
	must(t, kubectl, "label", "nodes", "--all", "story=diary", "--overwrite")
	for _, n := range nodes {
		on(t, n, "rm -f /var/log/install-diary")
	}
	notes := must(t, helm, "install", release, "chart", "--namespace", "skyhook", "--create-namespace", "--wait", "--timeout", "10m", "--set", "cleanup.jobTimeoutSeconds=60")
	for _, want := range []string{"is installed in namespace skyhook", "kubectl rollout status", "node-init-secret", "waits up to 60 seconds"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	operators(t)

	apply(t, diary)
	pods := packagePods(t)
	must(t, kubectl, "wait", "--for=condition=Ready", "skyhook/diary", "--timeout="+patience.String())
	for _, p := range pods {
		tokenless(t, p)
	}
	read := func(want string) {
		t.Helper()
		for _, n := range nodes {
			if got := strings.ReplaceAll(on(t, n, "cat /var/log/install-diary"), "\n", ", "); got != want {
				t.Errorf("the diary of %s reads %q, want %q", n, got, want)
			}
		}
	}
	read("apply, config")

	must(t, helm, "upgrade", release, "chart", "--namespace", "skyhook", "--wait", "--timeout", "10m", "--reuse-values", "--set", "controllerManager.manager.env.logLevel=debug")
	operators(t)
	must(t, kubectl, "patch", "skyhook", "diary", "--type=merge", "-p", `{"spec":{"priority":7}}`) // the new operator has to look at it
	must(t, kubectl, "wait", "--for=condition=Ready", "skyhook/diary", "--timeout="+patience.String())
	read("apply, config")

	must(t, kubectl, "annotate", "skyhook", "diary", "skyhook.nvidia.com/pause=true")
	out, err := person(helm, "uninstall", release, "--namespace", "skyhook", "--timeout", "10m")
	if err == nil {
		t.Fatalf("a release with a paused Skyhook that has a package to uninstall went:\n%s", out)
	}
	if all := out + err.Error(); !strings.Contains(all, "diary (the Skyhook is paused") {
		t.Errorf("helm uninstall does not say what holds the release:\n%s", all)
	}
	operators(t)
	must(t, kubectl, "annotate", "skyhook", "diary", "skyhook.nvidia.com/pause-")
	must(t, helm, "uninstall", release, "--namespace", "skyhook", "--timeout", "10m")
	read("apply, config, uninstall")
	if left := must(t, kubectl, "get", "deployments,jobs,clusterroles,clusterrolebindings,serviceaccounts,leases,poddisruptionbudgets", "-A", "-l", "app.kubernetes.io/part-of=skyhook-operator", "-o", "name"); left != "" {
		t.Errorf("the release is uninstalled, and left: %s", left)
	}
	must(t, kubectl, "get", "crd", "skyhooks.skyhook.nvidia.com") // they stay
	must(t, kubectl, "delete", "crd", "-l", "app.kubernetes.io/part-of=skyhook-operator", "--timeout=2m")
	must(t, kubectl, "delete", "namespace", "skyhook", "--timeout="+patience.String())
}

// operators proves that two operators run on two nodes, that one may be drained, and that they can do little.
func operators(t *testing.T) {
	t.Helper()
	eventually(t, "two operators are on two nodes, and one of them may go", func() error {
		on := strings.Fields(must(t, kubectl, "-n", "skyhook", "get", "pods", "-l", "control-plane=controller-manager", "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].spec.nodeName}"))
		slices.Sort(on)
		budget := must(t, kubectl, "-n", "skyhook", "get", "pdb", release+"-controller-manager-pdb", "-o", "jsonpath={.status.disruptionsAllowed}")
		if !slices.Equal(on, nodes) || budget != "1" {
			return fmt.Errorf("operators are on %v, and %s may be disrupted", on, budget)
		}
		return nil
	})
	for _, n := range nodes {
		const look = `pid=$(pgrep -xo manager) && cd /proc/$pid && awk '/^(Uid|CapEff|NoNewPrivs|Seccomp):/ {print $2}' status | tr '\n' ' '; touch root/x 2>&1 | grep -o 'Read-only file system'`
		if got, want := on(t, n, look), "10001 0000000000000000 1 2 Read-only file system"; got != want {
			t.Errorf("on %s the operator has user, capabilities, privileges, seccomp and root\n%s\nwant\n%s", n, got, want)
		}
	}
}

// pod is what is looked at in a pod.
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

// packagePods waits for pods of packages and returns them.
func packagePods(t *testing.T) []pod {
	t.Helper()
	var list struct{ Items []pod }
	eventually(t, "pods of the package run", func() error {
		if err := json.Unmarshal([]byte(must(t, kubectl, "-n", "skyhook", "get", "pods", "-l", "skyhook.nvidia.com/name=diary", "-o", "json")), &list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return list.Items
}

// tokenless proves that a pod cannot talk to the API server.
func tokenless(t *testing.T, p pod) {
	t.Helper()
	if p.Spec.ServiceAccountName != release+"-packages" || p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
		t.Errorf("pod %s is %s, and its token is mounted: %v", p.Metadata.Name, p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken)
	}
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil {
			t.Errorf("pod %s has the volume %s, which may hold a token", p.Metadata.Name, v.Name)
		}
	}
}

// TestKubectl installs, and removes, with nothing but kubectl. Removing never hangs: it is refused while it could not end.
func TestKubectl(t *testing.T) {
	must(t, kubectl, "label", "nodes", "--all", "skyhook.nvidia.com/test-node=demo", "--overwrite")
	must(t, kubectl, "apply", "-k", "config/default")
	must(t, kubectl, "-n", "skyhook", "rollout", "status", "deployment/skyhook-operator-controller-manager", "--timeout="+patience.String())
	must(t, kubectl, "apply", "-k", "config/samples")
	must(t, kubectl, "wait", "--for=condition=Ready", "skyhook/demo", "--timeout="+patience.String())

	remove := func(limit time.Duration) error {
		// What went when the refusal was just about to end is not there when it is tried again.
		_, err := person(kubectl, "delete", "-k", "config/default", "--ignore-not-found", "--timeout="+limit.String())
		return err
	}
	eventually(t, "removing the operator below a Skyhook is refused", func() error {
		if _, err := person(kubectl, "delete", "crd", "skyhooks.skyhook.nvidia.com", "--dry-run=server"); err == nil {
			return errors.New("it is not")
		}
		return nil
	})
	for range 2 { // the second time as well
		if err := remove(time.Minute); err == nil || !strings.Contains(err.Error(), "Delete these first") || strings.Contains(err.Error(), "timed out") {
			t.Fatalf("removing the operator below a Skyhook: %v", err)
		}
	}
	must(t, kubectl, "-n", "skyhook", "rollout", "status", "deployment/skyhook-operator-controller-manager", "--timeout=1m")
	must(t, kubectl, "delete", "-k", "config/samples", "--timeout="+patience.String())
	eventually(t, "nothing needs the operator, and it goes", func() error { return remove(patience) })
	eventually(t, "what refused is gone as well", func() error {
		if left := must(t, kubectl, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,crds", "-o", "name"); strings.Contains(left, "skyhook") {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}

// TestDemo has make demo use a cluster that is there, twice, and takes it away again.
func TestDemo(t *testing.T) {
	play := func(what string) string {
		cmd := exec.Command(filepath.Join(root(), "test", "demo", "demo.sh"), what)
		cmd.Dir = root()
		cmd.Env = append(os.Environ(), "DEMO_KUBECONFIG="+cluster.Kubeconfig, "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
		out, err := output(cmd)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	for range 2 {
		if out := play("up"); !strings.Contains(out, "hello world\n   a config is run") || !strings.Contains(out, "How to go on") {
			t.Errorf("the demo does not show the file from a host:\n%s", out)
		}
	}
	play("down")
	if left := must(t, kubectl, "get", "skyhooks", "-o", "name") + must(t, kubectl, "get", "nodes", "-l", "skyhook.nvidia.com/test-node", "-o", "name"); left != "" {
		t.Errorf("the demo left %s", left)
	}
	must(t, kubectl, "delete", "crd", "-l", "app.kubernetes.io/part-of=skyhook-operator", "--timeout=2m")
}
