// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/podstate"
	"github.com/skyhook-k8s/skyhook/test/kubelet"
)

// testCluster is a cluster in memory with one or more Skyhooks. It applies edits as the back end does;
// drive replaces the engine by the simplest correct order.
type testCluster struct {
	t        testing.TB
	skyhooks []*v1alpha1.Skyhook
	policy   *v1alpha1.DeploymentPolicy
	missing  bool
	nodes    []*corev1.Node
	parsed   map[string]*node.Node
	pods     []*corev1.Pod
	maps     map[string]*corev1.ConfigMap
	config   plan.Config
	now      time.Time
	skew     time.Duration // of the operator's clock
	serial   int
	fails    map[string]int // by task id: how often its pod fails before it succeeds
	failure  string         // the message with which it does
	hangs    map[string]bool
	endsIn   map[string]string      // by task: the boot of which its agent speaks, once
	before   map[string]*Compiled   // of the passes before, by Skyhook
	shown    map[string]*corev1.Pod // pods as a cache shows them, which nobody changes
	kept     int                    // nodes that were taken over from a pass before
	stuck    func(*corev1.Pod) bool // pods that do not go when they are deleted; nil for none
	log      []string
}

func newTestCluster(t testing.TB) *testCluster {
	return &testCluster{
		t: t, parsed: map[string]*node.Node{}, maps: map[string]*corev1.ConfigMap{}, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		fails: map[string]int{}, hangs: map[string]bool{},
		config: plan.Config{
			Namespace: "skyhook", AgentImage: "ghcr.io/skyhook-k8s/skyhook/agent:v1.0.0", PauseImage: "registry.k8s.io/pause:3.10",
			CopyDirRoot: "/var/lib/skyhook", LogRoot: "/var/log/skyhook", Version: "v1.0.0", TrustAgentReboots: false,
			RuntimeTaint: corev1.Taint{Key: "skyhook.nvidia.com", Value: "runtime-required", Effect: corev1.TaintEffectNoSchedule},
		},
	}
}

// apply creates or replaces a Skyhook from YAML.
func (w *testCluster) apply(text string) *v1alpha1.Skyhook {
	w.t.Helper()
	s := &v1alpha1.Skyhook{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		w.t.Fatalf("%v in\n%s", err, text)
	}
	for i, old := range w.skyhooks {
		if old.Name == s.Name {
			s.UID, s.Generation, s.Status = old.UID, old.Generation+1, old.Status
			w.skyhooks[i] = s
			return s
		}
	}
	s.UID, s.Generation = types.UID("uid-"+s.Name), max(1, s.Generation)
	w.skyhooks = append(w.skyhooks, s)
	return s
}

// recreate creates a Skyhook from YAML in place of a deleted one, whose objects are gone.
func (w *testCluster) recreate(text string) {
	w.t.Helper()
	w.skyhooks, w.maps, w.pods = nil, map[string]*corev1.ConfigMap{}, nil
	s := w.apply(text)
	w.serial++
	s.UID = types.UID(fmt.Sprintf("uid-%s-%d", s.Name, w.serial))
}

func (w *testCluster) addNode(name string) *corev1.Node {
	w.serial++
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("node-" + name), CreationTimestamp: metav1.NewTime(w.now.Add(-time.Hour)),
		Labels: map[string]string{"kubernetes.io/hostname": name}, Annotations: map[string]string{}, ResourceVersion: "1",
	}}
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.ContainerRuntimeVersion = "v1.35.1", "containerd://2.1.4"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.nodes = append(w.nodes, n)
	return n
}

func (w *testCluster) node(name string) *corev1.Node {
	w.t.Helper()
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	w.t.Fatalf("there is no node %s", name)
	return nil
}

func (w *testCluster) bumpVersion(n *corev1.Node) {
	w.serial++
	n.ResourceVersion = fmt.Sprint(w.serial)
}

func (w *testCluster) input(s *v1alpha1.Skyhook) *plan.Input {
	in := &plan.Input{Skyhook: s, Policy: w.policy, PolicyMissing: w.missing, Config: w.config, Now: w.now.Add(w.skew), Definitions: map[string]*plan.Definition{}, Claims: map[string]string{}}
	for _, n := range w.nodes {
		w.parsed[n.Name] = node.Parse(n.DeepCopy(), w.parsed[n.Name])
		in.Nodes = append(in.Nodes, w.parsed[n.Name])
	}
	for _, name := range plan.SortedNames(w.maps) {
		if d, ok := plan.ParseDefinition(w.maps[name]); ok {
			in.Definitions[d.Hash] = d
		}
	}
	for _, other := range w.skyhooks {
		if other == s {
			break
		}
		for _, claim := range Claims(other) {
			in.Claims[claim] = other.Name
		}
	}
	in.Pods = w.pods
	return in
}

