// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook"
)

var startTime = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

// newLargeCluster is what is observed of a cluster in which every Skyhook is complete on all nodes but the first pending.
func newLargeCluster(nodes, skyhooks, packages, pending int) *Objects {
	o := &Objects{nodes: map[string]*node.Node{}, Definitions: map[string]*skyhook.Definition{}, Config: skyhook.Config{
		Namespace: "skyhook", AgentImage: "registry.example/agent:v1", PauseImage: "registry.example/pause:3", CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook",
		RuntimeTaint: corev1.Taint{Key: v1alpha1.Group, Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule},
	}}
	for i := range skyhooks {
		s := &v1alpha1.Skyhook{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), Generation: 1, Finalizers: []string{v1alpha1.FinalizerSkyhook}}}
		s.Spec.Packages = map[string]v1alpha1.Package{}
		for j := range packages {
			s.Spec.Packages[fmt.Sprintf("package-%c", 'a'+j)] = v1alpha1.Package{Version: "1.2.3", Image: "registry.example/p", ConfigMap: map[string]v1alpha1.ConfigData{"a.sh": "echo"}}
		}
		o.Skyhooks = append(o.Skyhooks, s)
	}
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("ip-10-0-%05d.compute.internal", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1",
			Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		for j := range 25 {
			n.Labels[fmt.Sprintf("vendor.example/feature-%02d", j)] = "value"
		}
		n.Status.NodeInfo.BootID = "boot"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, s := range o.Skyhooks {
			state := ""
			for _, name := range []string{"package-a", "package-b", "package-c", "package-d"}[:packages] {
				state += fmt.Sprintf(`,"%s|1.2.3":{"name":"%s","version":"1.2.3","image":"registry.example/p","stage":"config","state":"complete"}`, name, name)
			}
			if i >= pending {
				n.Annotations[v1alpha1.PrefixNodeState+s.Name] = "{" + state[1:] + "}"
			}
		}
		o.Nodes = append(o.Nodes, node.Parse(n, nil))
	}
	Snapshot(o, startTime)
	for _, n := range o.Nodes {
		o.nodes[n.Name] = n
	}
	for _, s := range o.Skyhooks {
		for _, e := range o.Compiled(s).Adopt {
			o.nodes[e.Node] = o.nodes[e.Node].With(e.Edit)
		}
	}
	for i, n := range o.Nodes {
		o.Nodes[i] = o.nodes[n.Name]
	}
	// The annotations of the reports are written.
	snapshot, _ := Snapshot(o, startTime)
	for _, r := range rollout.Decide(snapshot).Reports {
		by := o.skyhooks[r.Rollout]
		for _, v := range r.Verdicts {
			n := o.nodes[v.Node]
			o.nodes[v.Node] = n.With(by.Words(n, v))
		}
	}
	for i, n := range o.Nodes {
		n = o.nodes[n.Name]
		n.ResourceVersion = "2"
		o.Nodes[i] = n
	}
	return o
}

// computePass is all of a pass but the requests.
func computePass(o *Objects, now time.Time) (rollout.Plan, int) {
	snapshot, _ := Snapshot(o, now)
	plan := rollout.Decide(snapshot)
	p := New(Options{Clock: func() time.Time { return now }}).newPass(o)
	work := p.collectWork(plan, workFilter{})
	for _, s := range o.Skyhooks {
		by := o.Compiled(s)
		for _, report := range plan.Reports {
			if report.Rollout == by.Rollout.Ref {
				by.Events(nil, s.Status, by.Status(report, plan.Groups))
			}
		}
	}
	return plan, len(work)
}

// BenchmarkPass measures a pass without its requests: at rest, and with 100 nodes that have work.
func BenchmarkPass(b *testing.B) {
	for _, nodes := range []int{1000, 5000, 10000} {
		for _, pending := range []int{0, 100} {
			b.Run(fmt.Sprintf("nodes=%d/pending=%d", nodes, pending), func(b *testing.B) {
				o := newLargeCluster(nodes, 3, 3, pending)
				var took []time.Duration
				b.ResetTimer()
				cpu := cpuTime(b)
				for b.Loop() {
					began := time.Now()
					plan, work := computePass(o, startTime.Add(time.Hour))
					took = append(took, time.Since(began))
					if (len(plan.Actions) > 0) != (pending > 0) || work > pending {
						b.Fatalf("%d actions, work on %d nodes", len(plan.Actions), work)
					}
				}
				b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
			})
		}
	}
}

// BenchmarkNextPass measures a pass without its requests that follows another one, when 20 nodes have changed since: all of it, and its
// parts.
func BenchmarkNextPass(b *testing.B) {
	const changed = 20
	for _, nodes := range []int{1000, 5000} {
		for _, skyhooks := range []int{1, 3} {
			b.Run(fmt.Sprintf("nodes=%d/skyhooks=%d", nodes, skyhooks), func(b *testing.B) {
				o := newLargeCluster(nodes, skyhooks, 2, 0)
				o.before = &compiledBefore{}
				computePass(o, startTime)
				turn := 0
				b.ReportAllocs()
				b.ResetTimer()
				cpu := cpuTime(b)
				for b.Loop() {
					for i := range changed {
						at := (turn*changed + i) % nodes
						n := *o.Nodes[at]
						o.Nodes[at], o.nodes[n.Name] = &n, &n
					}
					turn++
					computePass(o, startTime.Add(time.Hour))
				}
				b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// cpuTime is the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
