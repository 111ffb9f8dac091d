// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/dump"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

var fleetNodes = flag.Int("nodes", 1000, "nodes that BenchmarkCommands fills an API server with")

const (
	nodeKind = "Node"
	podKind  = "Pod"
)

// copyDump copies the objects of the dump stuck.yaml with its six nodes until there are this many nodes.
func copyDump(nodes int) ([]client.Object, *dump.Cluster, error) {
	p, err := readDump("testdata/dumps/stuck.yaml")
	if err != nil {
		return nil, nil, err
	}
	six := p.Objects(corev1.SchemeGroupVersion.WithKind(nodeKind))
	pods := p.Objects(corev1.SchemeGroupVersion.WithKind(podKind))
	var out []client.Object
	for i := range nodes {
		from := six[i%len(six)]
		name := fmt.Sprintf("node-%04d", i)
		swap := strings.NewReplacer(`"`+from.GetName()+`"`, `"`+name+`"`, string(from.GetUID()), fmt.Sprintf("%08d-0000-4000-8000-000000000000", i))
		if err := copyObject(from, &corev1.Node{}, swap, name, &out); err != nil {
			return nil, nil, err
		}
		for j, o := range pods {
			pod, ok := o.(*corev1.Pod)
			if !ok || pod.Spec.NodeName != from.GetName() {
				continue
			}
			if err := copyObject(pod, &corev1.Pod{}, swap, fmt.Sprintf("%s-%d", pod.Name, i), &out); err != nil {
				return nil, nil, err
			}
			out[len(out)-1].SetUID(types.UID(fmt.Sprintf("%08d-0000-4000-8000-%012d", i, j)))
		}
	}
	return out, p, nil
}

func copyObject(from, into client.Object, swap *strings.Replacer, name string, out *[]client.Object) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(swap.Replace(string(raw))), into); err != nil {
		return err
	}
	into.SetName(name)
	*out = append(*out, into)
	return nil
}