// compileAfterBefore compiles a Skyhook as a loop does that keeps what has not changed, and checks that this is the same as compiling
// everything.
func (w *testCluster) compileAfterBefore(s *v1alpha1.Skyhook) *Compiled {
	w.t.Helper()
	in := w.input(s)
	in.Skyhook, in.Pods = s.DeepCopy(), nil
	if w.before == nil {
		w.before, w.shown = map[string]*Compiled{}, map[string]*corev1.Pod{}
	}
	for _, p := range w.pods {
		if known := w.shown[p.Name]; known == nil || !equality.Semantic.DeepEqual(known, p) {
			w.shown[p.Name] = p.DeepCopy()
		}
		in.Pods = append(in.Pods, w.shown[p.Name])
	}
	c, fresh := CompileAfter(w.before[s.Name], in), Compile(in)
	if text := c.Difference(fresh); text != "" {
		w.t.Fatalf("what was kept is wrong: %s", text)
	}
	if was := w.before[s.Name]; was != nil {
		for _, k := range c.memo {
			if was.memo[k.node.Name] == k {
				w.kept++
			}
		}
	}
	w.before[s.Name] = c
	return c
}

// compile compiles a Skyhook, and writes the edits that need no plan.
func (w *testCluster) compile(s *v1alpha1.Skyhook) *Compiled {
	w.t.Helper()
	w.compileAfterBefore(s)
	c := w.compileAfterBefore(s) // as when no request of the first pass arrived
	for _, cm := range c.ConfigMaps() {
		if cm.Immutable == nil || w.maps[cm.Name] == nil {
			w.maps[cm.Name] = cm
		}
	}
	if len(c.Adopt) > 0 {
		for _, e := range c.Adopt {
			w.write(e.Node, e.Edit)
		}
		c = w.compileAfterBefore(s)
	}
	return c
}

// write applies an edit to a node.
func (w *testCluster) write(name string, e node.Edit) {
	n := w.node(name)
	after := (&node.Node{
		Annotations: n.Annotations, Labels: n.Labels, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints, Conditions: n.Status.Conditions,
	}).With(e)
	n.Annotations, n.Labels, n.Spec.Unschedulable = after.Annotations, after.Labels, after.Unschedulable
	n.Spec.Taints, n.Status.Conditions = after.Taints, after.Conditions
	w.bumpVersion(n)
}

