// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	opreport "github.com/skyhook-k8s/skyhook/internal/nodeop/report"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/rollout/engine"
	"github.com/skyhook-k8s/skyhook/internal/rollout/timing"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

var startTime = time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)

// newLargeCluster is what is observed of a cluster in which every Skyhook is complete on all nodes but the first pending.
func newLargeCluster(nodes, skyhooks, packages, pending int) *Objects {
	o := &Objects{Definitions: map[string]*plan.Definition{}, Config: plan.Config{
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
	o.indexNodes(nil, nil)
	before := Compile(o, startTime)
	for _, s := range o.Skyhooks {
		for _, e := range before.Skyhook(s).Adopt {
			o.Nodes[o.places[e.Node]] = o.Node(e.Node).With(e.Edit)
		}
	}
	// The annotations of the reports are written.
	compiled := Compile(o, startTime)
	for _, r := range engine.Decide(compiled.Snapshot).Reports {
		by := compiled.Skyhooks[r.Rollout]
		for _, v := range r.Verdicts {
			n := o.Node(v.Node)
			o.Nodes[o.places[v.Node]] = n.With(by.Words(n, v))
		}
	}
	for _, n := range o.Nodes {
		n.ResourceVersion = "2"
	}
	return o
}

// newBenchCluster returns a Cluster that has compiled nothing yet.
func newBenchCluster() *Cluster { return New(Options{Clock: func() time.Time { return startTime }}) }

// computePass is all of a pass but the requests.
func computePass(c *Cluster, o *Objects, now time.Time) (rollout.Plan, int) {
	compiled := c.Compile(o, now)
	plan := engine.Decide(compiled.Snapshot)
	p := c.newPass(compiled)
	work := p.collectWork(plan, workFilter{})
	for _, s := range o.Skyhooks {
		by := compiled.Skyhook(s)
		for _, report := range plan.Reports {
			if report.Rollout == by.Rollout.Ref {
				by.Events(nil, s.Status, by.Status(report, plan.Groups))
			}
		}
	}
	for _, op := range o.NodeOps {
		by := compiled.NodeOp(op)
		for _, report := range plan.Reports {
			if report.Rollout == by.Rollout.Ref {
				opreport.Events(by, nil, op.Status, opreport.Status(by, report, plan.Groups))
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
					plan, work := computePass(newBenchCluster(), o, startTime.Add(time.Hour))
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

// changed is how many objects change between two passes.
const changed = 20

// measurePasses measures passes without their requests, one after the other. Before each of them something changes.
func measurePasses(b *testing.B, c *Cluster, o *Objects, now time.Time, change func(turn int)) {
	b.Helper()
	turn := 0
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	for b.Loop() {
		change(turn)
		turn++
		computePass(c, o, now)
	}
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// changeNodes replaces some nodes by other versions of them.
func changeNodes(o *Objects, turn int) {
	for i := range changed {
		at := (turn*changed + i) % len(o.Nodes)
		n := *o.Nodes[at]
		o.Nodes[at] = &n
	}
}

// BenchmarkNextPass measures a pass without its requests that follows another one, when 20 nodes have changed since.
func BenchmarkNextPass(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, skyhooks := range []int{1, 3} {
			b.Run(fmt.Sprintf("nodes=%d/skyhooks=%d", nodes, skyhooks), func(b *testing.B) {
				o := newLargeCluster(nodes, skyhooks, 2, 0)
				c := newBenchCluster()
				computePass(c, o, startTime)
				measurePasses(b, c, o, startTime.Add(time.Hour), func(turn int) { changeNodes(o, turn) })
			})
		}
	}
}

// startPending starts both packages of a Skyhook on its pending nodes: their pods run.
func startPending(b *testing.B, o *Objects, pending int) {
	b.Helper()
	for range 2 { // one package after the other
		compiled := Compile(o, startTime)
		w := nodeWriter{New(Options{}).newPass(compiled)}
		for _, a := range engine.Decide(compiled.Snapshot).Actions {
			n := o.Node(a.Node)
			edit, err := w.editOf(a, n)
			if err != nil {
				b.Fatal(err)
			}
			n = n.With(edit)
			o.Nodes[o.places[a.Node]] = n
			if a.Verb != rollout.VerbRun {
				continue
			}
			pod, err := compiled.Skyhooks[a.Rollout].Object(a.Task, a.Then, n)
			if err != nil {
				b.Fatal(err)
			}
			pod.UID, pod.ResourceVersion, pod.CreationTimestamp = types.UID(pod.Name), "1", metav1.Time{Time: startTime}
			pod.Status.Phase = corev1.PodPending
			for i, c := range pod.Spec.InitContainers {
				state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
				if i == 0 {
					state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: startTime}}}
				}
				pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state})
			}
			o.Pods = append(o.Pods, StripPod(pod))
		}
	}
	slices.SortFunc(o.Pods, comparePods)
	if len(o.Pods) != 2*pending {
		b.Fatalf("%d pods run on %d nodes", len(o.Pods), pending)
	}
}

// BenchmarkNextPassBusy is BenchmarkNextPass while pods run on some nodes, and 20 pods have changed since. Pods are listed in
// any order.
func BenchmarkNextPassBusy(b *testing.B) {
	for _, pending := range []int{50, 400} {
		b.Run(fmt.Sprintf("nodes=1000/busy=%d", pending), func(b *testing.B) {
			o := newLargeCluster(1000, 1, 2, pending)
			startPending(b, o, pending)
			c := newBenchCluster()
			o.durations = timing.NewDurations()
			computePass(c, o, startTime)
			listed, order := slices.Clone(o.Pods), podOrder{}
			rand.Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
			measurePasses(b, c, o, startTime.Add(time.Minute), func(turn int) {
				for i := range changed {
					at := (turn*changed + i) % len(listed)
					p := *listed[at]
					listed[at] = &p
				}
				o.Pods = order.sort(listed)
			})
		})
	}
}

// addNodeOp adds a NodeOp that has completed on all nodes, whose Jobs and pods still exist, and that goes on because of another node.
func addNodeOp(o *Objects, hasPolicy bool) {
	op := &opv1.NodeOp{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check", UID: "01234567-89ab-4000-8000-000000000000", Generation: 1, Finalizers: []string{opv1.FinalizerNodeOp}}}
	op.Spec.Command, op.Spec.Concurrency, op.Spec.Preflight = []string{"check"}, new(int32(10)), &opv1.Preflight{Command: []string{"test"}}
	op.Status.Phase = opv1.PhaseRunning
	if hasPolicy {
		p := &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", UID: "policy"}}
		p.Spec.Default.Budget.Count = new(int64(10))
		p.Spec.Compartments = []v1alpha1.Compartment{{Name: "gpu", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": "gpu"}}, Budget: v1alpha1.Budget{Count: new(int64(5))}}}
		o.Policies, op.Spec.DeploymentPolicy = append(o.Policies, p), p.Name
	}
	o.NodeOps = append(o.NodeOps, op)
	began, ended := startTime.Add(-2*time.Hour), startTime.Add(-time.Hour)
	for i, n := range o.Nodes {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check-" + n.Name, UID: types.UID("job-" + n.UID), ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{Kind: nodeop.Kind, Name: op.Name, UID: op.UID, Controller: new(true)}}}}
		job.Spec.Template.Spec.NodeName = n.Name
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "check-" + n.Name + "-x", UID: types.UID("pod-" + n.UID), ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}}}}
		pod.Spec.NodeName, pod.Status.Phase = n.Name, corev1.PodSucceeded
		o.Jobs, o.NodeOpPods = append(o.Jobs, job), append(o.NodeOpPods, pod)
		rec := node.OpRecord{
			Node: n.UID, NodeOp: opv1.CordonedBy(op), Admission: 1, At: &began, Job: job.Name,
			Preflight: &node.Step{State: node.StepDone, At: began}, Command: &node.Step{State: node.StepDone, At: ended, Seen: true},
			Result: &node.Result{Phase: opv1.PhaseCompleted, Message: "Job completed successfully", At: ended, Exit: new(int32(0))},
		}
		e := node.Edit{}
		e.SetAnnotation(n, node.OpRecordKey(string(op.UID)), rec.String())
		o.Nodes[i] = n.With(e)
	}
}

// BenchmarkPassNodeOp measures a pass without its requests, with one NodeOp.
func BenchmarkPassNodeOp(b *testing.B) {
	const nodes = 5000
	for _, hasPolicy := range []bool{false, true} {
		b.Run(fmt.Sprintf("policy=%v", hasPolicy), func(b *testing.B) {
			o := newLargeCluster(nodes, 0, 0, 0)
			addNodeOp(o, hasPolicy)
			c := newBenchCluster()
			computePass(c, o, startTime)
			measurePasses(b, c, o, startTime.Add(time.Hour), func(turn int) { changeNodes(o, turn) })
		})
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