var makeLarge = sync.OnceValues(func() (string, error) {
	all, p, err := copyDump(5000)
	if err != nil {
		return "", err
	}
	large, err := dump.New(nil, p.Taken)
	if err != nil {
		return "", err
	}
	large.Plugin, large.Operator = p.Plugin, p.Operator
	for _, kind := range []string{"Skyhook", "DeploymentPolicy"} {
		all = append(all, p.Objects(v1alpha1.GroupVersion.WithKind(kind))...)
	}
	all = append(all, p.Objects(corev1.SchemeGroupVersion.WithKind("ConfigMap"))...)
	all = append(all, p.Objects(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"))...)
	for _, o := range all {
		if err := large.Put(o); err != nil {
			return "", err
		}
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("skyhook-cli-test-%d", os.Getpid()), "large.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	if err := large.Write(out); err != nil {
		return "", err
	}
	return file, out.Close()
})

// createScaleNodes creates nodes of realistic size with the state of the nodes in the dump, and its Skyhooks. No operator
// runs.
func (s *testCluster) createScaleNodes(nodes int) {
	s.Helper()
	all, p, err := copyDump(nodes)
	s.Must(err)
	for _, kind := range []string{"DeploymentPolicy", "Skyhook"} {
		for _, o := range p.Objects(v1alpha1.GroupVersion.WithKind(kind)) {
			o.SetResourceVersion("")
			o.SetUID("")
			o.SetFinalizers(nil)
			told, ok := o.DeepCopyObject().(client.Object)
			s.Must(s.Client.Create(context.Background(), o))
			if ok && kind == "Skyhook" {
				told.SetUID(o.GetUID())
				told.SetResourceVersion(o.GetResourceVersion())
				s.Must(s.Client.Status().Update(context.Background(), told))
			}
		}
	}
	seats := make(chan struct{}, 32)
	var group sync.WaitGroup
	for _, o := range all {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		seats <- struct{}{}
		group.Go(func() {
			defer func() { <-seats }()
			if err := s.createRealisticNode(n); err != nil {
				s.Error(err)
			}
		})
	}
	group.Wait()
}

// createRealisticNode creates a node with typical fields of other components, and then our records.
func (s *testCluster) createRealisticNode(n *corev1.Node) error {
	records, was, status := n.Annotations, string(n.UID), n.Status
	made := &corev1.Node{}
	made.Name, made.Labels, made.Spec.Unschedulable = n.Name, n.Labels, n.Spec.Unschedulable
	for j := range 25 {
		made.Labels[fmt.Sprintf("vendor.example/feature-%02d", j)] = "some-value"
	}
	if err := s.Client.Create(context.Background(), made); err != nil {
		return err
	}
	for key, value := range records {
		records[key] = strings.ReplaceAll(value, was, string(made.UID))
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": records}, "spec": map[string]any{"taints": nil}})
	if err != nil {
		return err
	}
	if err := s.Client.Patch(context.Background(), made, client.RawPatch("application/merge-patch+json", raw)); err != nil {
		return err
	}
	for j := range 40 {
		status.Images = append(status.Images, corev1.ContainerImage{SizeBytes: int64(j) << 20, Names: []string{
			fmt.Sprintf("registry.example/some/team/with/image-%02d@sha256:%064d", j, j), fmt.Sprintf("registry.example/some/team/with/image-%02d:v1.%d.0", j, j),
		}})
	}
	made.Status = status
	return s.Client.Status().Update(context.Background(), made)
}

// readCommands are the commands that read the whole cluster.
var readCommands = [][]string{
	{"status"}, {"status", "base"}, {"why", "node-0002"}, {"why", "driver"}, {"plan"}, {"plan", "base", "-o", "json"}, {"plan", "-f", "testdata/reboot.yaml"},
	{"simulate", "base", "--stage", "1m"}, {"simulate"},
	{"node", "list", "--skyhook", "base"}, {"node", "status"}, {"package", "status", "tuning", "--skyhook", "base"},
	{"forget", "base", "--dry-run", "-y"}, {"node", "reapply", "node-0001", "--skyhook", "base", "--dry-run", "-y"}, {"node", "ignore", "node-000.", "--dry-run"},
	{"restart-batches", "late", "--dry-run", "-y"}, {"pause", "base", "--dry-run", "-y"},
	{"dump", "--to", os.DevNull}, {"support-bundle", "--to", os.DevNull}, {"cleanup", "--dry-run", "-y"}, {"version"},
}

// TestCallsIndependentOfNodes checks that the number of calls does not depend on the number of nodes.
func TestCallsIndependentOfNodes(t *testing.T) {
	asked := map[int]map[string][]string{}
	for _, nodes := range []int{60, 180} {
		s := newTestCluster(t, 0)
		s.createScaleNodes(nodes)
		asked[nodes] = map[string][]string{}
		for _, args := range readCommands {
			s.proxy.takeCalls()
			s.run(0, args...)
			asked[nodes][strings.Join(args, " ")] = s.proxy.takeCalls()
		}
		s.deleteNodes()
	}
	for command, few := range asked[60] {
		a, b := callKinds(few), callKinds(asked[180][command])
		if !slices.Equal(a, b) {
			t.Errorf("%s asks for other things on 180 nodes than on 60:\n%v\n%v", command, a, b)
		}
		if most := 17; len(few) > most || len(asked[180][command]) > most { // every list, and lists that are requested twice
			t.Errorf("%s asks %d times on 60 nodes and %d times on 180:\n%v", command, len(few), len(asked[180][command]), a)
		}
	}
}

// callKinds returns calls without their namespace, which differs between test clusters, and without duplicates.
func callKinds(calls []string) []string {
	var out []string
	for _, call := range calls {
		if _, after, found := strings.Cut(call, "/namespaces/"); found {
			_, what, _ := strings.Cut(after, "/")
			call = "GET NAMESPACE/" + what
		}
		out = append(out, call)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// deleteNodes deletes the nodes and Skyhooks, for the next test cluster.
func (s *testCluster) deleteNodes() {
	s.Helper()
	ctx := context.Background()
	s.Must(s.Client.DeleteAllOf(ctx, &corev1.Node{}))
	for _, o := range []client.Object{&v1alpha1.Skyhook{}, &v1alpha1.DeploymentPolicy{}} {
		s.Must(s.Client.DeleteAllOf(ctx, o))
	}
}

// BenchmarkCommands measures every command as a separate process:
//
//	go test ./internal/cli -run '^$' -bench Commands -benchtime 5x -nodes 5000
func BenchmarkCommands(b *testing.B) {
	program := filepath.Join(b.TempDir(), "kubectl-skyhook")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "../../cmd/kubectl-skyhook")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	w := testenv.New(b, server(b), 0)
	s := &testCluster{Env: w}
	s.createScaleNodes(*fleetNodes)
	file := filepath.Join(b.TempDir(), "kubeconfig")
	s.Must(server(b).WriteKubeconfig(file))
	for _, args := range readCommands {
		b.Run(strings.Join(args, "_"), func(b *testing.B) {
			best, cpu, peak := time.Hour, time.Hour, int64(0)
			for b.Loop() {
				began := time.Now()
				cmd := exec.Command(program, append([]string{"--kubeconfig", file, "--operator-namespace", w.Namespace}, args...)...)
				if out, err := cmd.Output(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
					peak = max(peak, usage.Maxrss>>10)
				}
				best, cpu = min(best, time.Since(began)), min(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
			b.ReportMetric(float64(best.Milliseconds()), "ms-best")
			b.ReportMetric(float64(cpu.Milliseconds()), "ms-cpu")
			b.ReportMetric(float64(peak), "MiB-peak")
		})
	}
	s.deleteNodes()
}
