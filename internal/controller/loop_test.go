// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cluster"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

const demo = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: demo}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    tuning:
      version: 1.1.0
      image: registry.example/packages/shellscript
      configMap: {apply.sh: "echo hello"}
    extra:
      version: 2.0.0
      image: registry.example/packages/extra
      dependsOn: {tuning: 1.1.0}
`

const driver = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: driver}
spec:
  nodeSelectors: {matchLabels: {pool: gpu}}
  interruptionBudget: {count: 1}
  podNonInterruptLabels: {matchLabels: {protect: "yes"}}
  packages:
    kernel:
      version: 1.0.0
      image: registry.example/packages/kernel
      interrupt: {type: reboot}
`

func workload(name, node, labels string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, labels: {%s}}
spec:
  nodeName: %s
  containers: [{name: main, image: registry.example/app:1}]
`, name, labels, node)
}

func TestInstall(t *testing.T) {
	w := newFixture(t, 3)
	w.Apply(demo)
	w.startOperator()
	w.WaitComplete("demo")
	want := []string{"tuning-1.1.0 apply", "tuning-1.1.0 config", "extra-2.0.0 apply", "extra-2.0.0 config"}
	for _, n := range []string{"n1", "n2", "n3"} {
		if got := w.kubelet.History(n); !slices.Equal(got, want) {
			t.Errorf("on %s ran %v, want %v", n, got, want)
		}
	}
	w.waitNoPods()
}

// A node is drained, a protected pod waited for, and the reboot proven, one node at a time. Only the
// watches of the pods make the operator go on.
func TestReboot(t *testing.T) {
	w := newFixture(t, 2)
	w.Apply(workload("app", "n1", "app: web"))
	w.Apply(workload("precious", "n2", `protect: "yes"`))
	w.Apply(driver)
	w.startOperator()
	w.Eventually("n1 is done and n2 waits for the protected pod", func() bool {
		s := w.GetSkyhook("driver").Status
		return s.NodeStatus["n1"] == v1alpha1.StatusComplete && w.GetNode("n2").Spec.Unschedulable
	})
	if got := w.kubelet.History("n2"); len(got) > 0 {
		t.Errorf("beside a protected pod ran %v", got)
	}
	if got := w.GetNode("n1").Status.NodeInfo.BootID; got != "boot-1+" {
		t.Errorf("n1 booted %q, want once", got)
	}
	err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "app"}, &corev1.Pod{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the pod that had to leave: %v", err)
	}
	w.Must(w.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "precious"}}))
	w.WaitComplete("driver")
	for _, n := range []string{"n1", "n2"} {
		want := []string{"kernel-1.0.0 apply", "kernel-1.0.0 config", "kernel-1.0.0 interrupt", "kernel-1.0.0 post-interrupt"}
		if got := w.kubelet.History(n); !slices.Equal(got, want) || w.GetNode(n).Spec.Unschedulable {
			t.Errorf("on %s ran %v, and it is cordoned: %v", n, got, w.GetNode(n).Spec.Unschedulable)
		}
	}
	if got := w.kubelet.MostAdmitted(); got != 1 {
		t.Errorf("with a budget of one node, %d nodes were in flight at the same time", got)
	}
}

// Deleting a Skyhook in the middle of its work ends: nodes are schedulable as before, and nothing is left but the record of
// packages that stay.
func TestDeletion(t *testing.T) {
	w := newFixture(t, 3)
	w.kubelet.SetOutcome(func(p *corev1.Pod) testenv.Outcome {
		if p.Spec.NodeName == "n2" && strings.HasSuffix(testenv.StageOf(p), "config") {
			return testenv.Hangs
		}
		return testenv.Succeeds
	})
	w.Apply(strings.Replace(driver, "count: 1", "count: 3", 1))
	w.startOperator()
	w.Eventually("n1 is done while n2 is in the middle", func() bool {
		return w.GetSkyhook("driver").Status.NodeStatus["n1"] == v1alpha1.StatusComplete && len(w.kubelet.History("n2")) == 2
	})
	w.Must(w.Client.Delete(t.Context(), w.GetSkyhook("driver")))
	w.Eventually("the Skyhook is gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(t.Context(), client.ObjectKey{Name: "driver"}, &v1alpha1.Skyhook{}))
	})
	for _, n := range []string{"n1", "n2", "n3"} {
		node := w.GetNode(n)
		if got := testenv.ListRemains(node); len(got) > 0 || node.Spec.Unschedulable {
			t.Errorf("on %s is left %v, unschedulable: %v", n, got, node.Spec.Unschedulable)
		}
	}
	w.waitNoPods()
}

// A deletion uninstalls with the definition that is installed; a paused Skyhook waits, and reports it.
func TestDeletionUninstalls(t *testing.T) {
	w := newFixture(t, 1)
	w.Apply(strings.Replace(demo, "version: 2.0.0", "version: 2.0.0\n      uninstall: {enabled: true}", 1))
	w.startOperator()
	w.WaitComplete("demo")
	w.Patch(w.GetSkyhook("demo"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":"true"}}}`)
	w.Must(w.Client.Delete(t.Context(), w.GetSkyhook("demo")))
	w.Eventually("the Skyhook reports why it stays", func() bool {
		return slices.ContainsFunc(w.GetSkyhook("demo").Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionDeletionBlocked && c.Reason == v1alpha1.ReasonPausedWithPendingUninstall
		})
	})
	w.Patch(w.GetSkyhook("demo"), `{"metadata":{"annotations":{"skyhook.nvidia.com/pause":null}}}`)
	w.Eventually("the Skyhook is gone", func() bool {
		return apierrors.IsNotFound(w.Client.Get(t.Context(), client.ObjectKey{Name: "demo"}, &v1alpha1.Skyhook{}))
	})
	if got := w.kubelet.History("n1"); !slices.Contains(got, "extra-2.0.0 uninstall") || slices.Contains(got, "tuning-1.1.0 uninstall") {
		t.Errorf("ran %v", got)
	}
}

