// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// seen is every version of the Skyhooks or NodeOps of a cluster, with what programs that wait for objects make of it.
type seen struct {
	mu  sync.Mutex
	all []verdict
}

type verdict struct {
	object  *unstructured.Unstructured
	kstatus status.Status    // Flux, kpt, Helm 4
	word    v1alpha1.Verdict // of the version, by which Argo CD goes; see test/chart/health
	ran     int              // how many pods had run on the node with the fewest of them
}

// recordVersions records every version of the objects, by a watch, until the test ends.
func recordVersions(t *testing.T, resource schema.GroupVersionResource, ran func() int) *seen {
	t.Helper()
	c, err := dynamic.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w, err := c.Resource(resource).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		t.Fatal(err)
	}
	s := &seen{}
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		for e := range w.ResultChan() {
			u, is := e.Object.(*unstructured.Unstructured)
			if !is || e.Type == watch.Deleted {
				continue
			}
			v := verdict{object: u, word: wordOf(u), ran: ran()}
			if r, err := status.Compute(u); err != nil {
				t.Errorf("kstatus: %v", err)
			} else {
				v.kstatus = r.Status
			}
			s.mu.Lock()
			s.all = append(s.all, v)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { stop(); w.Stop(); done.Wait() })
	return s
}

// has reports whether some version has this verdict.
func (s *seen) has(is func(verdict) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.all {
		if is(v) {
			return true
		}
	}
	return false
}

// wordOf returns the verdict about the present generation; empty if there is none.
func wordOf(u *unstructured.Unstructured) v1alpha1.Verdict {
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	word, _, _ := unstructured.NestedString(u.Object, "status", "verdict")
	if observed != u.GetGeneration() {
		return ""
	}
	return v1alpha1.Verdict(word)
}

