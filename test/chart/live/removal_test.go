// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// kubectl runs the real one, in the repository.
func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(plane.Kubectl(), append([]string{"--kubeconfig", plane.Kubeconfig(t)}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1") // it runs git, for a repository of this machine
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func mustKubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := kubectl(t, args...); err != nil {
		t.Fatal(err)
	}
}

// TestKubectl installs with kubectl what config/ holds, from a folder and from Git, and deletes it again. While something needs the operator, deleting
// it is refused at once and as a whole, however often it is tried and however the Skyhook is; then it works.
func TestKubectl(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	w.Namespace = "skyhook" // of config/default
	w.StartKubelet()
	t.Cleanup(func() { removePolicies(t) })
	url := serveConfig(t)
	mustKubectl(t, "apply", "-k", url("config/default"))
	requireGeneratedCRDs(t)
	if again, err := kubectl(t, "apply", "-k", "config/default"); err != nil || strings.Contains(again, "created") {
		t.Errorf("the folder is not what Git has: %v\n%s", err, again)
	}
	_, end := startOperator(t, w.Namespace)

	mustKubectl(t, "apply", "-k", url("config/samples"))
	w.Eventually("the samples keep the operator", func() bool { return deletionError(t, w) != "" })
	requireKept(t, w, "Delete these first") // be it for a Skyhook or for the NodeOp
	mustKubectl(t, "delete", "-k", "config/samples", "--timeout=2m")
	w.Apply(simple)
	w.WaitComplete("simple")
	w.Eventually("a complete Skyhook keeps the operator", func() bool { return strings.Contains(deletionError(t, w), "Skyhook simple") })
	requireKept(t, w, "Skyhook simple")
	for _, how := range []string{"pause", "disable"} {
		annotate := func(value string) {
			w.Patch(w.GetSkyhook("simple"), `{"metadata":{"annotations":{"skyhook.nvidia.com/`+how+`":`+value+`}}}`)
		}
		annotate(`"true"`)
		requireKept(t, w, "Skyhook simple")
		annotate("null")
	}
	w.WaitComplete("simple")
	end()
	requireKept(t, w, "Skyhook simple") // what is left of an operator that is dead, too
	_, end = startOperator(t, w.Namespace)
	w.Must(w.Client.Delete(context.Background(), w.GetSkyhook("simple")))
	w.Eventually("the Skyhook is gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(context.Background(), client.ObjectKey{Name: "simple"}, &v1alpha1.Skyhook{}))
	})

	w.Apply("{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: check, namespace: default}, spec: {command: [date]}}")
	w.Eventually("a running NodeOp keeps the operator", func() bool { return strings.Contains(deletionError(t, w), "NodeOps that are under way") })
	requireKept(t, w, "NodeOps that are under way")
	w.Must(w.Client.Delete(context.Background(), &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check"}}))

	// No controller empties namespaces here, so the test does not wait for it.
	w.Eventually("nothing needs the operator, and it is deleted", func() bool {
		finishJobs(w, true)
		// What went in the moment before the refusal began to end is not there the second time.
		_, err := kubectl(t, "delete", "-k", url("config/default"), "--wait=false", "--ignore-not-found")
		return err == nil
	})
	end()
	w.Eventually("the CRDs are gone", func() bool {
		left := &apiextensionsv1.CustomResourceDefinitionList{}
		return newCRDClient(t).List(context.Background(), left) == nil && len(left.Items) == 0
	})
	mustKubectl(t, "apply", "--server-side", "-f", "chart/files/crds") // and come again
	requireGeneratedCRDs(t)
}

// buildPlugin builds kubectl skyhook.
func buildPlugin(t *testing.T) string {
	t.Helper()
	plugin := filepath.Join(programs, "kubectl-skyhook")
	if _, err := output(root, "build", "-o", plugin, "./cmd/kubectl-skyhook"); err != nil {
		t.Fatal(err)
	}
	return plugin
}

// TestCleanupAfterDeath: an operator that is dead and will not come again is deleted after `kubectl skyhook cleanup`.
func TestCleanupAfterDeath(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 1)
	w.StartKubelet()
	t.Cleanup(func() { removePolicies(t) })
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly, "--set", "cleanup.enabled=false,cleanup.guardRemoval=true")
	requireGeneratedCRDs(t)
	_, end := startOperator(t, w.Namespace)
	w.Apply(simple)
	w.WaitComplete("simple")
	said := ""
	t.Cleanup(func() { t.Logf("deleting a CRD: %s", said) })
	w.Eventually("uninstalling is refused", func() bool {
		said, _ = kubectl(t, "delete", "crd", "skyhooks.skyhook.nvidia.com", "--dry-run=server") // the words are what counts
		return strings.Contains(said, "Skyhook simple")
	})
	end()
	plugin := buildPlugin(t)
	cmd := exec.Command(plugin, "cleanup", "--yes", "--operator-namespace", w.Namespace, "--kubeconfig", plane.Kubeconfig(t))
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl skyhook cleanup: %v\n%s", err, out)
	}
	mustKubectl(t, "delete", "skyhook", "simple", "--timeout=1m")
	mustHelm(t, "v4", w.Namespace, "uninstall", releaseName)
	mustKubectl(t, "delete", "crd", "skyhooks.skyhook.nvidia.com", "--timeout=1m")
	mustKubectl(t, "apply", "--server-side", "-f", "chart/files/crds") // and come again
	requireGeneratedCRDs(t)
}

// deletionError returns the API server's error for deleting the operator, or nothing if it would succeed.
func deletionError(t *testing.T, w *testenv.Env) string {
	t.Helper()
	words := ""
	for _, object := range []string{"crd/skyhooks.skyhook.nvidia.com", "deployment/skyhook-operator-controller-manager"} {
		out, err := kubectl(t, "delete", object, "-n", w.Namespace, "--dry-run=server")
		if err == nil {
			return ""
		}
		words = out
	}
	return words
}

// requireKept proves that the operator cannot be deleted because of somebody, and that nothing of it goes when one tries. The API
// server looks up a second or so later who there is: until then it may name somebody who was there before.
func requireKept(t *testing.T, w *testenv.Env, who string) {
	t.Helper()
	said := ""
	t.Cleanup(func() { t.Logf("deleting the operator: %s", said) })
	w.Eventually("the operator is kept: "+who, func() bool {
		if said = deletionError(t, w); said == "" {
			t.Fatalf("the operator may be deleted in spite of %s", who)
		}
		return strings.Contains(said, who)
	})
	out, err := kubectl(t, "delete", "-k", "config/default", "--timeout=2m")
	if err == nil || strings.Contains(out, "timed out") {
		t.Fatalf("kubectl delete -k was not refused: %v\n%s", err, out)
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.HasSuffix(line, " deleted") {
			t.Errorf("deleting was refused, but not of all: %s", line)
		}
	}
}

// removePolicies deletes the admission policies, as the garbage collector does after the operator's namespace was deleted.
func removePolicies(t *testing.T) {
	t.Helper()
	for _, name := range []string{v1alpha1.InUse, v1alpha1.InUseByNodeOps} {
		mustKubectl(t, "delete", "--ignore-not-found", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
	}
}