// A new node of a runtime-required Skyhook is tainted on sight, and loses the taint when it is done.
func TestRuntimeRequired(t *testing.T) {
	w := newFixture(t, 1)
	w.Apply(strings.Replace(demo, "spec:", "spec:\n  runtimeRequired: true\n  autoTaintNewNodes: true", 1))
	w.startOperator()
	w.WaitComplete("demo")
	hold := make(chan struct{})
	w.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome {
		select {
		case <-hold:
			return testenv.Succeeds
		default:
			return testenv.Hangs
		}
	})
	w.AddNode("late", map[string]string{"pool": "gpu"})
	w.Eventually("the new node is tainted and worked on", func() bool {
		return slices.ContainsFunc(w.GetNode("late").Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.Group }) && len(w.kubelet.History("late")) == 1
	})
	close(hold)
	for _, p := range w.ListPods() { // what hung goes, and is tried again
		w.Must(w.Client.Delete(t.Context(), &p, client.GracePeriodSeconds(0)))
	}
	w.Eventually("the taint is gone", func() bool { return len(w.GetNode("late").Spec.Taints) == 0 })
	w.WaitComplete("demo")
}

// slowTransport delays patches of a node.
type slowTransport struct {
	next http.RoundTripper
	path string
}

func (l slowTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, l.path) {
		time.Sleep(statusInterval + 200*time.Millisecond) // longer than statusInterval
	}
	return l.next.RoundTrip(q)
}

// Ready never becomes true for a generation that was not applied, nor before every node was released.
func TestReadyIsTrue(t *testing.T) {
	w := newFixture(t, 2)
	w.config = rest.CopyConfig(w.config)
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return slowTransport{next, "/nodes/n1"} })
	w.Apply(demo)
	w.startOperator()
	for _, version := range []string{"1.1.0", "1.2.0", "1.3.0", "1.3.1"} {
		w.Apply(strings.ReplaceAll(demo, "1.1.0", version))
		generation := w.GetSkyhook("demo").Generation
		w.Eventually("version "+version+" is ready", func() bool {
			s := w.GetSkyhook("demo")
			if !testenv.IsReady(s) || s.Generation != generation {
				return false
			}
			for _, n := range []string{"n1", "n2"} {
				if state := w.GetNode(n).Annotations[v1alpha1.PrefixNodeState+"demo"]; !strings.Contains(state, `"tuning|`+version+`":`) || strings.Contains(state, "in_progress") {
					t.Fatalf("Ready is True for generation %d, and node %s records %s", generation, n, state)
				}
				if record := w.GetNode(n).Annotations[v1alpha1.PrefixRecord+"demo"]; strings.Contains(record, `"admitted":true`) {
					t.Fatalf("Ready is True for generation %d, and node %s is still at work: %s", generation, n, record)
				}
				for key, p := range s.Status.NodeState[n] {
					if p.State != v1alpha1.StateComplete {
						t.Fatalf("Ready is True for generation %d, and the status has %s as %s on %s", generation, key, p.State, n)
					}
				}
			}
			return true
		})
	}
}

// An operator can be killed at any moment, and the next one continues.
func TestRestarts(t *testing.T) {
	w := newFixture(t, 4)
	w.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 2}", 1))
	for i := range 5 {
		w.startOperator()
		w.Eventually(fmt.Sprintf("there are %d pods", 3*i+1), func() bool {
			began := 0
			for _, n := range []string{"n1", "n2", "n3", "n4"} {
				began += len(w.kubelet.History(n))
			}
			return began > 3*i
		})
		w.stop()
	}
	w.startOperator()
	w.WaitComplete("demo")
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		want := []string{"tuning-1.1.0 apply", "tuning-1.1.0 config", "extra-2.0.0 apply", "extra-2.0.0 config"}
		if got := w.kubelet.History(n); !slices.Equal(got, want) {
			t.Errorf("on %s ran %v, want each stage once", n, got)
		}
	}
	if got := w.kubelet.MostAdmitted(); got > 2 {
		t.Errorf("with a budget of 2 nodes, %d nodes were in flight at the same time", got)
	}
}

