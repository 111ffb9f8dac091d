// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package nodeop

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	skyhookv1 "github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// stableObjects returns nodes, Jobs and pods as a loop has them: the same version is the same pointer in every pass, and is not changed.
func (w *environment) stableObjects() *Input {
	if w.shown == nil {
		w.shown = map[string]any{}
	}
	in := &Input{}
	for _, n := range w.nodes {
		n = n.With(node.Edit{})
		n.Labels = maps.Clone(n.Labels)
		in.Nodes = append(in.Nodes, showVersion(w, "Node "+n.Name, n))
	}
	for _, j := range w.jobs {
		in.Jobs = append(in.Jobs, showVersion(w, kindJob+j.Name, j.DeepCopy()))
	}
	for _, p := range w.pods {
		in.Pods = append(in.Pods, showVersion(w, kindPod+p.Name, p.DeepCopy()))
	}
	slices.SortFunc(in.Nodes, node.Compare)
	slices.SortFunc(in.Jobs, func(a, b *batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(in.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return in
}

// showVersion returns what was seen of an object in the pass before, if it is the same version.
func showVersion[T any](w *environment, name string, o *T) *T {
	if known, isKnown := w.shown[name]; isKnown && reflect.DeepEqual(known, o) {
		return known.(*T)
	}
	w.shown[name] = o
	return o
}

// compileAfterBefore compiles a NodeOp as a loop does that keeps what has not changed, and checks that this is the same as compiling
// everything.
func (w *environment) compileAfterBefore(o *v1alpha1.NodeOp, objects *Input) *Compiled {
	w.t.Helper()
	if w.before == nil {
		w.before = map[types.UID]*Compiled{}
	}
	in := w.input(o)
	in.Nodes, in.Jobs, in.Pods = objects.Nodes, objects.Jobs, objects.Pods
	before := w.before[o.UID]
	c := CompileAfter(before, in)
	if text := c.Difference(Compile(in)); text != "" {
		w.t.Fatalf("what was kept is wrong: %s", text)
	}
	w.kept += countKept(before, c)
	w.before[o.UID] = c
	if w.varies != nil {
		w.varies(o, in)
	}
	return c
}

// countKept counts the nodes that were taken over.
func countKept(before, c *Compiled) (out int) {
	if before == nil {
		return 0
	}
	for _, k := range c.kept {
		if slices.Contains(before.kept, k) {
			out++
		}
	}
	return out
}

// inputVariation compiles what a run has, with what its environment does not have: refusals, findings, proofs, budgets, marks, nodes of a
// start, entries of a predecessor, other settings and other specs. It changes some of that at times.
type inputVariation struct {
	t      *testing.T
	luck   *rand.Rand
	kept   int
	before map[types.UID]*Compiled

	refused  node.Refusals
	findings node.Findings
	proof    *skyhookv1.Proof
	budget   bool
	groups   int
	marks    skyhookv1.NodeMarks
	config   Config
	change   func(*v1alpha1.NodeOp)
	start    *v1alpha1.StartTargets
	entries  map[string]v1alpha1.NodeStatus
}

func (v *inputVariation) compile(o *v1alpha1.NodeOp, in *Input) {
	v.t.Helper()
	v.vary(in)
	varied := *in
	varied.Durations, varied.Refused, varied.Findings, varied.Marks = nil, v.refused, v.findings, v.marks
	varied.NodeOp = in.NodeOp.DeepCopy() // of an operation that goes on
	varied.NodeOp.Status.Phase, varied.NodeOp.DeletionTimestamp = v1alpha1.PhaseRunning, nil
	if v.change != nil {
		v.change(varied.NodeOp)
	}
	if v.start != nil {
		varied.NodeOp.Spec.Targets, varied.NodeOp.Status.StartTargets = v1alpha1.TargetsAtStart, v.start
	}
	for name, e := range v.entries {
		if varied.NodeOp.Status.NodeStatuses == nil {
			varied.NodeOp.Status.NodeStatuses = map[string]v1alpha1.NodeStatus{}
		}
		varied.NodeOp.Status.NodeStatuses[name] = e
	}
	varied.Proofs = Proofs(varied.NodeOp, &skyhookv1.DeploymentPolicy{Spec: skyhookv1.DeploymentPolicySpec{Proof: v.proof}})
	varied.Config.DefaultImage = v.config.DefaultImage
	if v.budget {
		varied.Budget = v.newBudget(in.Nodes)
	}
	c := CompileAfter(v.before[o.UID], &varied)
	if text := c.Difference(Compile(&varied)); text != "" {
		v.t.Fatalf("what was kept of a varied input is wrong: %s", text)
	}
	v.kept += countKept(v.before[o.UID], c)
	v.before[o.UID] = c
}

// vary changes the input at times.
func (v *inputVariation) vary(in *Input) {
	chance := func(percent int) bool { return v.luck.Intn(100) < percent }
	name := in.Nodes[v.luck.Intn(len(in.Nodes))].Name
	if chance(20) {
		v.refused = node.Refusals{}
		if chance(60) {
			task := []string{taskPreflight, taskCommand, taskReboot, node.TaskCheck}[v.luck.Intn(4)]
			v.refused.Add(name, task, node.Refusal{Text: "no", At: in.Now.Add(-time.Duration(v.luck.Intn(60)) * time.Second), Count: 1 + v.luck.Intn(3)})
		}
	}
	if chance(20) {
		v.findings = []node.Findings{nil, {{}}, {{name: ""}}, {{name: "a pod is missing"}}}[v.luck.Intn(4)]
	}
	if chance(5) {
		v.proof = []*skyhookv1.Proof{
			nil, {NodeConditions: []skyhookv1.NodeConditionGate{{Type: "Ready"}}}, {DaemonSets: []skyhookv1.DaemonSetProof{{Namespace: "x"}}},
			{Command: &skyhookv1.ProofCommand{Image: "i", Command: []string{"c"}}},
		}[v.luck.Intn(4)]
	}
	if chance(10) {
		v.budget, v.groups = chance(60), 1+v.luck.Intn(3)
	}
	if chance(5) {
		v.marks = skyhookv1.NodeMarks{Description: chance(50), PreferNoSchedule: chance(50)}
	}
	if chance(3) {
		v.config.DefaultImage = fmt.Sprint("image-", v.luck.Intn(2))
	}
	if chance(5) {
		v.change = []func(*v1alpha1.NodeOp){
			nil,
			func(o *v1alpha1.NodeOp) { o.Spec.ShareReboots = new(true) },
			func(o *v1alpha1.NodeOp) {
				o.Spec.NodeSelector.MatchLabels = map[string]v1alpha1.LabelValue{"node-role.kubernetes.io/control-plane": ""}
			},
			func(o *v1alpha1.NodeOp) { o.Spec.NodeSelector.MatchLabels = map[string]v1alpha1.LabelValue{"/": ""} },
			func(o *v1alpha1.NodeOp) { o.Status.Phase = v1alpha1.PhaseFailed },
			func(o *v1alpha1.NodeOp) { o.DeletionTimestamp = &metav1.Time{Time: in.Now} },
			func(o *v1alpha1.NodeOp) { o.UID += "x" },
		}[v.luck.Intn(7)]
	}
	if chance(5) {
		v.start = nil
		if chance(60) {
			v.start = newStartTargets(in.Nodes[:v.luck.Intn(len(in.Nodes))])
		}
	}
	if chance(10) {
		v.entries = map[string]v1alpha1.NodeStatus{}
		if chance(50) {
			phase := []v1alpha1.Phase{v1alpha1.PhaseRunning, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed}[v.luck.Intn(3)]
			v.entries[name] = v1alpha1.NodeStatus{Phase: phase, JobName: []string{"", "job"}[v.luck.Intn(2)], LastUpdated: metav1.Time{Time: in.Now}}
		}
	}
}

// newBudget puts the nodes into groups that depend on how many nodes there are.
func (v *inputVariation) newBudget(nodes []*node.Node) *Budget {
	out := &Budget{Of: map[string]rollout.GroupRef{}, Place: map[string]string{}}
	for i := range v.groups {
		out.Groups = append(out.Groups, rollout.Group{Ref: rollout.ParseGroupRef(fmt.Sprint("g", i)), Limit: 1})
	}
	for i, n := range nodes {
		out.Of[n.Name], out.Place[n.Name] = out.Groups[i%v.groups].Ref, fmt.Sprint(v.groups)
	}
	return out
}

// TestEachChange compares lists of pods in any order.
func TestEachChange(t *testing.T) {
	luck := rand.New(rand.NewSource(1))
	var all []*corev1.Pod
	for i := range 12 {
		all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i/2)}}) // two versions of each
	}
	pick := func(isSorted bool) (out []*corev1.Pod) {
		for _, p := range all {
			if luck.Intn(3) > 0 {
				out = append(out, p)
			}
		}
		luck.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		if isSorted {
			slices.SortStableFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		}
		return out
	}
	for range 2000 {
		a, b := pick(luck.Intn(2) == 0), pick(luck.Intn(2) == 0)
		var changed []*corev1.Pod
		eachChange(a, b, func(p *corev1.Pod) { changed = append(changed, p) })
		isChanged := func(p *corev1.Pod) bool { return slices.Contains(changed, p) }
		if left, right := slices.DeleteFunc(slices.Clone(a), isChanged), slices.DeleteFunc(slices.Clone(b), isChanged); !slices.Equal(left, right) {
			t.Fatalf("%v and %v remain", left, right)
		}
	}
}

// TestPodsOfChangedJobs changes a Job whose pod is on another node: whether the pod counts depends on the Job.
func TestPodsOfChangedJobs(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "job"}}
	j.Spec.Template.Spec.NodeName = "a"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: new(true)}}}}
	p.Spec.NodeName = "b"
	pods := []*corev1.Pod{p}
	for what, jobs := range map[string][2][]*batchv1.Job{"changed": {{j}, {j.DeepCopy()}}, "added": {nil, {j}}, "removed": {{j}, nil}} {
		changed := findChangedNodes(&Input{Jobs: jobs[0], Pods: pods}, &Input{Jobs: jobs[1], Pods: pods})
		requireEqual(t, what, fmt.Sprint(changed), "map[a:true b:true]")
	}
	requireEqual(t, "the same", len(findChangedNodes(&Input{Jobs: []*batchv1.Job{j}, Pods: pods}, &Input{Jobs: []*batchv1.Job{j}, Pods: pods})), 0)
}
