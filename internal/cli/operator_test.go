// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/internal/controller"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/internal/options"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

var dumps = flag.Bool("dumps", false, "write the dumps that the scripts look at anew, from a cluster that a real operator worked on")

// testCluster is a cluster with an operator, and the plugin that reads it.
type testCluster struct {
	*testenv.Env
	kubelet *testenv.Kubelet
	proxy   *proxy
	file    string // kubeconfig
}

func newTestCluster(t *testing.T, nodes int) *testCluster {
	t.Helper()
	w := testenv.New(t, server(t), nodes)
	p := newProxy(w.Config)
	t.Cleanup(p.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	w.Must(p.kubeconfig(file))
	return &testCluster{Env: w, kubelet: w.StartKubelet(), proxy: p, file: file}
}

// startOperator runs an operator until the test ends or stop is called.
func (s *testCluster) startOperator(changes ...func(*options.Options)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	settings := options.Defaults()
	settings.Namespace, settings.AgentImage, settings.PauseImage = s.Namespace, "registry.example/agent:v1", "registry.example/pause:3"
	for _, change := range changes {
		change(settings)
	}
	go func() {
		ended <- controller.Run(ctx, s.Config, controller.Options{
			Skyhook: settings.Skyhook(""), NodeOps: settings.NodeOps(),
			MetricsAddress: "0", ProbeAddress: "0", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
		})
	}()
	over := false
	stop = func() {
		cancel()
		if !over {
			over = true
			if err := <-ended; err != nil {
				s.Errorf("the operator ended: %v", err)
			}
		}
	}
	s.Cleanup(stop)
	return stop
}

// run runs the plugin, and returns its standard output.
func (s *testCluster) run(code int, args ...string) string {
	s.Helper()
	out, _ := s.runBoth(code, args...)
	return out
}

// runBoth runs the plugin, and returns standard output and standard error.
func (s *testCluster) runBoth(code int, args ...string) (printed, said string) {
	s.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	got := cli.Run(ctx, cli.Line{
		Args: append([]string{"--kubeconfig", s.file, "--operator-namespace", s.Namespace}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Version: "v0.9.0-test",
	})
	if got != code {
		s.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

const canaryPolicy = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: DeploymentPolicy
metadata: {name: canary}
spec:
  default:
    budget: {count: 3}
    strategy: {linear: {initialBatch: 1, delta: 1}}
`

const gpuStack = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: gpu}
spec:
  serial: true
  deploymentPolicy: canary
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    base:
      version: 1.0.0
      image: registry.example/packages/base
      configMap: {apply.sh: "echo base"}
    driver:
      version: 2.1.0
      image: registry.example/packages/driver
      dependsOn: {base: 1.0.0}
      interrupt: {type: reboot}
      env: [{name: TOKEN, value: hunter2}]
    fabric:
      version: 1.4.2
      image: registry.example/packages/fabric
      interrupt: {type: service, services: [fabric.service]}
`

// TestPlanMatchesOperator compares a plan with what the operator does when everything succeeds: the order in which nodes are
// admitted, and the order of the stages on each node.
func TestPlanMatchesOperator(t *testing.T) {
	s := newTestCluster(t, 6)
	s.Apply(canaryPolicy)
	s.Apply(gpuStack)
	var plan struct {
		Rollouts []struct {
			Changing int
			Waves    []struct{ Nodes []string }
			Work     []struct {
				Nodes []string
				Steps []struct{ Task string }
			}
		}
	}
	s.Must(json.Unmarshal([]byte(s.run(0, "plan", "gpu", "-o", "json")), &plan))
	if len(plan.Rollouts) != 1 || plan.Rollouts[0].Changing != 6 || len(plan.Rollouts[0].Work) != 1 {
		t.Fatalf("it plans %+v", plan)
	}
	var want [][]string
	for _, w := range plan.Rollouts[0].Waves {
		want = append(want, w.Nodes)
	}
	var steps []string
	for _, st := range plan.Rollouts[0].Work[0].Steps {
		steps = append(steps, st.Task)
	}
	s.startOperator()
	s.WaitComplete("gpu")
	admitted := map[int64][]string{}
	for i := range 6 {
		name := fmt.Sprintf("n%d", i+1)
		var record struct{ Batch int64 }
		s.Must(json.Unmarshal([]byte(s.GetNode(name).Annotations[v1alpha1.PrefixRecord+"gpu"]), &record))
		admitted[record.Batch] = append(admitted[record.Batch], name)
		var ran []string
		for _, line := range s.kubelet.History(name) {
			pkg, stage, _ := strings.Cut(line, " ")
			ran = append(ran, pkg[:strings.LastIndexByte(pkg, '-')]+" "+stage)
		}
		if !slices.Equal(ran, steps) {
			t.Errorf("on %s ran %v, planned were %v", name, ran, steps)
		}
	}
	var got [][]string
	for _, batch := range slices.Sorted(maps.Keys(admitted)) {
		got = append(got, admitted[batch])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("admitted were %v, planned %v", got, want)
	}
	if out := s.run(0, "plan"); !strings.Contains(out, "Nothing would change") {
		t.Errorf("afterwards: %s", out)
	}
}

// TestDumpSameDecisions compares the output of commands in the middle of a rollout, for the cluster and for its dump.
func TestDumpSameDecisions(t *testing.T) {
	s := newTestCluster(t, 6)
	stop := s.startStuckRollout()
	stop()
	file := filepath.Join(t.TempDir(), "dump.yaml")
	s.run(0, "dump", "-o", file)
	text, err := os.ReadFile(file)
	s.Must(err)
	if *dumps {
		s.Must(os.WriteFile("testdata/dumps/stuck.yaml", text, 0o600))
	}
	for _, secret := range []string{"hunter2", "managedFields", "last-applied"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the dump has %q in it", secret)
		}
	}
	if !strings.Contains(string(text), "redacted-1") {
		t.Error("nothing is redacted in the dump")
	}
	for _, args := range [][]string{{"plan", "-o", "json"}, {"plan", "-o", "wide"}} {
		live, dumped := s.run(0, args...), s.run(0, append(args, "--from", file)...)
		if live != dumped {
			t.Errorf("%v says\n%s\nand of the dump\n%s", args, live, dumped)
		}
	}
	again := filepath.Join(t.TempDir(), "again.yaml")
	p, err := readDump(file)
	s.Must(err)
	p, err = p.Redacted()
	s.Must(err)
	var out bytes.Buffer
	s.Must(p.Write(&out))
	if out.String() != string(text) {
		s.Must(os.WriteFile(again, out.Bytes(), 0o600))
		t.Errorf("a dump of the dump differs: diff %s %s", file, again)
	}
}

func readDump(file string) (*dump.Cluster, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return dump.Read(in)
}

// startStuckRollout runs an operator until the rollouts are stuck: base is complete except for a failing node, and driver waits
// for a protected pod and a disruption budget.
func (s *testCluster) startStuckRollout() (stop func()) {
	s.Helper()
	s.Apply(canaryPolicy)
	s.Apply(stuckBase)
	for _, p := range []struct{ name, node, labels string }{
		{"web-1", "n1", "app: web"}, {"web-2", "n2", "app: web"}, {"train", "n2", "protect: \"yes\""}, {"api", "n1", "app: api"}, {"web-3", "n4", "app: web"},
	} {
		s.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {%s}}\nspec:\n  nodeName: %s\n  containers: [{name: main, image: registry.example/app:1}]\n", p.name, p.labels, p.node))
	}
	s.Must(s.writeBudget("web", 0))
	s.Patch(s.GetNode("n6"), `{"metadata":{"labels":{"skyhook.nvidia.com/ignore":"true"}}}`)
	s.kubelet.SetOutcome(func(p *corev1.Pod) testenv.Outcome {
		switch {
		case p.Namespace != s.Namespace:
			return testenv.Succeeds
		case p.Spec.NodeName == "n3" && testenv.StageOf(p) == "config":
			return testenv.Fails
		case p.Spec.NodeName == "n5":
			return testenv.Hangs
		}
		return testenv.Succeeds
	})
	stop = s.startOperator()
	s.Eventually("the base is done where it can be", func() bool {
		return s.GetSkyhook("base").Status.NodeCounts[v1alpha1.StatusComplete] == 3 && s.isErring("n3") && s.runningStage("n5") == "apply"
	})
	s.Apply(messyDriver)
	s.Apply(messyLate)
	s.Eventually("the driver waits for pods on two nodes", func() bool {
		a, b := s.GetNode("n1"), s.GetNode("n2")
		held := v1alpha1.PrefixCordon + "driver"
		return a.Annotations[held] == "true" && b.Annotations[held] == "true" && len(s.listOtherPods()) == 4
	})
	return stop
}

func (s *testCluster) isErring(node string) bool {
	return strings.Contains(s.GetNode(node).Annotations[v1alpha1.PrefixNodeState+"base"], "erroring")
}

// listOtherPods returns the pods that are not of Skyhooks.
func (s *testCluster) listOtherPods() []corev1.Pod {
	l := &corev1.PodList{}
	s.Must(s.Client.List(context.Background(), l, client.InNamespace("default")))
	return l.Items
}

// runningStage returns the stage that runs on a node.
func (s *testCluster) runningStage(node string) string {
	for _, p := range s.ListPods() {
		if p.Spec.NodeName == node && len(p.Status.InitContainerStatuses) > 0 {
			return testenv.StageOf(&p)
		}
	}
	return ""
}

// writeBudget writes the status of a disruption budget, as its controller does.
func (s *testCluster) writeBudget(name string, allowed int) error {
	gvk, err := apiutil.GVKForObject(s.Apply(messyBudget), s.Client.Scheme())
	if err != nil {
		return err
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	o.SetGroupVersionKind(gvk)
	s.Cleanup(func() { s.Must(client.IgnoreNotFound(s.Client.Delete(context.Background(), o))) })
	raw := fmt.Sprintf(`{"status":{"disruptionsAllowed":%d,"currentHealthy":2,"desiredHealthy":2,"expectedPods":2,"observedGeneration":1}}`, allowed)
	return s.Client.Status().Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(raw)))
}

const messyBudget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
`

const stuckBase = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: base}
spec:
  priority: 10
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    tuning:
      version: 1.2.0
      image: registry.example/packages/tuning
      configMap: {config.sh: "sysctl -p"}
      env: [{name: TOKEN, value: hunter2}, {name: MODE, value: fast}]
`

const messyDriver = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: driver}
spec:
  priority: 20
  nodeSelectors: {matchLabels: {pool: gpu}}
  interruptionBudget: {count: 2}
  podNonInterruptLabels: {matchLabels: {protect: "yes"}}
  packages:
    kernel:
      version: 6.8.0
      image: registry.example/packages/kernel
      interrupt: {type: reboot}
      env: [{name: TOKEN, value: hunter2}]
`

const messyLate = `
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata:
  name: late
  annotations: {skyhook.nvidia.com/pause: "true"}
spec:
  priority: 30
  deploymentPolicy: canary
  nodeSelectors: {matchLabels: {pool: gpu}}
  packages:
    motd:
      version: 1.0.0
      image: registry.example/packages/shellscript
`