// Of two operators one leads; when it ends the other takes over.
func TestLeader(t *testing.T) {
	w := newFixture(t, 2)
	w.options.LeaderElection = true
	w.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Hangs })
	w.startOperator()
	stopFirst, first := w.stop, w.registry
	w.Apply(demo)
	w.Eventually("the first operator works", func() bool { return len(w.ListPods()) == 2 })
	w.startOperator()
	second := w.registry
	w.kubelet.SetOutcome(func(*corev1.Pod) testenv.Outcome { return testenv.Succeeds })
	stopFirst()
	before := sumCounter(t, first, "skyhook_actions_total")
	for _, p := range w.ListPods() {
		w.Must(client.IgnoreNotFound(w.Client.Delete(context.Background(), &p, client.GracePeriodSeconds(0))))
	}
	w.WaitComplete("demo")
	if got := sumCounter(t, second, "skyhook_actions_total"); got == 0 || sumCounter(t, first, "skyhook_actions_total") != before {
		t.Errorf("the second operator applied %v actions, the first one %v after its end", got, sumCounter(t, first, "skyhook_actions_total")-before)
	}
}

// A leader that cannot renew its lease has ended its last pass before it has to stop, and has stopped before another leads.
func TestPassEndsBeforeTheLease(t *testing.T) {
	if passTimeout+cluster.StatusTimeout >= renewDeadline || renewDeadline >= leaseDuration {
		t.Errorf("a pass takes up to %s, the lease is renewed within %s and taken after %s", passTimeout+cluster.StatusTimeout, renewDeadline, leaseDuration)
	}
	if looks := time.Duration((1 + leaderelection.JitterFactor) * float64(retryPeriod)); leaseDuration+2*looks > 15*time.Second { // it sees the last renewal late, and its end
		t.Errorf("the lease is taken after %s, and looked at every %s: no operator leads for more than 15 s", leaseDuration, looks)
	}
}

// sendJitter is how much later than decided a status may be sent: it is written beside the loop.
const sendJitter = 100 * time.Millisecond

// A status is written at most once in a second, however much happens.
func TestStatusRate(t *testing.T) {
	w := newFixture(t, 6)
	w.Apply(strings.Replace(demo, "spec:", "spec:\n  interruptionBudget: {count: 2}", 1))
	recorder := &requestRecorder{}
	w.config = recorder.wrap(plane.Config)
	w.startOperator()
	w.WaitComplete("demo")
	w.stop()
	last := time.Time{}
	for _, r := range recorder.requests() {
		if !strings.HasSuffix(r.path, "/skyhooks/demo/status") || !strings.Contains(r.body, `"conditions"`) {
			continue
		}
		if since := r.at.Sub(last); since < statusInterval-sendJitter {
			t.Errorf("the status was written again after %s", since)
		}
		last = r.at
	}
	if last.IsZero() {
		t.Error("the status was never written")
	}
}

const shared = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: careful}
spec:
  scope: Policy
  default:
    budget: {count: 1}
    strategy: {fixed: {initialBatch: 1}}
`

// Two Skyhooks under one shared policy never have two nodes between them.
func TestSharedPolicy(t *testing.T) {
	w := newFixture(t, 2)
	w.AddNode("x1", map[string]string{"pool": "other"})
	w.Apply(shared)
	one := strings.Replace(driver, "interruptionBudget: {count: 1}", "deploymentPolicy: careful", 1)
	w.Apply(one)
	w.Apply(strings.NewReplacer("name: driver", "name: second", "pool: gpu", "pool: other").Replace(one))
	w.startOperator()
	w.WaitComplete("driver")
	w.WaitComplete("second")
	if got := w.kubelet.MostAdmitted(); got != 1 {
		t.Errorf("%d nodes were in flight at the same time", got)
	}
}

// A Skyhook and a NodeOp under one shared policy never have two nodes between them, nor one node both.
func TestSharedPolicyWithNodeOp(t *testing.T) {
	w := newFixture(t, 2)
	w.Apply(shared)
	w.Apply(strings.Replace(driver, "interruptionBudget: {count: 1}", "deploymentPolicy: careful", 1))
	w.Apply(`
apiVersion: operator.kairos.io/v1alpha1
kind: NodeOp
metadata: {name: beside, namespace: ` + w.Namespace + `}
spec: {command: [date], cordon: true, deploymentPolicy: careful, nodeSelector: {matchLabels: {pool: gpu}}}
`)
	w.startOperator()
	for n := int32(1); n <= 2; n++ {
		w.Eventually(fmt.Sprintf("the NodeOp is done with %d nodes", n), func() bool {
			w.finishJobs()
			o := &opv1.NodeOp{}
			err := w.Client.Get(context.Background(), client.ObjectKey{Namespace: w.Namespace, Name: "beside"}, o)
			return err == nil && o.Status.Completed >= n
		})
	}
	w.WaitComplete("driver")
	if got := w.kubelet.MostAdmitted(); got != 1 {
		t.Errorf("%d nodes were in flight at the same time", got)
	}
}