// TestHealth: Flux, Argo CD and kubectl wait take no Skyhook for healthy before it is, through a life with a rollout, an
// edit, a pause, a failure and a deletion; and each takes it for healthy then.
func TestHealth(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 3)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly)
	requireGeneratedCRDs(t)
	kubelet := w.StartKubelet()
	nodes := []string{"n1", "n2", "n3"}
	s := recordVersions(t, v1alpha1.GroupVersion.WithResource("skyhooks"), func() int {
		fewest := len(kubelet.History("n1"))
		for _, n := range nodes {
			fewest = min(fewest, len(kubelet.History(n)))
		}
		return fewest
	})
	_, end := startOperator(t, w.Namespace)
	defer end()

	say := func(config string) {
		w.Apply(strings.NewReplacer("CONFIG", config).Replace(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: healthy}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages: {tool: {version: 1.0.0, image: registry.example/tool, configMap: {a: "CONFIG"}}}
`))
	}
	for i, config := range []string{"one", "two"} {
		say(config)
		waitReady(t, "skyhook/healthy") // at once, as after kubectl apply
		for _, n := range nodes {
			if got := len(kubelet.History(n)); got < 2+i {
				t.Errorf("kubectl wait returned for %q, and %s had done only %v", config, n, kubelet.History(n))
			}
		}
	}
	w.Eventually("Flux takes it for healthy, and so does the verdict", func() bool {
		return s.has(func(v verdict) bool {
			return v.object.GetGeneration() == w.GetSkyhook("healthy").Generation && v.kstatus == status.CurrentStatus && v.word == v1alpha1.VerdictReady
		})
	})
	w.Patch(w.GetSkyhook("healthy"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":"true"}}}`)
	say("three")
	w.Eventually("the verdict says that it is paused", func() bool { return s.has(func(v verdict) bool { return v.word == v1alpha1.VerdictSuspended }) })
	w.Patch(w.GetSkyhook("healthy"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
	waitReady(t, "skyhook/healthy")

	// a taint that is not tolerated blocks a node
	w.Patch(w.GetNode("n1"), `{"spec":{"taints":[{"key":"dedicated","value":"x","effect":"NoSchedule"}]}}`)
	say("four")
	w.Eventually("the verdict says that it is blocked", func() bool { return s.has(func(v verdict) bool { return v.word == v1alpha1.VerdictFailed }) })
	w.Patch(w.GetNode("n1"), `{"spec":{"taints":null}}`)
	waitReady(t, "skyhook/healthy")
	mustKubectl(t, "delete", "skyhook", "healthy", "--timeout=2m")

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.all {
		truth := isHealthy(v.object)
		if (v.kstatus == status.CurrentStatus) != truth || (v.word == v1alpha1.VerdictReady) != truth {
			t.Errorf("Flux says %s, the verdict is %s, and it is so: %v of\n%v", v.kstatus, v.word, truth, v.object.Object["status"])
		}
		// the first generation takes two pods on each node, each edit one more
		if pods := 1 + int(v.object.GetGeneration()); truth && v.ran < pods {
			t.Errorf("generation %d was taken for healthy when only %d of %d pods had run on each node", v.object.GetGeneration(), v.ran, pods)
		}
	}
	if len(s.all) < 10 {
		t.Errorf("only %d versions were seen", len(s.all))
	}
}

// isHealthy reports whether a version is complete for its own generation.
func isHealthy(u *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	whole, _, _ := unstructured.NestedString(u.Object, "status", "status")
	return observed == u.GetGeneration() && whole == "complete" && u.GetDeletionTimestamp() == nil
}

// waitReady runs the real kubectl wait.
func waitReady(t *testing.T, what string) {
	t.Helper()
	cmd := exec.Command(plane.Kubectl(), "--kubeconfig", plane.Kubeconfig(t), "wait", "--for=condition=Ready", what, "--timeout=3m")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl wait: %v\n%s", err, out)
	}
}

// TestNodeOpHealth: neither Flux nor Argo CD takes a NodeOp for healthy before it has ended, nor one that failed.
func TestNodeOpHealth(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly)
	requireGeneratedCRDs(t)
	s := recordVersions(t, opv1.GroupVersion.WithResource("nodeops"), func() int { return 0 })
	_, end := startOperator(t, w.Namespace)
	defer end()
	for name, well := range map[string]bool{"good": true, "bad": false} { // one of them at a time, whichever is first
		w.Apply("{apiVersion: operator.kairos.io/v1alpha1, kind: NodeOp, metadata: {name: " + name + ", namespace: " + w.Namespace + "}, spec: {command: [date], backoffLimit: 0, concurrency: 2}}")
		w.Eventually("NodeOp "+name+" has ended", func() bool {
			finishJobs(w, well)
			return s.has(func(v verdict) bool {
				phase := phaseOf(v.object)
				return v.object.GetName() == name && (phase == opv1.PhaseCompleted || phase == opv1.PhaseFailed)
			})
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.all {
		phase, current := phaseOf(v.object), v.kstatus == status.CurrentStatus
		if current != (phase == opv1.PhaseCompleted) || current != (v.word == v1alpha1.VerdictReady) {
			t.Errorf("NodeOp %s in phase %q: Flux says %s, the verdict is %s", v.object.GetName(), phase, v.kstatus, v.word)
		}
		if (phase == opv1.PhaseFailed) != (v.word == v1alpha1.VerdictFailed) || (phase == opv1.PhaseFailed) != (v.kstatus == status.FailedStatus) {
			t.Errorf("NodeOp %s in phase %q: Flux says %s, the verdict is %s", v.object.GetName(), phase, v.kstatus, v.word)
		}
	}
	if len(s.all) < 6 {
		t.Errorf("only %d versions were seen", len(s.all))
	}
}

func phaseOf(u *unstructured.Unstructured) opv1.Phase {
	phase, _, err := unstructured.NestedString(u.Object, "status", "phase")
	if err != nil {
		return ""
	}
	return opv1.Phase(phase)
}