// applyAction applies one action.
func (w *testCluster) applyAction(c *Compiled, a rollout.Action) {
	w.t.Helper()
	a.Rollout = c.Rollout.Ref
	n := node.Parse(w.node(a.Node).DeepCopy(), nil)
	e, err := c.Change(a, n, n.Holds(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	again, err := c.Change(a, n.With(e), n.With(e).Holds(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	if a.Verb != rollout.VerbRetire && a.Verb != rollout.VerbRecord && a.Verb != rollout.VerbUntaint && !again.Empty() {
		w.t.Errorf("%s of %s on %s twice is not once: %v", a.Verb, a.Task, a.Node, again.Annotations)
	}
	w.write(a.Node, e)
	switch a.Verb {
	case rollout.VerbRun:
		pod, err := c.Object(a.Task, a.Then, n.With(e))
		if err != nil {
			w.t.Fatal(err)
		}
		w.create(pod)
		w.log = append(w.log, strings.Join(append([]string{a.Node + " " + a.Task + w.payload(pod)}, a.Then...), ", then "))
	case rollout.VerbRecall:
		for _, p := range w.pods {
			if p.Name == a.Object {
				p.Annotations[podstate.AnnotationStop] = "it changed"
				w.log = append(w.log, a.Node+" recall")
			}
		}
	case rollout.VerbSweep:
		w.deletePod(a.Object)
	}
}

// deletePod deletes a pod. One that is stuck stays until removeStuckPods.
func (w *testCluster) deletePod(name string) {
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool {
		if p.Name != name {
			return false
		}
		isStuck := w.stuck != nil && w.stuck(p)
		if isStuck {
			end := metav1.NewTime(w.now.Add(30 * time.Second))
			p.DeletionTimestamp = &end
		}
		return !isStuck
	})
}

// removeStuckPods removes the pods that were deleted and did not go.
func (w *testCluster) removeStuckPods() {
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (w *testCluster) payload(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == podstate.ContainerInterrupt {
			i, err := pack.DecodeInterrupt(c.Args[3])
			if err != nil {
				w.t.Fatal(err)
			}
			return " " + strings.TrimSuffix(strings.Join(append([]string{string(i.Type)}, i.Services...), " "), " ")
		}
	}
	return ""
}

func (w *testCluster) create(p *corev1.Pod) {
	w.t.Helper()
	if slices.ContainsFunc(w.pods, func(o *corev1.Pod) bool { return o.Name == p.Name }) {
		w.t.Fatalf("pod %s exists already", p.Name)
	}
	w.serial++
	p.UID, p.CreationTimestamp = types.UID(fmt.Sprintf("pod-%d", w.serial)), metav1.NewTime(w.now)
	p.Status.Phase = corev1.PodPending
	w.pods = append(w.pods, p)
}

// endPod lets the init containers of a pod end, all of them or until the one that fails.
func (w *testCluster) endPod(p *corev1.Pod, exit int32, message string) {
	if podstate.IsCompact(p) {
		w.endStage(p, exit, message)
		return
	}
	kubelet.Create(p)
	for i := kubelet.Next(p); i >= 0 && i < len(p.Spec.InitContainers); i = kubelet.Next(p) {
		switch {
		case exit == 0:
			kubelet.End(p, i, 0, message, w.now)
		case i == 0 && len(p.Spec.InitContainers) > 1: // the copy succeeds
			kubelet.End(p, i, 0, "", w.now)
		default:
			kubelet.End(p, i, exit, message, w.now)
			return
		}
	}
}

// endStage lets the container of a compact pod end that works, and lets the next one begin if it ended well.
func (w *testCluster) endStage(p *corev1.Pod, exit int32, message string) {
	kubelet.Create(p)
	kubelet.End(p, kubelet.Next(p), exit, message, w.now)
	if next := kubelet.Next(p); exit == 0 && next >= 0 && p.Annotations[podstate.AnnotationStop] != "" {
		kubelet.End(p, next, int32(pack.NotBegun.ExitCode()), "", w.now)
	}
}

func (w *testCluster) podOf(s *v1alpha1.Skyhook, node, task string) *corev1.Pod {
	key, _, _, stage := plan.SplitTaskID(task)
	for _, p := range w.pods {
		t, _ := podstate.ReadPodAnnotation(p)
		isOfStage := t.Name+"|"+t.Version == key && t.Stage == stage || slices.ContainsFunc(podstate.ReadStages(p), func(s podstate.Stage) bool { return s.ID() == task })
		if p.Spec.NodeName == node && t.Skyhook == s.Name && isOfStage {
			return p
		}
	}
	return nil
}

// drive runs a Skyhook until nothing happens any more, and returns what ran, in order. Every node is admitted at once;
// a pod succeeds as soon as it was made, unless it is to fail or hang.
func (w *testCluster) drive(s *v1alpha1.Skyhook) string {
	w.t.Helper()
	w.log = nil
	for pass := 0; ; pass++ {
		if pass > 500 {
			w.t.Fatalf("it never ends:\n%s", strings.Join(w.log, "\n"))
		}
		w.now = w.now.Add(10 * time.Second)
		c := w.compile(s)
		acted := false
		for i := range c.Rollout.Targets {
			acted = w.advance(c, s, c.Rollout.Targets[i]) || acted
		}
		if !acted {
			break
		}
	}
	return strings.Join(w.log, "\n")
}

// advance applies the next action on one node.
func (w *testCluster) advance(c *Compiled, s *v1alpha1.Skyhook, t *rollout.Target) bool {
	if t.Blocked != nil || c.Rollout.Broken != nil || c.Rollout.Paused {
		return false
	}
	act := func(a rollout.Action) bool {
		a.Node = t.Node
		w.applyAction(c, a)
		return true
	}
	for _, stray := range t.Objects.Orphans {
		return act(rollout.Action{Verb: rollout.VerbSweep, Object: stray})
	}
	for _, q := range t.Objects.Queues {
		if q.Unwanted && !q.Recalled {
			return act(rollout.Action{Verb: rollout.VerbRecall, Object: q.Object})
		}
	}
	undone := map[string]*rollout.Task{}
	for i := range t.Tasks {
		undone[t.Tasks[i].ID] = &t.Tasks[i]
	}
	if len(undone) == 0 {
		return w.finishTarget(c, t, act)
	}
	if !t.Visit.Admitted {
		return act(rollout.Action{Verb: rollout.VerbAdmit})
	}
	var ready, alone []*rollout.Task
	working := false
	for i := range t.Tasks {
		task := &t.Tasks[i]
		switch {
		case task.State == rollout.StateSucceeded:
			act(rollout.Action{Verb: rollout.VerbRecord, Task: task.ID, State: rollout.StateDone})
			if slices.ContainsFunc(t.Tasks, func(o rollout.Task) bool { return o.Object.Name == task.Object.Name && o.ID != task.ID }) {
				return true
			}
			return act(rollout.Action{Verb: rollout.VerbSweep, Object: task.Object.Name})
		case task.State == rollout.StateFailing && task.Recorded != rollout.StateFailing:
			return act(rollout.Action{Verb: rollout.VerbRecord, Task: task.ID, State: rollout.StateFailing, Attempts: task.Attempts.Failed, Why: *task.Why})
		case (task.Object.Stale || task.Object.Dead) && task.Object.Name != "":
			return act(rollout.Action{Verb: rollout.VerbSweep, Object: task.Object.Name})
		case task.Object.Queued:
			working = true
		case task.Object.Name != "":
			working = true
			if w.advancePod(s, t.Node, task) {
				return true
			}
		case task.CoveredBy != "" || task.Object.Leaving:
		case !slices.ContainsFunc(task.After, func(id string) bool { return undone[id] != nil }):
			if task.Need == rollout.NeedAlone {
				alone = append(alone, task)
			} else {
				ready = append(ready, task)
			}
		}
	}
	if len(ready) > 0 {
		if ready[0].Need == rollout.NeedDrained && t.Drain.HeldAt.IsZero() {
			return act(rollout.Action{Verb: rollout.VerbHold})
		}
		return act(rollout.Action{Verb: rollout.VerbRun, Task: ready[0].ID, Then: findFollowing(ready[0], t.Tasks, undone)})
	}
	if len(alone) == 0 || working {
		return false
	}
	if t.Drain.HeldAt.IsZero() {
		return act(rollout.Action{Verb: rollout.VerbHold})
	}
	slices.SortStableFunc(alone, func(a, b *rollout.Task) int { return b.Strength - a.Strength })
	a := rollout.Action{Verb: rollout.VerbRun, Task: alone[0].ID}
	for _, other := range alone[1:] {
		a.Covers = append(a.Covers, other.ID)
	}
	return act(a)
}

// findFollowing returns the tasks that wait for nothing but a task, and those behind it, and may share its pod.
func findFollowing(first *rollout.Task, tasks []rollout.Task, undone map[string]*rollout.Task) (then []string) {
	if !first.Joins {
		return nil
	}
	for i := range tasks {
		k := &tasks[i]
		isOpen := func(id string) bool { return undone[id] != nil && id != first.ID && !slices.Contains(then, id) }
		isBehind := slices.ContainsFunc(k.After, func(id string) bool { return id == first.ID || slices.Contains(then, id) })
		if k.Joins && k != first && isBehind && k.Object.Name == "" && !k.Object.Leaving && k.Need <= first.Need && !slices.ContainsFunc(k.After, isOpen) {
			then = append(then, k.ID)
		}
	}
	return then
}

func (w *testCluster) finishTarget(c *Compiled, t *rollout.Target, act func(rollout.Action) bool) bool {
	switch {
	case !t.Drain.HeldAt.IsZero():
		return act(rollout.Action{Verb: rollout.VerbRelease})
	case c.Rollout.Deleting:
		return act(rollout.Action{Verb: rollout.VerbRetire, Wipe: true})
	case t.Visit.Admitted:
		return act(rollout.Action{Verb: rollout.VerbRetire})
	}
	return false
}

// advancePod lets a pod succeed, or fail when it is to.
func (w *testCluster) advancePod(s *v1alpha1.Skyhook, node string, task *rollout.Task) bool {
	pod := w.podOf(s, node, task.ID)
	if pod == nil || w.hangs[task.ID] {
		return false
	}
	if w.fails[task.ID] > 0 {
		if task.State == rollout.StateFailing {
			w.fails[task.ID]--
			if w.fails[task.ID] > 0 {
				return false // it keeps failing
			}
		} else {
			w.endPod(pod, 3, w.failure)
			return true
		}
	}
	message := ""
	if boot := w.endsIn[task.ID]; boot != "" {
		message = string(pack.Message{Mode: pack.ModeApply, Outcome: pack.Succeeded, Boot: boot}.Encode())
		delete(w.endsIn, task.ID)
	}
	if strings.Contains(w.payload(pod), string(v1alpha1.InterruptReboot)) {
		n := w.node(node)
		from := n.Status.NodeInfo.BootID
		if p := w.parsed[node].Skyhook(s.Name).Record.Packages[split0(task.ID)]; p != nil && p.Boot != from {
			return false
		}
		n.Status.NodeInfo.BootID = w.nextBoot(from)
		w.bumpVersion(n)
		message = string(pack.Message{Mode: pack.ModeInterrupt, Outcome: pack.Succeeded, Reboot: &pack.Reboot{From: from, To: n.Status.NodeInfo.BootID}}.Encode())
	}
	w.endPod(pod, 0, message)
	return true
}

func split0(id string) string { key, _, _, _ := plan.SplitTaskID(id); return key }

func (w *testCluster) nextBoot(from string) string {
	var n int
	_, _ = fmt.Sscanf(from, "boot-%d", &n)
	return fmt.Sprintf("boot-%d", n+1)
}
